"""The checkpoint is damaged, old, or its disk is full. The topics have all that is needed."""

import shutil
from pathlib import Path
from typing import Final

import pytest

from coordlib.history.sql import query_tables
from tests.kit.waiting import wait_until
from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import GROUP, Scene
from tests.stack.disks import fill, small_disk
from tests.stack.truths import committed
from tests.stack.wire import RawMember, settle

pytestmark = [pytest.mark.stack, pytest.mark.fault]

ARCHIVE: Final = ("--set", "engine.archive_interval_ms=2000")
WAITING_MS: Final = 300_000
#: A MessagePack array that begins with version 99.
NEWER_VERSION: Final = b"\x91\x63"


@pytest.mark.chaos
def test_a_damaged_state_is_refused_and_rebuilt_under_living_members(
    scene: Scene, tell: Tell
) -> None:
    """A disk flips bits while the job is down (F-26). It says so and ends; its operator rebuilds
    from the topics. Then everything is as before: a running group is not disturbed, who waited for
    a rebalance is answered, who had died is expelled, offsets are there, and history has every
    event once, although its own table is continued by another query."""
    scene.start_job(*ARCHIVE, archive=True)
    scene.crew_works("a", "b")
    waits = _Waiting(scene)
    silent = RawMember(scene.wire, "silent", "silent")
    settle([silent])
    offsets = committed(scene.wire, GROUP)
    scene.mark()
    scene.stack.kill_job()

    _flip_bits(scene.stack.checkpoint / "state")
    refusal = scene.job_refuses()
    assert refusal[0].startswith("coordinator: The checkpoint cannot be read"), refusal
    assert "--rebuild" in refusal[2]
    fresh = scene.stack.home / "rebuilt"
    scene.start_job(*ARCHIVE, "--rebuild", "--checkpoint", str(fresh), archive=True)

    waits.ends()
    scene.wire.event("silent", "GroupEmptied")
    assert scene.expelled("silent") == ["session expired"]
    now = committed(scene.wire, GROUP)
    assert all(now[place] >= offset for place, offset in offsets.items())
    scene.is_undisturbed()
    assert scene.expelled() == []
    seen = scene.ends_well()
    tell(f"refused, rebuilt, nobody told: {seen}; {_archived_once(scene)} events once in Delta")


class _Waiting:
    """A group that two members hold and a third wants to join: it waits for them."""

    def __init__(self, scene: Scene) -> None:
        wire = scene.wire
        timeouts = {"session_timeout_ms": WAITING_MS, "rebalance_timeout_ms": WAITING_MS}
        self.settled = [RawMember(wire, "waits", name, **timeouts) for name in ("first", "second")]
        settle(self.settled)
        self.late = RawMember(wire, "waits", "late", **timeouts)
        self._asked = self.late.ask_join()
        wire.judged(self._asked)
        assert not wire.answers(self._asked)

    def ends(self) -> None:
        """Those who are waited for come, and the one who waited is answered too."""
        asked = [member.ask_join() for member in self.settled]
        for member, coordinate in zip(self.settled, asked, strict=True):
            assert member.joined(coordinate)["error"] == "NONE"
        assert self.late.joined(self._asked)["error"] == "NONE"
        assert {member.generation for member in (*self.settled, self.late)} == {
            self.late.generation
        }


def _flip_bits(state: Path) -> None:
    """In every file: the newest of them may be of a batch that had not ended; it would be written
    again and never read."""
    for file in state.rglob("[0-9]*.*"):
        if file.suffix in (".delta", ".snapshot"):
            value = bytearray(file.read_bytes())
            value[len(value) // 2] ^= 0xFF
            file.write_bytes(value)


def _archived_once(scene: Scene) -> int:
    """Wait until Delta has all events; how many."""
    scene.wire.read_everything()
    written = {event["event_id"] for event in scene.wire.values("events")}

    def found() -> list[str]:
        rows = query_tables(scene.stack.tables, "SELECT event_id FROM events", []).rows
        return [row[0] for row in rows]

    wait_until("the archive has all", lambda: written <= set(found()), 180)
    rows = found()
    assert len(rows) == len(set(rows)), "an event twice in Delta"
    assert set(rows) == written
    return len(rows)


@pytest.mark.chaos
def test_an_older_copy_of_the_checkpoint_is_refused_and_rebuilt(scene: Scene, tell: Tell) -> None:
    """Somebody puts last night's backup back (F-25)."""
    scene.start_job()
    scene.crew_works("a", "b")
    assert scene.stack.stop_job() == 0
    shutil.copytree(scene.stack.checkpoint, scene.stack.home / "backup")
    scene.start_job()
    scene.job_goes_on()
    scene.mark()
    assert scene.stack.stop_job() == 0
    shutil.rmtree(scene.stack.checkpoint)
    shutil.copytree(scene.stack.home / "backup", scene.stack.checkpoint)

    refusal = scene.job_refuses()
    assert "is about to write" in refusal[0], refusal
    assert "--rebuild" in refusal[2]
    scene.start_job("--rebuild", "--checkpoint", str(scene.stack.home / "rebuilt"))
    scene.job_goes_on()
    scene.is_undisturbed()

    assert scene.expelled() == []
    tell(f"refused, rebuilt, nobody told: {scene.ends_well()}")


@pytest.mark.chaos
def test_a_state_that_this_code_did_not_write_is_refused(scene: Scene, tell: Tell) -> None:
    """All checksums are right, and yet it is no state: a newer release wrote it, say. Of all files
    only the seeds of a rebuild can be made so without Spark."""
    scene.start_job()
    scene.crew_works("a", "b")
    scene.mark()
    scene.stack.kill_job()
    spoilt = scene.stack.home / "spoilt"
    scene.job_crashes("batch-begins", "--rebuild", "--checkpoint", str(spoilt))
    for file in (spoilt / "seeds").iterdir():
        if file.name.startswith("."):
            file.unlink()  # Hadoop's checksum
        else:
            file.write_bytes(NEWER_VERSION)

    refusal = scene.job_refuses("--checkpoint", str(spoilt))
    assert refusal[0].startswith("coordinator: A shard's state in the checkpoint cannot be read")
    assert "--rebuild" in refusal[2]
    scene.start_job("--rebuild", "--checkpoint", str(scene.stack.home / "rebuilt"))
    scene.job_goes_on()
    scene.is_undisturbed()
    tell(f"refused, rebuilt twice, nobody told: {scene.ends_well()}")


@pytest.mark.chaos
def test_a_full_disk_ends_the_job_until_there_is_space(scene: Scene, tell: Tell) -> None:
    """F-15. The disk is a small file system in memory, for which one must be allowed to mount."""
    with small_disk(scene.stack.checkpoint):
        scene.start_job()
        scene.crew_works("a", "b")
        scene.mark()
        scene.note("fault", "the disk is full")
        ballast = scene.stack.checkpoint / "ballast"
        fill(ballast)

        assert scene.job_ended() == 1
        assert scene.last_words()[0].startswith("coordinator: The disk is full")
        scene.all_read_on()
        scene.stack.kill_job()
        ballast.unlink()
        scene.note("healed", "there is space")
        scene.start_job()
        scene.job_goes_on()
        scene.is_undisturbed()

        assert scene.expelled() == []
        tell(f"exit code 1, went on with space: {scene.ends_well()}")
        assert scene.stack.stop_job() == 0

"""The checkpoint's folder over crashes: what a start leaves that died at the worst moment.

A stand-in for Hadoop's file system on local files, which can die; the real one is met by the tests
of starts and rebuilds.
"""

from collections.abc import Callable
from pathlib import Path as LocalPath
from shutil import rmtree
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from coordlib.core.wire.stored import Marker
from coordlib.errors import StartRefused
from coordlib.job import rebuild
from coordlib.job.beginning import beginning_of
from coordlib.job.checkpoint import (
    Begun,
    CheckpointFolder,
    Difference,
    Ended,
    Identity,
    LocalFolder,
    Planned,
    Probe,
    partition_of,
)
from coordlib.job.pipelines import groups

SHARDS = 2


class Died(BaseException):
    """A power cut."""


class HadoopPath:
    def __init__(self, parent: str, child: str = "") -> None:
        self.local = LocalPath(parent) / child

    def toUri(self) -> Any:  # noqa: N802  # Java's names
        return SimpleNamespace(getPath=lambda: str(self.local))

    def getName(self) -> str:  # noqa: N802
        return self.local.name

    def getParent(self) -> "HadoopPath":  # noqa: N802
        return HadoopPath(str(self.local.parent))

    def getFileSystem(self, files: Any) -> Any:  # noqa: N802
        return files


class Files:
    """Hadoop's file system; `dies_at` names the call before which the power fails."""

    def __init__(self) -> None:
        self.dies_at = ""
        self.synced: list[str] = []

    def _live(self, call: str) -> None:
        if call == self.dies_at:
            raise Died

    def getUri(self) -> Any:  # noqa: N802
        return SimpleNamespace(getScheme=lambda: "memory")

    def exists(self, path: HadoopPath) -> bool:
        return path.local.exists()

    def listStatus(self, path: HadoopPath) -> list[Any]:  # noqa: N802
        paths = [HadoopPath(str(path.local), child.name) for child in path.local.iterdir()]
        return [SimpleNamespace(getPath=lambda path=path: path) for path in paths]

    def create(self, path: HadoopPath, overwrite: bool) -> Any:
        path.local.parent.mkdir(parents=True, exist_ok=True)
        file = path.local.open("wb")

        def write(value: bytearray) -> None:
            file.write(value[: len(value) // 2])
            file.flush()
            self._live("write")
            file.write(value[len(value) // 2 :])

        def close() -> None:
            self._live("close")
            file.close()

        return SimpleNamespace(
            write=write,
            close=close,
            hasCapability=lambda name: True,
            hsync=lambda: self.synced.append(path.local.name),
        )

    def open(self, path: HadoopPath) -> Any:
        return path.local.open("rb")

    def delete(self, path: HadoopPath, recursive: bool) -> bool:
        self._live("delete")
        if path.local.is_dir():
            rmtree(path.local)
        else:
            path.local.unlink()
        return True

    def rename(self, old: HadoopPath, new: HadoopPath) -> bool:
        self._live("rename")
        if new.local.exists():
            return False  # as HDFS does
        old.local.rename(new.local)
        return True


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def opened(tmp_path: LocalPath, files: Files) -> Callable[[], CheckpointFolder]:
    """A driver opens the folder."""
    hadoop = SimpleNamespace(
        org=SimpleNamespace(
            apache=SimpleNamespace(
                hadoop=SimpleNamespace(fs=SimpleNamespace(Path=HadoopPath)),
                commons=SimpleNamespace(
                    io=SimpleNamespace(IOUtils=SimpleNamespace(toByteArray=lambda s: s.read()))
                ),
            )
        )
    )
    java = SimpleNamespace(hadoopConfiguration=lambda: files)
    spark = SimpleNamespace(
        sparkContext=SimpleNamespace(_jvm=hadoop, _jsc=java),
        conf={"spark.sql.shuffle.partitions": "2"},
    )
    return lambda: CheckpointFolder(spark, str(tmp_path / "checkpoint"))


def marker(checkpoint: str = "old", batch: int = 7, *next_offsets: int) -> Marker:
    """The newest batch; next offset of each shard's requests."""
    offsets = {str(shard): offset for shard, offset in enumerate(next_offsets or (10, 20))}
    return Marker(
        checkpoint=checkpoint,
        batch=batch,
        ranges={},
        digest="",
        next_offsets={"coord.requests": offsets},
        shards={},
    )


def rebuilt(folder: CheckpointFolder, continued: Marker) -> Identity:
    """What a rebuild leaves."""
    for shard in range(SHARDS):
        folder.write_seed(shard, b"state %d" % shard, continued)
    return folder.create("coord", SHARDS, "topics", continued)


def committed(folder: CheckpointFolder, batch: int) -> None:
    """Spark has ended this batch."""
    file = LocalPath(folder.path) / "commits" / str(batch)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("v1")


def test_an_identity_is_kept_whole(opened: Callable[[], CheckpointFolder], files: Files) -> None:
    made = opened().create("coord", SHARDS, "topics")

    assert opened().identity() == made
    assert [name.split(".")[0] for name in files.synced] == ["coordinator"]
    assert [path.name for path in LocalPath(opened().path).iterdir()] == ["coordinator.json"]


@pytest.mark.parametrize("call", ["write", "close", "rename"])
def test_a_start_that_died_while_it_wrote_its_identity_has_left_none(
    opened: Callable[[], CheckpointFolder], files: Files, call: str
) -> None:
    """An empty or half file ended every later start with a decoder's error, `--rebuild` too."""
    files.dies_at = call
    with pytest.raises(Died):
        opened().create("coord", SHARDS, "topics")
    files.dies_at = ""

    assert opened().identity() is None
    made = opened().create("coord", SHARDS, "topics")
    assert opened().identity() == made


@pytest.mark.parametrize("content", [b"", b'{"checkpoint": "c0f', b"\xff", b"[]", b"{}"])
def test_an_identity_that_cannot_be_read_is_as_none(
    opened: Callable[[], CheckpointFolder], content: bytes
) -> None:
    """A disk was full, or somebody edited it; the next one takes its place."""
    place = LocalPath(opened().path) / "coordinator.json"
    place.parent.mkdir(parents=True)
    place.write_bytes(content)

    assert opened().identity() is None
    made = opened().create("coord", SHARDS, "topics")
    assert msgspec.json.decode(place.read_bytes(), type=Identity) == made


def test_shards_start_from_their_seeds(opened: Callable[[], CheckpointFolder]) -> None:
    identity = rebuilt(opened(), marker())

    assert opened().seeds(identity, marker()) == {0: b"state 0", 1: b"state 1"}


def test_a_checkpoint_that_continues_nothing_takes_nobody_elses_seeds(
    opened: Callable[[], CheckpointFolder],
) -> None:
    """A rebuild died before its identity; then the topics were made anew, and the next start in
    this folder began with the ghosts of their groups."""
    opened().write_seed(0, b"ghosts", marker())
    identity = opened().create("coord", SHARDS, "new topics")

    assert opened().seeds(identity, None) == {}


def test_seeds_of_another_moment_are_not_taken(opened: Callable[[], CheckpointFolder]) -> None:
    """A rebuild died in the middle, the old job worked on, and the next rebuild died, too, having
    written one shard: what it finds for the other is of the first one's moment."""
    opened().write_seed(0, b"before", marker("old", 7))
    opened().write_seed(1, b"before", marker("old", 7))
    identity = rebuilt(opened(), marker("old", 9))

    assert opened().seeds(identity, marker("old", 9)) == {0: b"state 0", 1: b"state 1"}


def test_a_missing_seed_is_refused(opened: Callable[[], CheckpointFolder]) -> None:
    """Somebody tidied the folder up: the shard would begin without its groups."""
    identity = rebuilt(opened(), marker())
    (LocalPath(opened().path) / "seeds" / "old-7-1").unlink()

    with pytest.raises(StartRefused, match="shard 1") as refused:
        opened().seeds(identity, marker())
    assert "--rebuild" in refused.value.hint


def test_seeds_are_not_read_again_when_every_shard_has_a_state(
    opened: Callable[[], CheckpointFolder],
) -> None:
    """Up to 80 MB a shard, read and sent to every worker at each later start."""
    identity = rebuilt(opened(), marker())
    newest = marker(identity.checkpoint, 3, 11, 21)
    committed(opened(), 3)

    assert opened().seeds(identity, newest) == {}


@pytest.mark.parametrize(
    ("newest", "ended"),
    [
        (marker("of the new", 0, 11, 20), 0),  # shard 1 was silent until now
        (marker("of the new", 3, 11, 21), 2),  # Spark runs batch 3 again, from the state before
        (marker("old", 7, 11, 21), 3),  # the marker is still of the checkpoint before
    ],
    ids=["a silent shard", "a batch that runs again", "no batch yet"],
)
def test_seeds_are_needed_until_then(
    opened: Callable[[], CheckpointFolder], newest: Marker, ended: int
) -> None:
    """A shard without input in the first batches has no state yet: without its seed it would begin
    empty, whenever its first request comes."""
    identity = rebuilt(opened(), marker())
    identity = msgspec.structs.replace(identity, checkpoint="of the new")
    committed(opened(), ended)

    assert len(opened().seeds(identity, newest)) == SHARDS


def test_a_new_checkpoint_draws_keys_that_spread_its_shards(
    opened: Callable[[], CheckpointFolder],
) -> None:
    """They stand in its identity: other settings of a later start do not move them."""
    made = opened().create("coord", SHARDS, "abcdefgh")

    assert [partition_of(key, 2) for key in made.keys] == [0, 1]
    assert opened().identity() == made


def planned(folder: CheckpointFolder, batch: int, *lines: str) -> None:
    """Spark has planned this batch."""
    file = LocalPath(folder.path) / "offsets" / str(batch)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *lines]))
    file.with_name(f".{batch}.crc").write_text("checksum")


def test_the_newest_planned_batch_names_its_records(
    opened: Callable[[], CheckpointFolder],
) -> None:
    """Spark's log has many batches, numbered without leading zeros, and a checksum beside each."""
    folder = opened()
    made = folder.create("coord", SHARDS, "topics")
    assert folder.planned(made) is None
    planned(folder, 9, '{"r":{"0":4,"1":2}}')
    planned(folder, 10, '{"r":{"0":5,"1":2},"o":{"0":3,"1":0}}')

    spans = (("r", 0, 4, 5), ("o", 0, 0, 3))
    assert folder.planned(made) == Planned(number=10, records=4, spans=spans)


def test_a_plan_without_offsets_names_none(opened: Callable[[], CheckpointFolder]) -> None:
    folder = opened()
    made = folder.create("coord", SHARDS, "topics")
    planned(folder, 0, "-")

    assert folder.planned(made) == Planned(number=0, records=0)


@pytest.mark.parametrize("call", ["rename", "delete", ""])
def test_batches_are_forgotten_at_once_and_the_identity_stays(
    opened: Callable[[], CheckpointFolder], files: Files, call: str
) -> None:
    """A start that dies between must find either all of Spark's plan, or none of it."""
    folder = opened()
    made = folder.create("coord", SHARDS, "topics")
    planned(folder, 9, '{"r":{"0":4}}')
    planned(folder, 10, '{"r":{"0":5}}')
    committed(folder, 9)
    files.dies_at = call
    try:
        folder.forget_batches()
    except Died:
        files.dies_at = ""

    assert opened().identity() == made
    assert opened().has_batches() == (call == "rename")
    opened().forget_batches()
    opened().forget_batches()
    assert (opened().has_batches(), opened().has_committed_batches()) == (False, False)
    assert opened().identity() == made


def test_a_batch_that_is_planned_and_not_ended_has_its_number_of_records(
    opened: Callable[[], CheckpointFolder],
) -> None:
    """INV-131: half as many are planned if it has ended the job. Of the first batch a rebuild has
    the beginning; without one a topic begins at 0."""
    folder, read = opened(), {"r": {"0": 4, "1": 2}}
    begun = folder.create("coord", SHARDS, "topics")
    assert folder.planned(begun) is None
    planned(folder, 9, '{"r":{"0":4,"1":2},"o":{"0":1}}')
    planned(folder, 10, '{"r":{"0":104,"1":3},"o":{"0":20}}')

    spans = ("r", 0, 4, 104), ("r", 1, 2, 3), ("o", 0, 1, 20)
    assert folder.planned(begun) == Planned(number=10, records=100 + 1 + 19, spans=spans)
    committed(folder, 10)
    assert folder.planned(begun) is None

    planned(folder, 11, '{"r":{"0":104,"1":3},"o":{"0":21}}')
    folder.forget_batches()
    planned(folder, 0, '{"r":{"0":104,"1":3}}')
    spans = ("r", 0, 0, 104), ("r", 1, 0, 3)
    assert folder.planned(begun) == Planned(number=0, records=107, spans=spans)
    rebuilt = msgspec.structs.replace(begun, rebuilt_from=marker_of(read))
    spans = ("r", 0, 4, 104), ("r", 1, 2, 3)
    assert folder.planned(rebuilt) == Planned(number=0, records=101, spans=spans)


def marker_of(next_offsets: dict[str, dict[str, int]]) -> Marker:
    return Marker(
        checkpoint="c", batch=3, ranges={}, digest="", next_offsets=next_offsets, shards={}
    )


def test_notes_of_batches_are_kept_until_the_batches_are_forgotten(
    opened: Callable[[], CheckpointFolder],
) -> None:
    """The next checkpoint counts its batches from 0 again: a note of the one before would count
    for another batch."""
    assert (opened().ended(), opened().begun(), opened().difference()) == (None, None, None)
    opened().forget_begun()
    begun = Begun(checkpoint="c", batch=8, records=60, times=1)
    opened().write_ended(Ended(checkpoint="c", batch=7, records=120))
    opened().write_ended(Ended(checkpoint="c", batch=8, records=60))
    opened().write_begun(begun)
    opened().write_difference("c", 5)

    assert opened().ended() == Ended(checkpoint="c", batch=8, records=60)
    assert opened().begun() == begun
    assert opened().difference() == Difference(checkpoint="c", batch=5)
    opened().forget_begun()
    assert opened().begun() is None

    opened().write_begun(begun)
    opened().forget_batches()
    assert (opened().ended(), opened().begun(), opened().difference()) == (None, None, None)


def test_notes_are_written_without_java_where_the_folder_is_on_this_disk(
    opened: Callable[[], CheckpointFolder], tmp_path: LocalPath
) -> None:
    """Java has ended with code 52, and can write nothing of the batch that ended it.

    Hadoop refuses a file whose checksum beside it is that of another one."""
    assert opened().without_java() is None  # another file system than this machine's
    folder, made = LocalFolder(tmp_path / "checkpoint"), opened().create("coord", SHARDS, "topics")
    assert folder.planned(made) is None
    planned(opened(), 9, '{"r":{"0":4}}')
    planned(opened(), 10, '{"r":{"0":104}}')
    committed(opened(), 9)
    checksum = tmp_path / "checkpoint" / ".ended.json.crc"
    checksum.write_bytes(b"of a file of before")

    assert folder.identity() == made
    assert folder.planned(made) == opened().planned(made)
    ended = Ended(checkpoint=made.checkpoint, batch=10, records=100)
    folder.write_ended(ended)
    folder.write_probe(Probe(record="r0-4", times=1))
    assert (opened().ended(), opened().probe()) == (ended, folder.probe())
    assert not checksum.exists()
    folder.forget_silent_probe()
    assert opened().probe() is None
    folder.write_probe(Probe(record="r0-4", times=1, is_too_much=True))
    folder.forget_silent_probe()
    assert opened().probe() == Probe(record="r0-4", times=1, is_too_much=True)
    folder.forget_begun()
    opened().forget_batches()
    # The checkpoint that is made anew for the next probes finds which record was too much.
    assert opened().probe() is not None
    opened().forget_probe()
    assert (folder.probe(), folder.ended(), folder.has_batches()) == (None, None, False)


@pytest.mark.parametrize(
    ("checkpoint", "batch", "newest_of", "is_taken_over"),
    [
        ("one", 3, "one", True),
        ("one", 2, "one", False),
        ("zero", 3, "one", False),
        ("zero", 3, "zero", False),  # a new checkpoint, which has judged nothing yet
    ],
)
def test_a_batch_is_taken_over_only_of_its_own_checkpoint(
    opened: Callable[[], CheckpointFolder],
    monkeypatch: pytest.MonkeyPatch,
    checkpoint: str,
    batch: int,
    newest_of: str,
    is_taken_over: bool,
) -> None:
    """Numbers of batches begin anew with each checkpoint."""
    monkeypatch.setattr(rebuild, "seed_blobs", lambda *_: {0: b"", 1: b""})
    opened().write_difference(checkpoint, batch)
    mine = Identity(checkpoint="one", prefix="p", shards=SHARDS, incarnation="i")
    newest = msgspec.structs.replace(marker_of({}), checkpoint=newest_of, batch=3)

    found = beginning_of(opened(), mine, newest, groups("p"), lambda *_: {}, {})

    assert found.taken_over == (3 if is_taken_over else -1)

"""Stored states of claims of each version, kept as fixtures: what checkpoints and topics hold.

    python -m tests.tools.stored_claims             write the fixtures of a new state version
    python -m tests.tools.stored_claims --outputs   record anew what follows from each of them

As `stored_state` does for groups. There are two of each version: a rich coordination partition that
was read from its beginning, and one that was begun late behind a cut. The states are written once
and never again; what follows from them only when a change of behaviour is meant.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from coordlib.core.claims import fold as restore
from coordlib.core.claims.fold import STATE_VERSION, fold
from coordlib.core.claims.snapshots import read_pages
from coordlib.core.engine.effects import SNAPSHOTS
from coordlib.core.engine.state import InputRecord
from tests.tools.claims import driving
from tests.tools.claims.driving import Talk, message, process_of
from tests.tools.stored_state import lines_of

FOLDER: Final = Path("tests/core/claims/stored_states")
SETTINGS: Final = driving.settings()
HI_MS: Final = 60_000
#: The state of each fixture, by the end of its name.
HOWS: Final = ("", "-late")


class StoredClaims(msgspec.Struct, kw_only=True):
    """A fixture; bytes are base64."""

    version: int
    blob: bytes
    #: Newest values of `coord.claims.snapshots`, by page.
    pages: dict[str, bytes]
    #: What stands behind the snapshot in the log and is judged in the blob, and what comes next:
    #: offset, timestamp, value.
    behind: list[tuple[int, int, bytes]]
    log: list[tuple[int, int, bytes]]
    #: What follows from the blob, and from the snapshot: lines of `lines_of`.
    outputs: list[str] = []
    outputs_after_rebuild: list[str] = []

    def rebuilt(self) -> bytes:
        """The blob as the snapshot and the log behind it give it."""
        snapshot = read_pages(self.pages.values())
        assert snapshot is not None
        records = [InputRecord("m", *row) for row in self.behind]
        return restore.fold(restore.begin_at(snapshot), records, SETTINGS).blob

    def go_on(self, blob: bytes) -> list[str]:
        """What follows from the log that comes next."""
        outcome = fold(blob, [InputRecord("m", *row) for row in self.log], SETTINGS)
        return [*lines_of(_readable(outcome.outputs)), msgspec.json.encode(outcome.status).decode()]


def _readable(outputs: list[Any]) -> list[Any]:
    """Snapshots are compressed, and equal only by what they hold: they are compared elsewhere."""
    return [each for each in outputs if each.topic != SNAPSHOTS]


# -- a rich coordination partition -----------------------------------------------------------


def made(how: str = "") -> StoredClaims:
    """The fixture of today's code."""
    talk = Talk(SETTINGS)
    if how:
        known = {("g", "t", 8): (80, "i" * 22), ("g", "t", 9): (90, "")}
        talk.load(restore.begin_late(known, 40, SETTINGS, pages=2))
        talk.next_offset = 50
    _have_everything(talk)
    talk.end_batch()
    pages = {o.key.decode(): o.value for o in talk.outputs if o.topic == SNAPSHOTS and o.value}
    snapshot = read_pages(pages.values())
    assert snapshot is not None, "the clock has crossed an interval"
    _say(talk, "Heartbeat", client="late", group="after", partition=1, offset=3, version=1)
    if not how:
        talk.send(b"\xff")  # counted, and told later
    talk.claims.close()
    blob = talk.claims.encode()
    behind = [each for each in talk.log if each.offset > snapshot.offset]
    stored_until = len(talk.log)
    talk.load(blob)
    _go_on(talk)
    fixture = StoredClaims(
        version=STATE_VERSION,
        blob=blob,
        pages=pages,
        behind=_rows(behind),
        log=_rows(talk.log[stored_until:]),
    )
    return record_outputs(fixture)


def record_outputs(fixture: StoredClaims) -> StoredClaims:
    """With what follows by today's code."""
    fixture.outputs = fixture.go_on(fixture.blob)
    fixture.outputs_after_rebuild = fixture.go_on(fixture.rebuilt())
    return fixture


def _have_everything(talk: Talk) -> None:
    """Slots in every state, by both kinds of rules, pauses, refusals and a clock that is off."""
    expired = _claim(talk, "a", partition=0)
    _say(talk, "Heartbeat", client="a", partition=0, epoch=expired, offset=7)
    released = _claim(talk, "b", partition=1)
    _say(talk, "ReleasingPartition", client="b", partition=1, epoch=released, offset=11)
    _say(talk, "Heartbeat", client="go", partition=2, instance="abcdefgh", version=1, offset=5)
    _claim(talk, "t", partition=7)  # of which a late reader is not sure
    _pass(talk, 3 * HI_MS)
    proposed = _claim(talk, "c", partition=3)
    _say(talk, "Heartbeat", client="c", partition=3, epoch=proposed, offset=2**40)
    _say(talk, "ClaimingMessages", client="c", partition=3, epoch=proposed, offset=2**40 + 9)
    reclaimed = _claim(talk, "d", partition=4)
    _say(talk, "Heartbeat", client="d", partition=4, epoch=reclaimed, offset=1)
    _say(talk, "Heartbeat", client="d", partition=4, instance="00000bad")
    _claim(talk, "\u00e9", group="\u00e9", partition=2**31 - 1)
    _say(talk, "Heartbeat", client="a", partition=0, epoch=1, offset=99)  # of another epoch
    for number in range(8):  # a flood that is told of thinned
        _say(talk, "Heartbeat", client="z", partition=3, epoch=1, offset=number)
        talk.send(b"banana")
    now_s = talk.now_ms // 1_000
    _say(talk, "ReleaseGroup", client="admin", group="paused", expire_s=now_s + 600)
    _say(talk, "ClaimingPartition", client="a", group="paused", partition=0)
    _say(talk, "ReleaseGroup", client="admin", group="over", expire_s=now_s + 1)
    _say(talk, "ClaimingPartition", client="ahead", partition=5, time_s=now_s + 86_400)
    _say(talk, "ReleasingPartition", client="b", group="gone", partition=6, epoch=1, offset=3)


def _go_on(talk: Talk) -> None:
    """A log in which everything that was stored matters once more."""
    talk.send(b"banana")
    for client, number in (("e", 0), ("e", 1), ("e", 2), ("e", 3), ("e", 8)):
        _say(talk, "ClaimingPartition", client=client, partition=number)
    _say(talk, "ClaimingPartition", client="a", group="paused", partition=0)
    _say(talk, "ClaimingPartition", client="a", group="over", partition=0)
    _say(talk, "Heartbeat", client="go", partition=2, instance="abcdefgh", version=1, offset=6)
    _say(talk, "ReleasingPartition", client="go", partition=2, instance="abcdefgh", version=1)
    now_s = talk.now_ms // 1_000
    _say(talk, "ClaimingPartition", client="ahead", partition=5, time_s=now_s + 86_400)
    _pass(talk, 3 * HI_MS)
    for number in range(7):
        _say(talk, "ClaimingPartition", client="f", partition=number)
    _pass(talk, 12 * HI_MS)


def _claim(talk: Talk, client: str, **fields: Any) -> int:
    """The epoch of its attempt."""
    return _say(talk, "ClaimingPartition", client=client, **fields)


def _say(talk: Talk, kind: str, epoch: int | None = None, **fields: Any) -> int:
    """A message, 100 ms after the one before; its offset."""
    process = process_of(fields["client"])
    usual = process if epoch is None else f"{process}-{epoch}"
    said = message(kind, talk.now_ms + 100, {"instance": usual, **fields})
    return talk.send(said, after_ms=100).offset


def _pass(talk: Talk, for_ms: int) -> None:
    """Time, by records that mean nothing."""
    for _ in range(for_ms // 20_000):
        talk.send(b"time passes", after_ms=20_000)


def _rows(records: list[InputRecord]) -> list[tuple[int, int, bytes]]:
    return [(each.offset, each.timestamp_ms, each.value or b"") for each in records]


# -- files -----------------------------------------------------------------------------------


def path_of(version: int, how: str = "", folder: Path = FOLDER) -> Path:
    return folder / f"v{version}{how}.json"


def read(path: Path) -> StoredClaims:
    return msgspec.json.decode(path.read_bytes(), type=StoredClaims)


def _write_tree(path: Path, tree: Any) -> None:
    path.write_text(json.dumps(tree, indent=1, ensure_ascii=False) + "\n")


def main(arguments: list[str]) -> int:
    FOLDER.mkdir(exist_ok=True)
    if arguments == ["--outputs"]:
        for path in sorted(FOLDER.glob("v*.json")):
            _write_tree(path, msgspec.to_builtins(record_outputs(read(path))))
        return 0
    paths = {how: path_of(STATE_VERSION, how) for how in HOWS}
    if any(path.exists() for path in paths.values()):
        print(f"{paths['']} is written: raise STATE_VERSION for another layout", file=sys.stderr)
        return 1
    for how, path in paths.items():
        _write_tree(path, msgspec.to_builtins(made(how)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

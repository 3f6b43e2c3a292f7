"""A recorded history of members: one line per event, in the order of true time.

The same lines come from simulated and from real runs (JSON, one object per line), so that the same
checkers read both. `t_ms` is of one clock: true time in simulated runs, time since the machine's
boot in real ones.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec


class Happened(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. Which fields are set depends on `what`.

    started, ended: a member's process; `detail`: how it ended.
    assigned, revoked, lost: the partitions of its callbacks.
    act: it processed record `offset`, with the token `fence`.
    rewound: it goes back to record `offset` of a partition; without a member: offsets were deleted.
    deleted: the group was deleted; a later join creates it again.
    commit: it sent next offsets to read; committed, commit_failed: the answer.
    fault, healed: a fault began or ended.
    """

    t_ms: int
    what: str
    member: str = ""
    group: str = ""
    #: `topic-partition`
    partitions: tuple[str, ...] = ()
    offset: int = -1
    generation: int = -1
    fence: int = -1
    #: partition -> offset, for commits.
    offsets: dict[str, int] = {}
    detail: str = ""


decode: msgspec.json.Decoder[Happened] = msgspec.json.Decoder(Happened)


def read(path: Path) -> list[Happened]:
    """A recorded history, in order of time. Raises OSError, msgspec.MsgspecError."""
    lines = path.read_bytes().splitlines()
    found = [decode.decode(line) for line in lines if line.strip()]
    return sorted(found, key=lambda each: each.t_ms)


def write(path: Path, history: Iterable[Happened]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in history))

"""A recorded history of members, of stores with replicas, or of transactions: one line per event,
in the order of true time.

The same lines come from simulated and from real runs (JSON, one object per line), so that the same
checkers read both. `t_ms` is of one clock: true time in simulated runs, time since the machine's
boot in real ones.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

AT_MOST_ONCE: Final = "at-most-once"


class Happened(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. Which fields are set depends on `what`.

    started, ended: a member's process; `detail`: how it ended; `delivery`: how it consumes.
    assigned, revoked, lost: the partitions of its callbacks.
    act: it processed record `offset`, with the token `fence`.
    handed_out: it was given record `offset`, with delivery at most once; it may process it or not.
    rewound: it goes back to record `offset` of a partition; without a member: offsets were deleted.
    deleted: the group was deleted; a later join creates it again.
    commit: it sent next offsets to read; committed, commit_failed: the answer.
    fault, healed: a fault began or ended.

    Of a replicated store (`stores.py`); `generation` is the leader epoch, `offset` the position of
    the value in the partition's log, and `member` who did it:
    led, resigned: a store begins to lead partitions, or has stopped; `detail` may say why.
    acknowledged, answered: a leader is about to answer a put, or a get; `t_ms` is of the moment
        before it asked whether it may lead.
    put, got: a client has its answer; it had asked at `began_ms`. A key without value: got alone.
    put_unknown: a client got no answer to a put, or one that says nothing; it may yet take place.
    row: the controller changed a partition: `leader` (-1: none), `isr`, `replicas`,
        `partition_epoch`.

    Of transactions (`atomicity.py`); `transaction` names one, and no two have the same name:
    begin: `member` begins it.
    sent: it appends `value`, which nobody else appends, to a partition; `key`: the input record
        from which it was made, as `topic-partition@offset`, or nothing.
    offsets: next offsets to read of `group` are part of it.
    ended: `detail` is ok, aborted or unknown; the last such line counts. Write `unknown` before
        the commit is called: a process that is killed in it writes nothing any more.
    read: a reader of committed records, `member`, was given `value` at `offset`. One that begins
        anew has another name.
    read_to_end: it has read these partitions from their beginning up to the ends of their logs,
        which it had asked for at `began_ms`; not to their last stable offsets.
    fetched: `offsets` are what `group` has committed, asked for at `began_ms` with stable offsets.
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
    #: AT_MOST_ONCE; empty: at least once.
    delivery: str = ""
    #: Of puts and gets. An empty value with offset -1: the key has none.
    key: str = ""
    value: str = ""
    began_ms: int = -1
    #: Of a line of transactions.
    transaction: str = ""
    #: Of a row.
    leader: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()


decode: msgspec.json.Decoder[Happened] = msgspec.json.Decoder(Happened)


def read(path: Path) -> list[Happened]:
    """A recorded history, in order of time. Raises OSError, msgspec.MsgspecError."""
    lines = path.read_bytes().splitlines()
    found = [decode.decode(line) for line in lines if line.strip()]
    return sorted(found, key=lambda each: each.t_ms)


def write(path: Path, history: Iterable[Happened]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in history))

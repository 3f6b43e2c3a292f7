"""A recorded history of members, of stores with replicas, or of transactions: one line per event,
in the order of true time.

The same lines come from simulated and from real runs (JSON, one object per line), so that the same
checkers read both. `t_ms` is of one clock: true time in simulated runs, time since the machine's
boot in real ones.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from coordlib.demo.witness import Consumed, Deed, Witness, unfinished

AT_MOST_ONCE: Final = "at-most-once"
_WHAT: Final = {"refused": "commit_failed", "closed": "ended"}


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

    Of a replicated store; `generation` is the leader epoch, `offset` the position of
    the value in the partition's log, and `member` who did it:
    led, resigned: a store begins to lead partitions, or has stopped; `detail` may say why.
    acknowledged, answered: a leader is about to answer a put, or a get; `t_ms` is of the moment
        before it asked whether it may lead.
    put, got: a client has its answer; it had asked at `began_ms`. A key without value: got alone.
    put_unknown: a client got no answer to a put, or one that says nothing; it may yet take place.
    row: the controller changed a partition: `leader` (-1: none), `isr`, `replicas`,
        `partition_epoch`.

    Of transactions; `transaction` names one, and no two have the same name:
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


def record(
    path: Path,
    witnesses: Iterable[Witness],
    killed_ns: Mapping[str, int],
    topic: str,
    group: str,
    rewound: Iterable[Deed] = (),
) -> None:
    """Write the history of all members, in the order of time.

    Args:
        killed_ns: member -> when it was killed, which its own file lacks.
        rewound: positions that somebody else has set back, and when.
    """
    found = [(ns, each) for witness in witnesses for ns, each in _of_member(witness, topic, group)]
    found += [
        (at_ns, Happened(_ms(at_ns), "ended", member=name, group=group, detail="killed"))
        for name, at_ns in killed_ns.items()
    ]
    found += [
        (deed.at_ns, _set_back(deed.at_ns, f"{topic}-{partition}", offset, group))
        for deed in rewound
        for partition, offset in deed.offsets.items()
    ]
    write(path, [each for _, each in sorted(found, key=lambda row: row[0])])


def _of_member(witness: Witness, topic: str, group: str) -> Iterable[tuple[int, Happened]]:
    for each in witness.consumed:
        yield each.at_ns, _act(each, topic, group)
    for deed in witness.deeds:
        if deed.what == "rewound":
            for partition, offset in deed.offsets.items():
                place = f"{topic}-{partition}"
                yield deed.at_ns, _set_back(deed.at_ns, place, offset, group, witness.member)
        elif deed.what not in ("began", "finished"):
            yield deed.at_ns, _deed(deed, witness.member, topic, group)
    for each in unfinished(witness):
        # Equal to a failed commit: the batch's work is done again.
        why = f"run {each.run} ended in the middle of a batch"
        yield (
            each.at_ns,
            Happened(_ms(each.at_ns), "commit_failed", member=each.member, group=group, detail=why),
        )


def _act(each: Consumed, topic: str, group: str) -> Happened:
    return Happened(
        _ms(each.at_ns),
        "act",
        member=each.member,
        group=group,
        partitions=(f"{topic}-{each.partition}",),
        offset=each.offset,
        generation=each.generation,
        fence=each.fence,
    )


def _deed(deed: Deed, member: str, topic: str, group: str) -> Happened:
    return Happened(
        _ms(deed.at_ns),
        _WHAT.get(deed.what, deed.what),
        member=member,
        group=group,
        partitions=tuple(f"{topic}-{partition}" for partition in deed.partitions),
        generation=deed.generation,
        fence=deed.fence,
        offsets={f"{topic}-{partition}": at for partition, at in deed.offsets.items()},
        detail=deed.text,
    )


def _set_back(at_ns: int, partition: str, offset: int, group: str, member: str = "") -> Happened:
    return Happened(
        _ms(at_ns), "rewound", member=member, group=group, partitions=(partition,), offset=offset
    )


def _ms(at_ns: int) -> int:
    return at_ns // 1_000_000

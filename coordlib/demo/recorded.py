"""The demo as a history in the form that simulated runs have, for the same checkers.

A file for each act lies in the stack's folder; it is what `coord log check` reads.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from coordlib.checking import checkers
from coordlib.checking.history import Happened, read, write
from coordlib.demo.verdict import Check
from coordlib.demo.witness import Consumed, Deed, Witness, unfinished

FILE: Final = "history.jsonl"
ASSIGNED_FILE: Final = "history-assigned.jsonl"
CLAIMS_FILE: Final = "history-claims.jsonl"
BROKERS_FILE: Final = "history-brokers.jsonl"
TRANSACTIONS_FILE: Final = "history-transactions.jsonl"
#: What members do, and what a store's leaders do.
_ACTS: Final = ("act", "acknowledged")
_WHAT: Final = {"refused": "commit_failed", "closed": "ended"}


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


def check(path: Path) -> Check:
    """The result of `coord log check`, as one of the verdict's lines."""
    history = read(path)
    acts = sum(each.what in _ACTS for each in history)
    offences = checkers.check(history) or ([] if acts else ["nobody did anything"])
    numbers = f"{len(history):,} lines; coord log check {path}"
    return Check("The recorded history keeps what the simulator demands", numbers, tuple(offences))


def _of_member(witness: Witness, topic: str, group: str) -> Iterable[tuple[int, Happened]]:
    for each in witness.consumed:
        yield each.at_ns, _act(each, topic, group)
    for deed in witness.deeds:
        if deed.what == "rewound":
            for partition, offset in deed.offsets.items():
                place = f"{topic}-{partition}"
                yield deed.at_ns, _set_back(deed.at_ns, place, offset, group, witness.member)
        elif deed.what not in ("began", "finished"):
            yield deed.at_ns, _told(deed, witness.member, topic, group)
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


def _told(deed: Deed, member: str, topic: str, group: str) -> Happened:
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

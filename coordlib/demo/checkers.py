"""Checks over a history of members, from a simulated run or from a real one.

Each names the promise that was broken, the member that broke it, and the time. Jepsen's anomalies
for Kafka are the model: two owners, lost writes, going backwards, skipping.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise

from coordlib.demo.history import Happened

Checker = Callable[[list[Happened]], Iterable[str]]


def one_owner(history: list[Happened]) -> Iterable[str]:
    """INV-57: no member acts on a partition before its former owner's last act."""
    for partition, acts in _by_partition(history).items():
        ended: dict[str, Happened] = {}
        for before, act in pairwise(acts):
            if before.member != act.member:
                ended[before.member] = before
            # A member comes back only with a newer assignment.
            old = ended.get(act.member)
            if old is not None and act.fence <= old.fence and old.fence >= 0:
                yield (
                    f"INV-57: {act.member} acts on {partition} at {act.t_ms} ms with fence "
                    f"{act.fence}, after {before.member} had begun there"
                )


def fence_rises(history: list[Happened]) -> Iterable[str]:
    """INV-20: a store that refuses tokens below the greatest one seen refuses no owner."""
    for partition, acts in _by_partition(history).items():
        for before, act in pairwise(acts):
            if act.fence < before.fence:
                yield (
                    f"INV-20: {act.member} acts on {partition} at {act.t_ms} ms with fence "
                    f"{act.fence}, after {before.member} with {before.fence}"
                )


def no_skip(history: list[Happened]) -> Iterable[str]:
    """INV-58: while a member holds a partition it processes every record, in order."""
    position: dict[tuple[str, str], int] = {}
    for each in history:
        if each.what in ("assigned", "revoked", "lost", "ended"):
            gone = each.partitions
            for key in list(position):
                if key[0] == each.member and (not gone or key[1] in gone):
                    del position[key]
        if each.what == "rewound" and each.member:
            position[(each.member, each.partitions[0])] = each.offset - 1
        if each.what == "act":
            key = (each.member, each.partitions[0])
            if key in position and each.offset != position[key] + 1:
                yield (
                    f"INV-58: {each.member} goes from {position[key]} to {each.offset} of "
                    f"{each.partitions[0]} at {each.t_ms} ms"
                )
            position[key] = each.offset


def nothing_unseen(history: list[Happened]) -> Iterable[str]:
    """INV-59: every record below a committed offset was processed."""
    done: dict[str, set[int]] = {}
    for each in history:
        if each.what == "act":
            done.setdefault(each.partitions[0], set()).add(each.offset)
        if each.what == "committed":
            for partition, offset in each.offsets.items():
                missing = set(range(offset)) - done.get(partition, set())
                if missing:
                    yield (
                        f"INV-59: {each.member} committed {offset} of {partition} at {each.t_ms} "
                        f"ms, and nobody has processed {min(missing)}"
                    )


def commit_within_position(history: list[Happened]) -> Iterable[str]:
    """INV-25: a member commits only records that it has processed, of each time that it held."""
    position: dict[tuple[str, str], int] = {}
    for each in history:
        if each.what in ("revoked", "lost"):  # who gets it again begins where others have come to
            for partition in each.partitions:
                position.pop((each.member, partition), None)
        if each.what == "act":
            position[(each.member, each.partitions[0])] = each.offset + 1
        if each.what == "commit":
            for partition, offset in each.offsets.items():
                # Records whose processing the fence stopped were returned by poll all the same.
                if offset > position.get((each.member, partition), offset) + 1:
                    yield f"INV-25: {each.member} commits {offset} of {partition} at {each.t_ms} ms"


def duplicates_have_reasons(history: list[Happened]) -> Iterable[str]:
    """INV-60: a record is processed twice only if its first owner lost it or died uncommitted.

    A suspended member learns of its loss when it wakes, perhaps after the second time. A member
    that seeks back, or whose offset is deleted, reads the records after that again.
    """
    unclean: dict[str, int] = {}
    rewound: dict[str, list[Happened]] = {}
    for each in history:
        if each.what in ("lost", "ended", "commit_failed"):
            unclean[each.member] = each.t_ms
        elif each.what == "rewound":
            for partition in each.partitions:
                rewound.setdefault(partition, []).append(each)
    by_record: dict[tuple[str, int], Happened] = {}
    for each in history:
        if each.what == "act":
            key = (each.partitions[0], each.offset)
            before = by_record.get(key)
            is_wanted = before is not None and any(
                before.t_ms <= back.t_ms <= each.t_ms and back.offset <= each.offset
                for back in rewound.get(key[0], ())
            )
            is_clean = before is not None and unclean.get(before.member, -1) < before.t_ms
            if before is not None and is_clean and not is_wanted:
                yield (
                    f"INV-60: {each.member} processes {key[0]} {key[1]} at {each.t_ms} ms again, "
                    f"and {before.member} has lost nothing since it did at {before.t_ms} ms"
                )
            by_record[key] = each


def generations_rise(history: list[Happened]) -> Iterable[str]:
    """Nonmonotonic poll: no member's generation goes back while it lives.

    A group that was deleted begins anew with its next member.
    """
    newest: dict[str, int] = {}
    for each in history:
        if each.what == "deleted":
            newest.clear()
        if each.what == "act":
            if each.generation < newest.get(each.member, -1):
                yield f"{each.member} went back to generation {each.generation} at {each.t_ms} ms"
            newest[each.member] = each.generation


CHECKERS: tuple[Checker, ...] = (
    one_owner,
    fence_rises,
    no_skip,
    nothing_unseen,
    commit_within_position,
    duplicates_have_reasons,
    generations_rise,
)


def _by_partition(history: list[Happened]) -> dict[str, list[Happened]]:
    found: dict[str, list[Happened]] = {}
    for each in history:
        if each.what == "act":
            found.setdefault(each.partitions[0], []).append(each)
    return found

"""Checks over a history of members, from a simulated run or from a real one.

Each names the promise that was broken, the member that broke it, and the time. Jepsen's anomalies
for Kafka are the model: two owners, lost writes, going backwards, skipping.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final

from coordlib.checking import atomicity, stores
from coordlib.checking.history import AT_MOST_ONCE, Happened

Checker = Callable[[list[Happened]], Iterable[str]]


def check(history: list[Happened]) -> list[str]:
    """All violations, in words; none for a history that keeps every promise.

    Groups are checked one by one, though they may read the same partitions. Transactions are
    checked all together, since one may have offsets of several groups.
    """
    others = [each for each in history if not atomicity.is_of_transactions(each)]
    return atomicity.check(history) + [
        sentence
        for lines in _by_group(others)
        for checker in (AT_MOST_ONCE_CHECKERS if is_at_most_once(lines) else CHECKERS)
        for sentence in checker(lines)
    ]


def is_at_most_once(history: list[Happened]) -> bool:
    """Whether the members of a group consume at most once: all do, or none."""
    return any(each.delivery == AT_MOST_ONCE for each in history)


def never_handed_out(history: list[Happened]) -> int | None:
    """Of delivery at most once: how many records below the newest positions nobody was given.

    None: no group of this history consumes so. Logs are counted from their first record on, up to
    what was committed, or handed out last.
    """
    groups = [lines for lines in _by_group(history) if is_at_most_once(lines)]
    return sum(map(_never_handed_out, groups)) if groups else None


def _never_handed_out(history: list[Happened]) -> int:
    given: dict[str, set[int]] = {}
    ends: dict[str, int] = {}
    for each in history:
        for partition, offset in each.offsets.items() if each.what == "committed" else ():
            ends[partition] = max(offset, ends.get(partition, 0))
        if each.what in _GIVEN:
            given.setdefault(each.partitions[0], set()).add(each.offset)
    for partition, offsets in given.items():
        ends[partition] = max(max(offsets) + 1, ends.get(partition, 0))
    return sum(end - len(given.get(partition, ())) for partition, end in ends.items())


def _by_group(history: list[Happened]) -> list[list[Happened]]:
    """Each group's lines, with those of no group among them."""
    groups = sorted({each.group for each in history if each.group})
    if len(groups) <= 1:
        return [history]
    return [[each for each in history if each.group in ("", group)] for group in groups]


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


def handed_out_once(history: list[Happened]) -> Iterable[str]:
    """INV-63: at most once, no record is handed out twice, or processed twice.

    Where positions are set back on purpose, the records behind them may be again.
    """
    given: dict[tuple[str, str, int], Happened] = {}
    for each in history:
        if each.what == "rewound":
            given = {
                key: before
                for key, before in given.items()
                if key[1] not in each.partitions or key[2] < each.offset
            }
        if each.what not in _GIVEN:
            continue
        key = (each.what, each.partitions[0], each.offset)
        before = given.setdefault(key, each)
        if before is not each:
            yield (
                f"INV-63: {each.member} has {each.what.replace('_', ' ')} {key[1]} {key[2]} at "
                f"{each.t_ms} ms, as {before.member} had at {before.t_ms} ms"
            )


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


#: Lines that give a record to a member.
_GIVEN: Final = ("handed_out", "act")
CHECKERS: tuple[Checker, ...] = (
    one_owner,
    fence_rises,
    no_skip,
    nothing_unseen,
    commit_within_position,
    duplicates_have_reasons,
    generations_rise,
    stores.one_leader,
    stores.epochs_have_one_leader,
    stores.nothing_stale,
    stores.values_are_what_was_put,
    stores.acknowledged_by_a_leader,
    stores.rows_are_sound,
)
#: A record may be skipped, and is behind its position before it is processed.
AT_MOST_ONCE_CHECKERS: tuple[Checker, ...] = (one_owner, fence_rises, handed_out_once)


def _by_partition(history: list[Happened]) -> dict[str, list[Happened]]:
    found: dict[str, list[Happened]] = {}
    for each in history:
        if each.what == "act":
            found.setdefault(each.partitions[0], []).append(each)
    return found

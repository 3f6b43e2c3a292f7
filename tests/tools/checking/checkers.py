"""Checks over a whole history: of members that consume at least once, as the demo's are checked,
or at most once; of stores with replicas; of transactions."""

from collections.abc import Iterable
from typing import Final

from coordlib.demo import checkers as of_members
from coordlib.demo.checkers import Checker
from coordlib.demo.history import AT_MOST_ONCE, Happened
from tests.tools.checking import atomicity, stores


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


#: Lines that give a record to a member.
_GIVEN: Final = ("handed_out", "act")
CHECKERS: tuple[Checker, ...] = (
    *of_members.CHECKERS,
    stores.one_leader,
    stores.epochs_have_one_leader,
    stores.nothing_stale,
    stores.values_are_what_was_put,
    stores.acknowledged_by_a_leader,
    stores.rows_are_sound,
)
#: A record may be skipped, and is behind its position before it is processed.
AT_MOST_ONCE_CHECKERS: tuple[Checker, ...] = (
    of_members.one_owner,
    of_members.fence_rises,
    handed_out_once,
)

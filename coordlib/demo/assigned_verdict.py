"""Whether the promises of a server-assigned group hold, of which some members are Spark. Pure.

Members do not wait for each other there, so generations prove little. The checks go by each
partition's tenures, one after another, each with a fencing token of its own.
"""

from collections.abc import Iterator
from itertools import groupby, pairwise

from coordlib.demo.verdict import (
    Check,
    Facts,
    committed_by,
    committed_to_the_end,
    every_record_consumed,
    readers_in_turn,
    without_doubles,
)
from coordlib.demo.witness import Consumed
from coordlib.history.views.groups import Tenure


def judge(facts: Facts) -> list[Check]:
    """All promises, in the order in which they are printed."""
    return [
        every_record_consumed(facts),
        duplicates_only_uncommitted(facts),
        one_owner_at_a_time(facts),
        none_after_its_successor(facts),
        committed_to_the_end(facts),
    ]


def last_commits(facts: Facts) -> dict[int, int]:
    """Partition that the killed member had at the end -> next offset to read, as committed by the
    end of the member's last generation."""
    last = max((g.number for g in facts.generations if facts.killed in g.members), default=-1)
    return {each.partition: committed_by(facts, each.partition, last) for each in _at_end(facts)}


def duplicates_only_uncommitted(facts: Facts) -> Check:
    """Duplicates are only the killed member's uncommitted records, and records of batches that did
    not end."""
    last = last_commits(facts)
    fences = {each.partition: each.fence for each in _at_end(facts)}

    def is_forgiven(each: Consumed) -> bool:
        by_killed = (each.member, each.fence) == (facts.killed, fences.get(each.partition))
        return by_killed and each.offset >= last[each.partition]

    what = (
        f"Duplicates only above the last commit of {facts.killed}, on its partitions, and of "
        f"batches that had not ended"
    )
    of_others = [each for each in facts.unfinished if not is_forgiven(each)]
    check = without_doubles(what, facts, is_forgiven, last, of_others)
    numbers = f"{check.numbers}; {len(of_others):,} readings by others in such batches"
    return Check(what, numbers, check.offences)


def one_owner_at_a_time(facts: Facts) -> Check:
    """Tenures of a partition do not overlap, and each has a higher fence than the one before."""
    offences: list[str] = []
    count = 0
    for partition, tenures in _by_partition(facts):
        count += len(tenures)
        for before, after in pairwise(tenures):
            if before.until is None or after.since < before.until:
                until = "the end" if before.until is None else before.until.isoformat()
                offences.append(
                    f"partition {partition}: {after.member} from {after.since.isoformat()}, "
                    f"{before.member} until {until}"
                )
            if after.fence <= before.fence:
                offences.append(
                    f"partition {partition}: {after.member} with fence {after.fence} after "
                    f"{before.member} with {before.fence}"
                )
    owned = {each.partition for each in facts.tenures}
    offences += [f"partition {each}: no owner" for each in facts.partitions if each not in owned]
    what = "One owner at a time for each partition, each with a higher fence than the one before"
    return Check(what, f"{count} tenures of {len(owned)} partitions", tuple(offences))


def none_after_its_successor(facts: Facts) -> Check:
    """Each reading has a fencing token of its reader's, by Delta; none comes after a higher one."""
    given = {(each.member, each.fence, each.partition) for each in facts.tenures}
    return readers_in_turn(
        *("No member read a partition after its successor began", facts, "with fence"),
        turn_of=lambda each: each.fence,
        is_its=lambda each: (each.member, each.fence, each.partition) in given,
    )


def _at_end(facts: Facts) -> list[Tenure]:
    """The killed member's partitions when it was removed."""
    its = [each for each in facts.tenures if each.member == facts.killed and each.until is not None]
    end = max((each.until for each in its if each.until is not None), default=None)
    return [each for each in its if each.until == end]


def _by_partition(facts: Facts) -> Iterator[tuple[int, list[Tenure]]]:
    """Tenures by partition, in the order of time."""
    found = sorted(facts.tenures, key=lambda each: (each.partition, each.since, each.fence))
    for partition, some in groupby(found, key=lambda each: each.partition):
        yield partition, list(some)

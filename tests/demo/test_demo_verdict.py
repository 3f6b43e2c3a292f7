"""The verdict must find what is wrong: histories that are right but for one thing."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordlib.demo.verdict import (
    Check,
    Commit,
    Facts,
    Generation,
    Owner,
    committed_to_the_end,
    duplicates_only_from_the_killed,
    every_record_consumed,
    judge,
    last_commits,
    one_owner,
    only_owners_read,
)
from coordlib.demo.witness import Consumed

START = datetime(2026, 3, 1, tzinfo=UTC)
#: Ten records in each of two partitions; number = 10 * partition + offset.
PLACED = {
    10 * partition + offset: (partition, offset) for partition in (0, 1) for offset in range(10)
}


def consumed(
    member: str, generation: int, partition: int, *offsets: int, at: int
) -> list[Consumed]:
    return [
        Consumed(member, partition, offset, 10 * partition + offset, generation, at + offset)
        for offset in offsets
    ]


def a_good_run() -> Facts:
    """a and b share the partitions; b is killed at offset 6 with 4 committed; a goes on alone,
    and hands partition 1 cleanly to c."""
    return Facts(
        records=20,
        placed=PLACED,
        consumed=[
            *consumed("a", 1, 0, *range(5), at=100),
            *consumed("b", 1, 1, *range(7), at=100),
            *consumed("a", 2, 0, *range(5, 8), at=200),
            *consumed("a", 2, 1, *range(4, 9), at=200),
            *consumed("a", 3, 0, 8, 9, at=300),
            *consumed("c", 3, 1, 9, at=300),
        ],
        generations=[
            Generation(1, START, "member joined", 0, ("a", "b")),
            Generation(2, START + timedelta(seconds=10), "session expired", 0, ("a",)),
            Generation(3, START + timedelta(seconds=20), "member joined", 0, ("a", "c")),
            Generation(4, START + timedelta(seconds=30), "group emptied: member left", None, ()),
        ],
        owners=[
            *(Owner(1, 0, "a"), Owner(1, 1, "b")),
            *(Owner(2, 0, "a"), Owner(2, 1, "a")),
            *(Owner(3, 0, "a"), Owner(3, 1, "c")),
        ],
        commits=[
            *(Commit(1, 0, 5, "a"), Commit(1, 1, 2, "b"), Commit(1, 1, 4, "b")),
            *(Commit(2, 0, 8, "a"), Commit(2, 1, 9, "a")),
            *(Commit(3, 0, 10, "a"), Commit(3, 1, 10, "c")),
        ],
        committed={0: 10, 1: 10},
        committed_in_history={0: 10, 1: 10},
        log_ends={0: 10, 1: 10},
        killed="b",
    )


def with_readings(*more: Consumed) -> Facts:
    facts = a_good_run()
    return replace(facts, consumed=[*facts.consumed, *more])


def offences_of(
    facts: Facts,
    judged: Callable[[Facts], list[Check]],
    *its_own: Callable[[Facts], Check],
) -> dict[str, tuple[str, ...]]:
    """Names of the checks that fail, with their offences; they must be all that are judged.

    Args:
        its_own: what one act has checks of its own for: duplicates, owners, readers.
    """
    checks = (every_record_consumed, *its_own, committed_to_the_end)
    names = ("consumed", "duplicates", "owner", "readers", "committed")
    found = {name: check(facts) for name, check in zip(names, checks, strict=True)}
    assert list(found.values()) == judged(facts)
    return {name: check.offences for name, check in found.items() if not check.is_ok}


def failing(facts: Facts) -> dict[str, tuple[str, ...]]:
    its_own = (duplicates_only_from_the_killed, one_owner, only_owners_read)
    return offences_of(facts, judge, *its_own)


def test_a_good_run_passes_and_its_numbers_are_told() -> None:
    facts = a_good_run()

    assert failing(facts) == {}
    assert last_commits(facts) == {1: 4}
    told = [check.numbers for check in judge(facts)]
    assert told[0] == "20 of 20 records, read 23 times"
    assert told[1] == "b owned 1; 3 records that it had not committed were read again: 3 on 1"
    assert told[2] == "3 generations of 2 partitions"


def test_a_lost_record_fails() -> None:
    """The successor began one too far."""
    facts = a_good_run()
    facts = replace(facts, consumed=[each for each in facts.consumed if each.number != 18])

    assert failing(facts) == {"consumed": ("record 18 was never consumed at partition 1 offset 8",)}


def test_a_record_that_was_never_acknowledged_fails() -> None:
    facts = a_good_run()
    placed = {number: place for number, place in PLACED.items() if number != 3}

    assert failing(replace(facts, placed=placed)) == {
        "consumed": (
            "record 3 was not acknowledged",
            "a read record 3 at partition 0 offset 3, where it was not written",
        )
    }


def test_a_duplicate_below_the_last_commit_fails() -> None:
    """The successor began one too early: offset 3 was committed by the dead member."""
    facts = with_readings(*consumed("a", 2, 1, 3, at=200))

    assert failing(facts) == {
        "duplicates": (
            "partition 1 offset 3 was read by b (generation 1) and a (generation 2); "
            "the last commit was 4",
        )
    }


def test_a_commit_of_an_earlier_owner_counts_as_the_last_one() -> None:
    """The killed member had not committed yet; what its predecessor committed is not read again."""
    facts = a_good_run()
    shifted = [replace(each, generation=each.generation + 1) for each in facts.consumed]
    owners = [replace(each, generation=each.generation + 1) for each in facts.owners]
    before = [Owner(1, 0, "b"), Owner(1, 1, "a")]
    later = [replace(c, generation=c.generation + 1) for c in facts.commits if c.member != "b"]
    commits = [Commit(1, 1, 4, "a"), *later]
    facts = replace(facts, consumed=shifted, owners=[*before, *owners], commits=commits)

    assert last_commits(facts) == {1: 4}
    assert "duplicates" not in failing(facts)


def test_a_duplicate_on_a_partition_that_the_killed_did_not_own_fails() -> None:
    """A hand-over between living members lost the commit."""
    facts = with_readings(*consumed("a", 2, 0, 4, at=190))

    assert failing(facts) == {
        "duplicates": (
            "partition 0 offset 4 was read by a (generation 1) and a (generation 2); "
            "b did not own this partition",
        )
    }


def test_a_duplicate_of_two_living_members_fails_also_above_the_last_commit() -> None:
    """a handed partition 1 to c, which read offset 8 once more: nobody died there."""
    facts = with_readings(*consumed("c", 3, 1, 8, at=300))

    (offence,) = failing(facts)["duplicates"]
    assert offence.startswith("partition 1 offset 8 was read by a (generation 2) and c")


def test_a_record_that_the_killed_read_twice_itself_fails() -> None:
    facts = with_readings(*consumed("b", 1, 1, 6, at=101))

    assert list(failing(facts)) == ["duplicates"]


def test_two_owners_in_one_generation_fail() -> None:
    facts = a_good_run()
    facts = replace(facts, owners=[*facts.owners, Owner(2, 0, "c")])

    assert failing(facts) == {"owner": ("generation 2, partition 0: a and c",)}


def test_a_partition_without_owner_fails() -> None:
    facts = a_good_run()
    left = [owner for owner in facts.owners if owner != Owner(3, 1, "c")]

    assert failing(replace(facts, owners=left)) == {
        "owner": ("generation 3, partition 1: no owner",),
        "readers": ("c in generation 3 read partition 1 offset 9 without owning the partition",),
    }


def test_a_generation_that_was_superseded_before_it_was_divided_is_told_not_blamed() -> None:
    """A second member joined before the first had divided anything."""
    facts = a_good_run()
    early = Generation(0, START, "member joined", 0, ("a",))
    facts = replace(facts, generations=[early, *facts.generations])

    assert failing(facts) == {}
    assert "superseded before they were assigned: 0" in one_owner(facts).numbers


def test_an_empty_history_fails() -> None:
    """The archive wrote nothing: no check may pass for want of rows."""
    facts = replace(a_good_run(), generations=[], owners=[], commits=[], committed_in_history={})

    assert set(failing(facts)) == {"duplicates", "owner", "readers", "committed"}


def test_reading_on_after_the_successor_began_fails() -> None:
    """A member that was paused, and went on with what it had fetched."""
    facts = with_readings(*consumed("b", 1, 1, 6, at=900))

    assert (
        "b in generation 1 read partition 1 offset 6 after c had begun in generation 3"
        in (failing(facts)["readers"])
    )


@pytest.mark.parametrize(
    ("change", "offence"),
    [
        ({"committed": {0: 10, 1: 9}}, "partition 1: committed 9, in Delta 10, log end 10"),
        ({"committed": {0: 10}}, "partition 1: committed nothing, in Delta 10, log end 10"),
        (
            {"committed_in_history": {0: 10, 1: 8}},
            "partition 1: committed 10, in Delta 8, log end 10",
        ),
        (
            {"log_ends": {0: 10, 1: 11}},
            "partition 1: committed 10, in Delta 10, log end 11",
        ),
    ],
)
def test_a_committed_offset_that_is_not_the_log_end_fails(
    change: dict[str, Any], offence: str
) -> None:
    assert failing(replace(a_good_run(), **change))["committed"][0] == offence


def test_a_record_that_was_written_twice_fails() -> None:
    """Everything is committed to the end, but the logs hold more than was produced."""
    ends = {0: 10, 1: 11}
    facts = replace(a_good_run(), log_ends=ends, committed=ends, committed_in_history=ends)

    assert failing(facts)["committed"] == ("the logs hold 21 records, not 20",)

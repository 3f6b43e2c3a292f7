"""The verdict must find what is wrong: runs that are right but for one thing."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordlib.demo.history import Happened
from coordlib.demo.verdict import (
    Commit,
    Facts,
    Generation,
    Owner,
    judge,
    last_commits,
    last_commits_of_tenures,
)
from coordlib.demo.witness import Consumed
from coordlib.history.views.groups import Tenure

START = datetime(2026, 3, 1, tzinfo=UTC)
#: Ten records in each of two partitions; number = 10 * partition + offset.
PLACED = {
    10 * partition + offset: (partition, offset) for partition in (0, 1) for offset in range(10)
}
CHECKS = ("consumed", "owner", "skipped", "again", "committed")


def consumed(
    member: str, generation: int, partition: int, *offsets: int, at: int
) -> list[Consumed]:
    """The generation is the fence, too."""
    number = 10 * partition
    return [
        Consumed(member, partition, each, number + each, generation, at + each, generation)
        for each in offsets
    ]


def recorded(readings: Sequence[Consumed]) -> list[Happened]:
    """As the members wrote it down; b is killed at 150, and all is committed at 390."""
    acts = [
        Happened(
            each.at_ns,
            "act",
            each.member,
            "g",
            (f"t-{each.partition}",),
            each.offset,
            each.generation,
            each.fence,
        )
        for each in readings
    ]
    killed = Happened(150, "ended", "b", "g", detail="killed")
    ends = Happened(390, "committed", "a", "g", offsets={"t-0": 10, "t-1": 10})
    return sorted([*acts, killed, ends], key=lambda each: each.t_ms)


def a_good_run() -> Facts:
    """a and b share the partitions; b is killed at offset 6 with 4 committed; a goes on alone,
    and hands partition 1 cleanly to c."""
    readings = [
        *consumed("a", 1, 0, *range(5), at=100),
        *consumed("b", 1, 1, *range(7), at=100),
        *consumed("a", 2, 0, *range(5, 8), at=200),
        *consumed("a", 2, 1, *range(4, 9), at=200),
        *consumed("a", 3, 0, 8, 9, at=300),
        *consumed("c", 3, 1, 9, at=300),
    ]
    return Facts(
        records=20,
        placed=PLACED,
        consumed=readings,
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
        history=recorded(readings),
    )


def of_readings(readings: Sequence[Consumed]) -> Facts:
    return replace(a_good_run(), consumed=readings, history=recorded(readings))


def with_readings(*more: Consumed) -> Facts:
    return of_readings([*a_good_run().consumed, *more])


def failing(facts: Facts) -> dict[str, tuple[str, ...]]:
    """Names of the checks that fail, with their offences."""
    checks = dict(zip(CHECKS, judge(facts, last_commits(facts)), strict=True))
    return {name: check.offences for name, check in checks.items() if not check.is_ok}


def test_a_good_run_passes_and_its_numbers_are_told() -> None:
    facts = a_good_run()

    assert failing(facts) == {}
    assert last_commits(facts) == {1: 4}
    told = [check.numbers for check in judge(facts, last_commits(facts))]
    assert told[0] == "20 of 20 records, read 23 times"
    assert told[1] == "23 readings in 6 tenures"
    assert told[3] == "b owned 1; 3 records were read again: 3 on 1"


def test_a_lost_record_fails() -> None:
    """The successor began one too far."""
    facts = of_readings([each for each in a_good_run().consumed if each.number != 18])

    found = failing(facts)
    assert found["consumed"] == ("record 18 was never consumed at partition 1 offset 8",)
    (offence,) = found["skipped"]
    assert offence.startswith("INV-59")
    assert len(found) == 2


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
        "again": ("partition 1 offset 3 was read again, and b had committed 4",)
    }


def test_a_commit_of_an_earlier_owner_counts_as_the_last_one() -> None:
    """The killed member had not committed yet; what its predecessor committed is not read again."""
    facts = a_good_run()
    owners = [replace(each, generation=each.generation + 1) for each in facts.owners]
    before = [Owner(1, 0, "b"), Owner(1, 1, "a")]
    later = [replace(c, generation=c.generation + 1) for c in facts.commits if c.member != "b"]
    commits = [Commit(1, 1, 4, "a"), *later]

    assert last_commits(replace(facts, owners=[*before, *owners], commits=commits)) == {1: 4}


def test_a_commit_after_the_killed_was_put_out_is_not_its_last_one() -> None:
    """In a server-assigned group, where partitions move one by one: by its tenures at its end."""

    def tenure(member: str, fence: int, since: int, until: int | None) -> Tenure:
        end = None if until is None else START + timedelta(seconds=until)
        return Tenure("t", 1, member, 1, fence, START + timedelta(seconds=since), end)

    tenures = [tenure("a", 1, 0, 5), tenure("b", 2, 5, 10), tenure("a", 3, 10, None)]
    facts = replace(a_good_run(), tenures=tenures)

    assert last_commits_of_tenures(facts) == {1: 4}
    everywhere = [replace(each, members=("a", "b")) for each in facts.generations]
    assert last_commits_of_tenures(replace(facts, generations=everywhere)) == {1: 10}


def test_a_duplicate_of_two_living_members_fails() -> None:
    """a handed partition 1 to c, which read offset 8 once more: nobody died there."""
    (offence,) = failing(with_readings(*consumed("c", 3, 1, 8, at=300)))["again"]

    assert offence.startswith("INV-60: c processes t-1 8")


def test_reading_on_after_the_successor_began_fails() -> None:
    """A member that was paused, and went on with what it had fetched."""
    offences = failing(with_readings(*consumed("b", 1, 1, 7, at=900)))["owner"]

    assert any("INV-57: b acts on t-1" in each for each in offences)
    assert any("INV-20: b acts on t-1" in each for each in offences)


def test_what_an_owner_skips_fails() -> None:
    """It read 5 and then 7; somebody else has read 6 before."""
    readings = [e for e in a_good_run().consumed if (e.member, e.number) != ("a", 16)]

    (offence,) = failing(of_readings(readings))["skipped"]
    assert offence.startswith("INV-58: a goes from 5 to 7 of t-1")


def test_an_empty_history_fails() -> None:
    """The archive wrote nothing, or no member did: no check may pass for want of rows."""
    facts = replace(a_good_run(), generations=[], owners=[], commits=[], committed_in_history={})
    assert set(failing(facts)) == {"committed"}

    assert set(failing(replace(facts, consumed=[], history=[]))) == {
        "consumed",
        "owner",
        "committed",
    }


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

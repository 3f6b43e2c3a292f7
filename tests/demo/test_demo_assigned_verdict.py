"""The verdict of `assigned` must find what is wrong: histories that are right but for one thing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coordlib.demo.assigned_verdict import (
    duplicates_only_uncommitted,
    judge,
    last_commits,
    none_after_its_successor,
    one_owner_at_a_time,
)
from coordlib.demo.verdict import (
    Commit,
    Facts,
    Generation,
)
from coordlib.demo.witness import Consumed, Witness, WitnessFile, unfinished
from coordlib.history.views.groups import Tenure
from tests.demo.test_demo_verdict import PLACED, offences_of


def at(seconds: int) -> datetime:
    return datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def consumed(member: str, fence: int, partition: int, *offsets: int, at: int) -> list[Consumed]:
    return [
        Consumed(member, partition, offset, 10 * partition + offset, 1, at + offset, fence, 0)
        for offset in offsets
    ]


def a_good_run() -> Facts:
    """p has both partitions and gives the second to query q, which commits 4 and is killed after
    offset 6; p takes it over. Before, p's own query was cut short after offset 2 of the first."""
    cut_short = consumed("p", 10, 0, 2, at=50)
    return Facts(
        records=20,
        placed=PLACED,
        consumed=[
            *consumed("p", 10, 0, 0, 1, at=50),
            *cut_short,
            *consumed("p", 10, 1, 0, 1, at=60),
            *consumed("p", 10, 0, *range(2, 10), at=100),
            *consumed("q", 20, 1, *range(2, 7), at=100),
            *consumed("p", 30, 1, *range(4, 10), at=300),
        ],
        generations=[
            Generation(1, at(1), "member joined", None, ("p",)),
            Generation(2, at(2), "member joined", 400, ("p", "q")),
            Generation(3, at(20), "session expired", None, ("p",)),
        ],
        owners=[],
        commits=[
            *(Commit(1, 0, 2, "p"), Commit(2, 1, 2, "p"), Commit(2, 1, 4, "q")),
            *(Commit(3, 0, 10, "p"), Commit(3, 1, 10, "p")),
        ],
        committed={0: 10, 1: 10},
        committed_in_history={0: 10, 1: 10},
        log_ends={0: 10, 1: 10},
        killed="q",
        tenures=[
            Tenure("t", 0, "p", 1, 10, at(1), None),
            Tenure("t", 1, "p", 1, 10, at(1), at(3)),
            Tenure("t", 1, "q", 2, 20, at(3), at(20)),
            Tenure("t", 1, "p", 3, 30, at(20), None),
        ],
        unfinished=cut_short,
    )


def with_readings(*more: Consumed) -> Facts:
    facts = a_good_run()
    return replace(facts, consumed=[*facts.consumed, *more])


def failing(facts: Facts) -> dict[str, tuple[str, ...]]:
    its_own = (duplicates_only_uncommitted, one_owner_at_a_time, none_after_its_successor)
    return offences_of(facts, judge, *its_own)


def test_a_good_run_passes_and_its_numbers_are_told() -> None:
    facts = a_good_run()

    assert failing(facts) == {}
    assert last_commits(facts) == {1: 4}
    told = [check.numbers for check in judge(facts)]
    assert told[0] == "20 of 20 records, read 24 times"
    assert told[1] == (
        "q owned 1; 3 records that it had not committed were read again: 3 on 1; "
        "1 readings by others in such batches"
    )
    assert told[2] == "4 tenures of 2 partitions"
    assert told[3] == "24 readings"


def test_a_lost_record_fails() -> None:
    facts = a_good_run()
    facts = replace(facts, consumed=[each for each in facts.consumed if each.number != 19])

    assert failing(facts) == {"consumed": ("record 19 was never consumed at partition 1 offset 9",)}


def test_a_duplicate_below_the_last_commit_fails() -> None:
    """The successor began one too early: offset 3 was committed by the dead query."""
    facts = with_readings(*consumed("p", 30, 1, 3, at=300))

    (offence,) = failing(facts)["duplicates"]
    assert offence.startswith("partition 1 offset 3 was read by q")
    assert offence.endswith("the last commit was 4")


def test_a_duplicate_of_a_batch_that_had_ended_fails() -> None:
    """A query was stopped between batches and did not commit what it had finished."""
    facts = replace(a_good_run(), unfinished=[])

    (offence,) = failing(facts)["duplicates"]
    assert offence.startswith("partition 0 offset 2 was read by p (generation 1) and p")
    assert "q did not own this partition" in offence


def test_a_duplicate_on_what_the_killed_had_given_away_before_fails() -> None:
    """q had the partition once more, earlier, and let go of it: that hand-over lost the commit."""
    facts = a_good_run()
    before = Tenure("t", 0, "q", 1, 8, at(0), at(1))
    facts = replace(
        facts,
        tenures=[before, *facts.tenures],
        consumed=[*consumed("q", 8, 0, 1, at=10), *facts.consumed],
    )

    assert list(failing(facts)) == ["duplicates"]


def test_a_commit_after_the_killed_was_put_out_is_not_its_last_one() -> None:
    """p's commits come later, in a generation without q; else everything would be a duplicate."""
    facts = a_good_run()
    everywhere = [replace(each, members=("p", "q")) for each in facts.generations]

    assert last_commits(replace(facts, generations=everywhere)) == {1: 10}
    assert "duplicates" in failing(replace(facts, generations=everywhere))


def test_tenures_that_overlap_fail() -> None:
    """The successor was given the partition one second before its owner was out."""
    facts = a_good_run()
    early = replace(facts.tenures[3], since=at(19))

    assert failing(replace(facts, tenures=[*facts.tenures[:3], early])) == {
        "owner": (
            "partition 1: p from 2026-03-01T00:00:19+00:00, q until 2026-03-01T00:00:20+00:00",
        )
    }


def test_an_owner_who_is_not_out_when_the_next_one_begins_fails() -> None:
    facts = a_good_run()
    still = replace(facts.tenures[1], until=None)
    tenures = [facts.tenures[0], still, *facts.tenures[2:]]

    (offence,) = failing(replace(facts, tenures=tenures))["owner"]
    assert offence.endswith("p until the end")


@pytest.mark.parametrize("fence", [20, 15])
def test_a_fence_that_does_not_rise_fails(fence: int) -> None:
    """A store that takes only newer tokens would refuse the new owner, or take both."""
    facts = a_good_run()
    low = replace(facts.tenures[3], fence=fence)
    facts = replace(
        facts,
        tenures=[*facts.tenures[:3], low],
        consumed=[replace(c, fence=fence) if c.fence == 30 else c for c in facts.consumed],
    )

    assert f"partition 1: p with fence {fence} after q with 20" in failing(facts)["owner"]


def test_a_partition_that_nobody_was_given_fails() -> None:
    facts = a_good_run()
    offences = failing(replace(facts, tenures=facts.tenures[1:]))

    assert offences["owner"] == ("partition 0: no owner",)
    assert offences["readers"][0] == (
        "p with fence 10 read partition 0 offset 0 without owning the partition"
    )


def test_reading_on_after_the_successor_began_fails() -> None:
    """foreachBatch went on in a driver that was suspended, and came back."""
    facts = with_readings(*consumed("q", 20, 1, 6, at=900))

    assert (
        "q with fence 20 read partition 1 offset 6 after p had begun with fence 30"
        in failing(facts)["readers"]
    )


def test_reading_under_another_ones_fence_fails() -> None:
    facts = with_readings(*consumed("q", 30, 1, 9, at=900))

    assert (
        "q with fence 30 read partition 1 offset 9 without owning the partition"
        in failing(facts)["readers"]
    )


def test_a_committed_offset_that_is_not_the_log_end_fails() -> None:
    facts = replace(a_good_run(), committed_in_history={0: 10, 1: 9})

    assert failing(facts)["committed"] == ("partition 1: committed 10, in Delta 9, log end 10",)


def test_an_empty_history_fails() -> None:
    """The archive wrote nothing: no check may pass for want of rows."""
    empty = replace(a_good_run(), generations=[], commits=[], committed_in_history={}, tenures=[])

    assert set(failing(empty)) == {"duplicates", "owner", "readers", "committed"}


# ---- what a query writes down ---------------------------------------------------------------


def test_a_batch_is_unfinished_until_spark_says_that_it_has_ended(tmp_path: Path) -> None:
    """Two batches; the second did not end, and the next run read the same again, and ended."""
    file = WitnessFile(tmp_path / "q.txt")
    file.assigned_by_fence(1, {0: 10, 1: 12})
    file.began(0)
    for offset in range(4):
        file.record(0, offset, offset)
        if offset == 1:
            file.finished(0, {0: 2, 1: 0})
    file.began(1)
    for offset in (2, 3):
        file.record(0, offset, offset)
    file.finished(1, {0: 4, 1: 0})
    witness = Witness("q", tmp_path / "q.txt")
    witness.read_on()

    assert [(each.run, each.offset) for each in unfinished(witness)] == [(0, 2), (0, 3)]


def test_what_a_consumer_reads_is_never_in_a_batch(tmp_path: Path) -> None:
    file = WitnessFile(tmp_path / "m.txt")
    file.assigned_by_fence(1, {0: 10})
    file.record(0, 0, 0)
    witness = Witness("m", tmp_path / "m.txt")
    witness.read_on()

    assert unfinished(witness) == []


def test_partitions_come_and_go_one_by_one_each_with_its_fence(tmp_path: Path) -> None:
    """Where the coordinator divides, nothing else is touched."""
    file = WitnessFile(tmp_path / "m.txt")
    file.assigned_by_fence(1, {0: 10, 1: 12, 2: 10})
    file.revoked([2])
    file.assigned_by_fence(3, {5: 40})
    file.record(1, 7, 17)
    file.record(5, 9, 59)
    witness = Witness("m", tmp_path / "m.txt")
    witness.read_on()

    assert witness.partitions == (0, 1, 5)
    assert [(each.partition, each.fence) for each in witness.consumed] == [(1, 12), (5, 40)]

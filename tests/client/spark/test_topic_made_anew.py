"""INV-130. A topic is deleted and made anew under Spark readers of both ways to commit."""

from pathlib import Path

import pytest

from coordlib.client.groups.reading import LOOK_MS
from coordlib.client.kit.data import LAG_MS
from coordlib.client.spark.reader import SparkGroupReader
from coordlib.errors import CoordError
from coordlib.kafka.logs import Bounds
from tests.client.spark.test_writes import LakeReaders
from tests.client.spark.world import ReaderWorld


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ReaderWorld:
    return ReaderWorld(monkeypatch, tmp_path)


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LakeReaders:
    return LakeReaders(monkeypatch, tmp_path)


def named(world: ReaderWorld) -> set[str]:
    """The topics' ids in all commits of the reader."""
    rows = [getattr(each, "offsets", None) for each in world.requests if each.client == "spark"]
    return {str(row.topic_id) for some in rows for row in some or ()}


def end_of(reader: SparkGroupReader) -> None:
    """Wait, in real time, for the threads in which its queries are stopped."""
    for run in reader._queries._ending:
        while not run.is_over(60):
            pass


def test_offsets_are_committed_under_the_id_of_the_topic(world: ReaderWorld) -> None:
    world.read(commit_interval_s=1)
    world.query.end(t0=5)
    world.run(3_000)

    assert named(world) == {world.log.id_of("t")}


def test_a_running_query_ends_and_another_begins_at_the_new_topics_start(
    world: ReaderWorld,
) -> None:
    """No offset is out of range: the new topic is longer than what was read of the old one."""
    reader = world.read(commit_interval_s=1)
    world.query.end(t0=5, t1=5, t2=5, t3=5)
    world.run(3_000)
    old = world.query
    world.log.make_anew("t")
    old.begin()
    old.end(t0=8, t1=8, t2=8, t3=8)  # perhaps of the new topic
    world.run(LOOK_MS + 5_000)

    assert reader.runs == 2
    assert not old.isActive
    assert set(world.query.began.values()) == {0}
    assert all(8 not in commit.values() for commit in world.committed("spark"))

    world.query.end(t0=6, t1=6, t2=6, t3=6)
    world.run(LAG_MS + 5_000)
    assert reader.runs == 2
    assert world.committed("spark")[-1] == {0: 6, 1: 6, 2: 6, 3: 6}


def test_a_batch_that_goes_on_for_long_is_waited_for_and_not_committed(
    world: ReaderWorld,
) -> None:
    """It had begun just before, and took longer than others may wait for: the reader ended, with
    the advice to look what the batch waited for."""
    reader = world.read(commit_interval_s=1, batch_timeout_s=1)
    world.query.end(t0=5, t1=5, t2=5, t3=5)
    world.run(3_000)
    old = world.query
    world.log.make_anew("t")
    old.begin()
    old.hangs_until.clear()
    try:
        world.run(LOOK_MS + 30_000)
        assert reader.runs == 1
        assert not old.share.may_work()
    finally:
        old.hangs_until.set()
        end_of(reader)
    world.run(5_000)

    assert reader.runs == 2
    assert set(world.query.began.values()) == {0}
    assert all(max(commit.values()) <= 5 for commit in world.committed("spark"))


def test_who_is_given_its_partitions_waits_for_the_batch_of_before(world: ReaderWorld) -> None:
    """Its foreachBatch may write where nobody fences it: as for a query that runs, the Release is
    sent when the batch has ended, or the time for it is over."""
    reader = world.read(commit_interval_s=1, batch_timeout_s=3)
    old = world.query
    old.end(t0=5, t1=5, t2=5, t3=5)
    world.run(3_000)
    world.log.make_anew("t")
    old.begin()
    old.hangs_until.clear()
    waits: list[float] = []
    world.run(LOOK_MS + 2_000)
    (run,) = reader._queries._ending
    run.is_over = lambda timeout_s=0.0: bool(waits.append(timeout_s))  # type: ignore[method-assign]
    try:
        world.join("python")
        assert max(waits) == 3
    finally:
        del run.is_over
        old.hangs_until.set()
        end_of(reader)


def test_a_topic_that_was_away_begins_at_its_start(world: ReaderWorld) -> None:
    """The reader has seen it absent, and is told of it when it is back."""
    reader = world.read(commit_interval_s=1)
    world.query.end(t0=5, t1=5, t2=5, t3=5)
    world.run(3_000)
    world.bounds = {}
    world.log.make_anew("t")
    world.query.fail(ValueError("UnknownTopicOrPartitionException"))
    world.run(10_000)
    world.bounds = {each: Bounds(0, 1_000) for each in range(4)}
    world.run(10_000)

    assert reader.runs == 2
    assert set(world.query.began.values()) == {0}


def test_a_query_that_fails_with_the_new_topic_is_followed_by_another(world: ReaderWorld) -> None:
    reader = world.read()
    world.query.end(t0=5)
    world.log.make_anew("t")
    world.query.fail(ValueError("Some data may have been missed"))
    world.run(5_000)

    assert reader.runs == 2
    assert set(world.query.began.values()) == {0}


def test_a_batch_that_may_be_of_the_new_topic_is_thrown_away(lake: LakeReaders) -> None:
    """It is read by then: neither its rows nor its offsets are written."""
    reader = lake.read()
    old = lake.query
    old.begin()
    assert lake.write(old.share, t0=4) is None
    old.end(t0=5)
    old.begin()
    lake.log.make_anew("t")
    problem = lake.write(old.share, t0=7)
    assert isinstance(problem, CoordError)
    assert "created again" in problem.what
    old.fail(problem)
    lake.run(LOOK_MS)

    assert reader.runs == 2
    assert set(lake.query.began.values()) == {0}
    lake.query.begin()
    assert lake.write(lake.query.share, t0=2) is None
    lake.run(1_000)
    assert lake.lake.rows == [{"t0": 4}, {"t0": 2}]
    assert lake.committed_now == {0: 3}


def test_a_reader_that_starts_after_it_begins_at_the_new_topics_start(world: ReaderWorld) -> None:
    """Its first question names the group's offsets twice, and no listing has shown the new id."""
    first = world.read(commit_interval_s=1)
    world.query.end(t0=5, t1=5, t2=5, t3=5)
    world.run(3_000)
    world.stop(first)
    world.log.make_anew("t")

    world.read("spark-2")

    assert set(world.query.began.values()) == {0}

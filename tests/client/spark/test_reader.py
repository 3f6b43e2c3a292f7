"""Spark queries as members of a group: when they are stopped, what is committed, where they go on.

The real member over the real core; Spark is played.
"""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark import reader as spark_reader
from coordlib.client.spark.reader import SparkGroupReader
from coordlib.core.wire import api
from coordlib.errors import CoordError, SetupError
from coordlib.kafka import bounds
from coordlib.kafka.logs import Bounds, Place
from tests.client.groups.assigned.by_hand import ByHand
from tests.client.spark.world import FakeSpark, FakeWriter, ReaderWorld
from tests.client.world import TIMING, t


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ReaderWorld:
    return ReaderWorld(monkeypatch, tmp_path)


def numbers(partitions: Any) -> list[int]:
    return sorted(each.partition for each in partitions)


# ---- given and let go -------------------------------------------------------------------------


def test_a_query_begins_where_the_group_has_committed(world: ReaderWorld) -> None:
    """A Python consumer worked on the topic before."""
    (user,) = world.join("python")
    user.position = {TopicPartition("t", 0): 7, TopicPartition("t", 2): 9}
    world.close(user)

    world.read()

    assert world.query.assigned == {"t": [0, 1, 2, 3]}
    assert world.query.began == dict(zip(t(0, 1, 2, 3), (7, 0, 9, 0), strict=True))


def test_a_hand_over_commits_with_the_release_and_goes_on_with_the_rest(world: ReaderWorld) -> None:
    """One record says both; the newcomer begins where the query has ended."""
    world.read()
    first = world.query
    first.end(t0=5, t1=6, t2=7, t3=8)

    (user,) = world.join("python")

    (release,) = world.releases("spark")
    gone = {row.partition: row.offset for row in release.offsets}
    ends = {0: 5, 1: 6, 2: 7, 3: 8}
    assert gone == {number: ends[number] for number in numbers(user.owns)}
    assert len(gone) == 2
    assert not first.stopped_in_batch
    rest = world.query
    assert rest is not first
    assert rest.began == {TopicPartition("t", n): ends[n] for n in ends.keys() - gone.keys()}
    future = user.member.committed_async(user.owns)
    world.run(500)
    assert {row.partition: row.offset for row in future.result(0).offsets} == gone


def test_the_batch_that_runs_is_waited_for_and_goes_along(world: ReaderWorld) -> None:
    """Nothing is read twice by a hand-over for which there was time."""
    world.read()
    query = world.query
    query.end(t0=1, t1=1, t2=1, t3=1)
    query.begin()
    looks = iter(range(3))
    query.on_look = lambda: query.end(t0=5, t1=5, t2=5, t3=5) if next(looks) == 2 else None

    world.join("python")

    assert not query.stopped_in_batch
    (release,) = world.releases("spark")
    assert {row.offset for row in release.offsets} == {5}
    assert set(world.query.began.values()) == {5}


def test_a_batch_that_takes_too_long_is_cut_short_and_not_committed(world: ReaderWorld) -> None:
    """The newcomer waits for the rebalance timeout at most; the reader stays a member."""
    reader = world.read(batch_timeout_s=3)
    member = reader.member.member_id
    query = world.query
    query.end(t0=2, t1=2, t2=2, t3=2)
    query.begin()

    (user,) = world.join("python")
    world.run(3_000)

    assert query.stopped_in_batch
    assert not query.share.may_work()
    (release,) = world.releases("spark")
    assert {row.offset for row in release.offsets} == {2}
    assert len(user.owns) == 2
    assert reader.member.member_id == member
    assert set(world.query.began.values()) == {2}


def test_a_batch_that_hangs_is_told_and_its_partitions_go_to_others(world: ReaderWorld) -> None:
    """foreachBatch waits for a database for ever; Spark's stop() waits for it."""
    reader = world.read(batch_timeout_s=0)
    query = world.query
    query.begin()
    query.hangs_until.clear()

    world.enter("python", None, ("t",))
    try:
        with pytest.raises(CoordError, match="does not end") as told:
            world.run(3_000)
        world.stop(reader)
        world.run(1_000)
    finally:
        query.hangs_until.set()

    assert told.value.where.startswith("group orders, member spark-")
    assert told.value.hint
    assert not query.share.may_work()
    assert len(world.users[0].owns) == 4


def test_partitions_that_come_one_after_another_make_one_restart(world: ReaderWorld) -> None:
    """Two members end at nearly the same time: a rolling stop."""
    users = world.join("a", "b")
    reader = world.read()
    first = world.query
    first.end()
    had, runs = set(first.share.partitions), reader.runs

    for user in users:
        world.close(user)
        world.run(200, step_ms=100)
        assert reader.runs == runs
    world.run(2_000)

    assert reader.runs == runs + 1
    assert numbers(world.query.share.partitions) == [0, 1, 2, 3]
    assert not first.stopped_in_batch
    assert had < set(world.query.share.partitions)


def test_a_query_is_given_more_only_after_its_batch(world: ReaderWorld) -> None:
    """Nobody waits for that: the batch may take as long as it takes."""
    (user,) = world.join("a")
    world.read(batch_timeout_s=0)
    first = world.query
    first.begin()
    world.close(user)
    looks = iter(range(50))
    first.on_look = lambda: first.end(t0=4, t1=4, t2=4, t3=4) if next(looks) == 20 else None

    world.run(2_000)

    assert not first.stopped_in_batch
    began = world.query.began
    assert {began[each] for each in first.share.partitions} == {4}


# ---- fenced, failed, stopped ------------------------------------------------------------------


def test_who_is_cut_off_stops_at_once_and_commits_nothing(world: ReaderWorld) -> None:
    """A network fails; another member works on the partitions by the time it is back."""
    transport = world.log.transport()
    world.read(transport=transport, commit_interval_s=3_600)
    query = world.query
    query.end(t0=5, t1=5, t2=5, t3=5)
    query.begin()
    transport.is_cut = True

    world.join("python")
    world.run(8_000)

    assert query.stopped_in_batch
    assert not query.share.may_work()
    assert numbers(world.users[0].owns) == [0, 1, 2, 3]
    transport.is_cut = False
    world.run(10_000)
    assert world.committed("spark") == []
    assert len(world.query.share.partitions) == 2
    assert not query.share.may_work()


def test_a_query_that_fails_makes_the_reader_leave_and_tell_why(world: ReaderWorld) -> None:
    """What was finished stands; the others take over without waiting for a session."""
    reader = world.read(commit_interval_s=3_600)
    (user,) = world.join("python")
    query = world.query
    query.end(**{f"t{number}": 5 for number in numbers(query.share.partitions)})
    query.begin()
    query.fail(ValueError("no such column\n  at org.apache.spark…"))

    with pytest.raises(CoordError, match="The query failed: no such column") as told:
        world.run(500)
    world.stop(reader)
    world.run(500)

    assert told.value.what == "The query failed: no such column"
    assert "member spark-" in told.value.where
    assert "Fix the query" in told.value.hint
    assert set(world.committed("spark")[-1].values()) == {5}
    assert isinstance([e for e in world.requests if e.client == "spark"][-1], api.LeaveGroup)
    assert len(user.owns) == 4


def test_a_full_disk_is_told_with_the_places_that_may_be_full(world: ReaderWorld) -> None:
    """Of Spark's checkpoint, of its own files, or of the table: Java names none of them. What the
    failed batch has read is not committed."""
    reader = world.read(commit_interval_s=3_600)
    query = world.query
    query.end(**{f"t{number}": 5 for number in numbers(query.share.partitions)})
    query.begin()
    query.fail(OSError("java.io.IOException: No space left on device"))

    with pytest.raises(CoordError, match="No space left on device") as told:
        world.run(500)
    world.stop(reader)

    assert f"make space in {world.folder} (checkpoints)" in told.value.hint
    assert set(world.committed("spark")[-1].values()) == {5}


def test_a_query_that_somebody_stops_ends_the_reader(world: ReaderWorld) -> None:
    """`spark.streams.active[0].stop()` in a notebook: not a set of partitions that nobody reads."""
    reader = world.read()
    world.query.stop()

    with pytest.raises(CoordError, match="The query was stopped, or"):
        world.run(500)
    world.stop(reader)


def test_stop_commits_what_is_finished_and_leaves(world: ReaderWorld) -> None:
    reader = world.read(commit_interval_s=3_600)
    query = world.query
    query.end(t0=5, t1=6, t2=7, t3=8)

    world.stop(reader)

    assert world.committed("spark") == [{0: 5, 1: 6, 2: 7, 3: 8}]
    last = [each for each in world.requests if each.client == "spark"][-2:]
    assert [type(each) for each in last] == [api.OffsetCommit, api.LeaveGroup]
    assert not query.isActive
    assert not query.stopped_in_batch
    assert not query.share.may_work()


def test_a_reader_with_a_thread_tells_its_failure_to_who_waits(
    world: ReaderWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`start` is the user's code: whatever it raises ends the reader, which leaves."""

    def start(_rows: Any, _share: Any) -> Any:
        raise ValueError("no such column")

    reader = world.read(client="old")
    world.stop(reader)
    broken = SparkGroupReader(
        FakeSpark(),  # type: ignore[arg-type]
        "orders",
        ["t"],
        start,
        config={"bootstrap.servers": "nowhere:1"},
        folder=world.folder,
        timing=TIMING,
        client="spark",
        transport=world.log.transport(),
        gather_s=0,
    ).start()
    while broken._thread.is_alive():
        world.log.advance(100)
        broken._thread.join(0.02)  # or it would be away for minutes of the log's time

    with pytest.raises(ValueError, match="no such column"):
        broken.await_termination()
    world.log.pump()
    assert isinstance(world.requests[-1], api.LeaveGroup)


# ---- commits ----------------------------------------------------------------------------------


def test_finished_batches_are_committed_now_and_then_and_once(world: ReaderWorld) -> None:
    world.read(commit_interval_s=2)
    world.query.end(t0=5)
    world.run(5_000)
    world.query.idle()
    world.run(5_000)

    assert [each.get(0) for each in world.committed("spark")] == [5]


def test_a_partition_whose_commit_is_refused_is_committed_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The others are not: what the coordinator has taken stands."""
    spark, log = FakeSpark(), ByHand()
    clock = SimpleNamespace(monotonic=lambda: log.time_ms / 1000)
    monkeypatch.setattr(spark_reader, "time", clock)
    logs = {Place("t", number): Bounds(0, 10) for number in (0, 1)}
    monkeypatch.setattr(bounds, "log_bounds", lambda *_, **__: logs)
    reader = SparkGroupReader(
        spark,  # type: ignore[arg-type]
        "orders",
        ["t"],
        FakeWriter,  # type: ignore[arg-type]
        config={"bootstrap.servers": "nowhere:1"},
        folder=tmp_path,
        timing=TIMING,
        client="app",
        transport=log,
        gather_s=0,
        commit_interval_s=1,
    )
    reader.join()
    log.grant(0, 1)
    reader.turn(0)
    reader.turn(0)
    rows = tuple(api.FetchedOffset("t", number, -1, -1, "") for number in (0, 1))
    for asked in [each for each in log.written if isinstance(each, api.OffsetFetch)]:
        log.answer(asked, api.OffsetFetchResponse, part=0, parts=1, offsets=rows)
    reader.turn(0)
    spark.queries[0].end(t0=5, t1=6)
    log.time_ms = 1_000
    reader.turn(0)
    said = log.newest(api.OffsetCommit)
    assert {row.partition: row.offset for row in said.offsets} == {0: 5, 1: 6}

    refused = (api.FailedPartition("t", 1, "PARTITION_NOT_OWNED"),)
    log.answer(said, api.OffsetCommitResponse, failed=refused)
    reader.turn(0)
    log.time_ms = 2_000
    reader.turn(0)

    again = log.newest(api.OffsetCommit)
    assert {row.partition: row.offset for row in again.offsets} == {1: 6}


# ---- versions ---------------------------------------------------------------------------------


def test_versions_rise_over_batches_restarts_owners_and_a_deleted_group(world: ReaderWorld) -> None:
    """FakeQuery.begin refuses every version that is not higher than all before it."""
    reader = world.read(batch_timeout_s=0)
    world.query.begin()  # given up before Spark told of any batch
    for round_ in range(3):
        (user,) = world.join(f"python-{round_}")
        world.query.end()
        world.query.begin()  # begun, and given up by the next change
        world.query.is_busy = False
        world.close(user)
        world.run(2_000)
        world.query.end()
        world.query.idle()
        world.query.begin()
        world.query.is_busy = False
    other = world.read("spark-2")
    for query in world.reading:
        query.begin()
        query.is_busy = False
    world.stop(reader)
    world.run(2_000)
    world.query.end()
    world.stop(other)
    before = dict(world.spark.versions)

    deletion = api.DeleteGroup(v=1, id="delete-1", client="operator", group="orders")
    offset = world.log.append(0, deletion)
    world.log.pump()
    world.read("spark-3")
    world.query.begin()

    assert all(fence > offset for fence in world.query.share.fences.values())
    assert {app: before[app] < version for app, version in world.spark.versions.items()} == (
        dict.fromkeys(before, True)
    )


# ---- no committed offset ----------------------------------------------------------------------


def test_latest_is_settled_in_the_log_before_anything_is_read(world: ReaderWorld) -> None:
    """A hand-over before the first batch ends: what came meanwhile is the newcomer's to read."""
    world.bounds = dict.fromkeys(range(4), Bounds(0, 50))
    reader = world.read(otherwise="latest")
    assert world.committed("spark") == [{0: 50, 1: 50, 2: 50, 3: 50}]
    assert set(world.query.began.values()) == {50}

    world.bounds = dict.fromkeys(range(4), Bounds(0, 60))
    other = world.read("spark-2", otherwise="latest")

    assert {n for query in world.reading for n in query.began.values()} == {50}
    assert reader.runs + other.runs >= 3


def test_a_broker_that_does_not_tell_its_ends_is_asked_again(world: ReaderWorld) -> None:
    """The topic's brokers restart one after another; the coordinator's are others."""
    world.looks_to_fail = 1
    world.read()
    world.run(2_000)

    assert world.query.assigned == {"t": [0, 1, 2, 3]}
    first, again = world.looks_ms
    assert again - first >= 1_000


# ---- a log that is not what it was ------------------------------------------------------------


def commits(world: ReaderWorld, **offsets: int) -> None:
    """A Python consumer worked on the topic until there, `t0=7`, and went."""
    (user,) = world.join("python")
    user.position = {TopicPartition("t", int(name[1:])): at for name, at in offsets.items()}
    world.close(user)


def test_what_is_committed_below_the_log_start_begins_there(world: ReaderWorld) -> None:
    """Nobody read for a week, and retention went on: what is left is read, all of it."""
    commits(world, t0=7, t1=7, t2=7, t3=7)
    world.bounds[1] = Bounds(100, 1_000)

    world.read(otherwise="latest")

    assert world.query.began == dict(zip(t(0, 1, 2, 3), (7, 100, 7, 7), strict=True))


@pytest.mark.parametrize(("otherwise", "begins"), [("earliest", 3), ("latest", 20)])
def test_what_is_committed_beyond_the_log_end_counts_as_not_committed(
    world: ReaderWorld, otherwise: Any, begins: int
) -> None:
    """The topic was deleted and made anew with the same name."""
    commits(world, t0=7, t1=700, t2=7, t3=7)
    world.bounds[1] = Bounds(3, 20)

    world.read(otherwise=otherwise)

    assert world.query.began == dict(zip(t(0, 1, 2, 3), (7, begins, 7, 7), strict=True))


def test_a_strict_reader_ends_before_it_passes_over_what_is_gone(world: ReaderWorld) -> None:
    """`failOnDataLoss` is Spark's own word for it; whoever sets it wants to know."""
    commits(world, t0=7)
    world.bounds[0] = Bounds(100, 1_000)

    with pytest.raises(CoordError, match=r"gone before they were read: t-0.*'log_start': 100") as e:
        world.read(kafka={"failondataloss": "TRUE"})
    world.stop(world.readers[0])

    assert "failOnDataLoss=false" in e.value.hint
    assert world.spark.queries == []


def test_partitions_that_are_not_there_wait_and_the_others_are_read(world: ReaderWorld) -> None:
    """A topic was deleted, and the coordinator has not seen it yet; or its leader is away."""
    del world.bounds[2]
    reader = world.read()
    assert world.query.assigned == {"t": [0, 1, 3]}
    runs = reader.runs
    world.run(20_000)
    assert reader.runs == runs, "nothing is to be gained by a restart"

    world.bounds[2] = Bounds(0, 10)
    world.run(7_000)

    assert world.query.assigned == {"t": [0, 1, 2, 3]}
    assert not world.spark.queries[0].stopped_in_batch


def test_a_reader_of_nothing_that_is_there_waits(world: ReaderWorld) -> None:
    """Its only topic was deleted; it stays a member, for the topic that comes instead."""
    bounds, world.bounds = world.bounds, {}
    reader = world.read()
    world.run(12_000)
    assert world.spark.queries == []
    assert len(reader.member.assignment) == 4

    world.bounds = bounds
    world.run(7_000)
    assert world.query.assigned == {"t": [0, 1, 2, 3]}


def test_a_query_that_fails_with_its_topic_goes_on_with_the_rest(world: ReaderWorld) -> None:
    """Spark's query ends when one of its partitions is gone; what it finished is committed."""
    reader = world.read()
    world.query.end(t0=5, t1=5, t2=5, t3=5)
    del world.bounds[2]
    world.query.fail(ValueError("UnknownTopicOrPartitionException"))

    world.run(5_000)

    assert world.query.assigned == {"t": [0, 1, 3]}
    assert set(world.query.began.values()) == {5}
    assert world.committed("spark")[-1][2] == 5
    assert reader.runs == 2


def test_a_query_that_retention_overtook_goes_on_at_the_log_start(world: ReaderWorld) -> None:
    """It was slower than the topic's retention: Spark says that data may have been lost."""
    world.read()
    world.query.end(t0=5, t1=5, t2=5, t3=5)
    world.bounds[3] = Bounds(70, 1_000)
    world.query.fail(ValueError("Some data may have been lost"))

    world.run(5_000)

    assert world.query.began == dict(zip(t(0, 1, 2, 3), (5, 5, 5, 70), strict=True))


def test_a_query_that_retention_overtook_in_its_first_batch_goes_on(world: ReaderWorld) -> None:
    """Nothing was committed, and the first batch is the whole backlog: the slowest of all."""
    world.read()
    world.query.begin()
    world.bounds[3] = Bounds(70, 1_000)
    world.query.fail(ValueError("Some data may have been lost"))

    world.run(5_000)

    assert world.query.began == dict(zip(t(0, 1, 2, 3), (0, 0, 0, 70), strict=True))


@pytest.mark.parametrize("looks_to_fail", [0, 1])
def test_a_query_that_fails_by_itself_is_not_started_again(
    world: ReaderWorld, looks_to_fail: int
) -> None:
    """Its log is as it was, or nobody knows: a query that fails for ever must be seen."""
    reader = world.read()
    world.query.end(t0=5, t1=5, t2=5, t3=5)
    world.looks_to_fail = looks_to_fail
    world.query.fail(ValueError("no such column"))

    with pytest.raises(CoordError, match="no such column"):
        world.run(500)
    world.stop(reader)


def test_a_query_that_fails_while_it_waits_for_its_gap_is_ended_once(world: ReaderWorld) -> None:
    """More is given, the batch is waited for, and the batch fails because its topic went."""
    (user,) = world.join("a")
    reader = world.read(batch_timeout_s=0)
    first = world.query
    first.begin()
    gone = first.share.partitions[0].partition

    def fails() -> None:
        world.bounds.pop(gone, None)
        first.fail(ValueError("UnknownTopicOrPartitionException"))

    first.on_look = fails
    world.close(user)
    world.run(5_000)

    assert world.query.assigned == {"t": sorted({0, 1, 2, 3} - {gone})}
    assert reader.runs == 2
    world.query.begin()


# ---- what is given ----------------------------------------------------------------------------


def test_the_source_reaches_the_same_brokers_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """librdkafka's spelling for the members, Java's for Spark; what is given for Spark wins."""
    world = ReaderWorld(monkeypatch, tmp_path)
    seen: list[FakeWriter] = []

    def start(rows: Any, share: Any) -> FakeWriter:
        seen.append(FakeWriter(rows, share))
        return seen[-1]

    config = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SSL",
        "client.id": "x",
        "group.id": "y",
    }
    reader = world.read(config=config, kafka={"maxOffsetsPerTrigger": "9"})
    assert world.query.share.member == reader.member.member_id
    reader._queries._start = start  # type: ignore[assignment]
    world.join("python")

    given = seen[-1].rows.given
    assert given["kafka.bootstrap.servers"] == "b:1"
    assert given["kafka.security.protocol"] == "SSL"
    assert given["maxOffsetsPerTrigger"] == "9"
    assert not given.keys() & {"kafka.client.id", "kafka.group.id"}
    assert seen[-1].checkpoint == f"file://{seen[-1].share.checkpoint}"


def test_a_reader_must_know_its_brokers(world: ReaderWorld) -> None:
    with pytest.raises(SetupError, match="brokers"):
        world.read(config={"security.protocol": "SSL"})


def test_a_reader_must_know_its_topics(world: ReaderWorld) -> None:
    """The list came from a setting that was empty: the program ran, and read nothing, for days."""
    with pytest.raises(SetupError, match="no topics"):
        SparkGroupReader(
            world.spark,  # type: ignore[arg-type]
            "orders",
            [],
            lambda _rows, _share: None,  # type: ignore[arg-type, return-value]
            config={"bootstrap.servers": "nowhere:1"},
            folder=world.folder,
        )


def test_a_checkpoint_stays_in_its_folder_whatever_the_client_is_called(world: ReaderWorld) -> None:
    """A client id is any text; this one would lead out of the folder."""
    world.read("../../eu/till 7")

    assert Path(world.query.share.checkpoint).parent == world.folder
    assert " " not in Path(world.query.share.checkpoint).name


def test_a_batch_must_not_take_the_whole_rebalance_timeout(world: ReaderWorld) -> None:
    with pytest.raises(SetupError, match="three quarters"):
        world.read(batch_timeout_s=10)


def test_no_thread_is_left_behind(world: ReaderWorld) -> None:
    before = set(threading.enumerate())
    world.stop(world.read())

    assert not [each for each in threading.enumerate() if each not in before and each.is_alive()]


def test_a_folder_that_is_a_file_is_refused_at_once(world: ReaderWorld) -> None:
    """Spark said so from the middle of a start, in Java's words, when partitions had come."""
    file = Path(world.folder) / "a file"
    file.write_text("")

    for folder in (file, file / "below"):
        reader = world.read(folder=folder)
        world.readers.remove(reader)
        reader._thread.start()
        with pytest.raises(SetupError, match="folder cannot be used"):
            reader.await_termination(30)


def test_the_reason_of_a_failed_batch_is_named(world: ReaderWorld) -> None:
    """Spark's first line says that a proxy has raised something."""
    world.read()
    told = "By the Python Proxy. Return Message: Traceback (most recent call last):"
    world.query.fail(RuntimeError(f'{told}\n  File "x"\nValueError: a bad row\n\n\tat py4j'))

    with pytest.raises(CoordError, match="The query failed: ValueError: a bad row"):
        world.run(500)
    world.stop(world.readers[0])

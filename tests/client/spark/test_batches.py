"""INV-159. A loop over batches as a member: handed out, committed, released, begun again.

The real member over the real core; Spark is played.
"""

import gc
import threading
from typing import Any

import pytest

from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.fence import MemberFenced
from coordlib.client.spark import batches
from coordlib.client.spark.batch import share_out
from coordlib.client.spark.batches import GroupBatches, group_batches
from coordlib.core.wire import api
from coordlib.errors import CoordError, GroupError, SetupError
from coordlib.kafka.logs import Bounds
from tests.client.spark.loops import CONFIG, FakeSession, LoopWorld, begins, ends, place


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> LoopWorld:
    return LoopWorld(monkeypatch)


def numbers(partitions: Any) -> list[int]:
    return sorted(each.partition for each in partitions)


# ---- handed out and committed -----------------------------------------------------------------


def test_a_batch_begins_where_the_group_has_committed(world: LoopWorld) -> None:
    """A Python consumer worked on the topic before."""
    (user,) = world.join("python")
    user.position = {place(0): 7, place(2): 9}
    world.close(user)

    batch = world.take(world.loop())

    assert begins(batch) == {0: 7, 1: 0, 2: 9, 3: 0}
    assert ends(batch) == dict.fromkeys(range(4), 10)
    assert batch.number == 1
    assert batch.may_work()


def test_the_next_batch_begins_behind_the_one_before(world: LoopWorld) -> None:
    loop = world.loop()
    world.take(loop).commit()
    assert loop.take() is None
    world.bounds[1] = Bounds(0, 12)

    batch = world.take(loop)

    assert (begins(batch), ends(batch)) == ({1: 10}, {1: 12})
    world.run(1_000)
    assert world.committed_now == dict.fromkeys(range(4), 10)


def test_a_batch_is_committed_once(world: LoopWorld) -> None:
    loop = world.loop()
    batch = world.take(loop)
    batch.commit()
    batch.commit()
    world.run(5_000)

    assert world.committed("spark") == [dict.fromkeys(range(4), 10)]
    assert not batch.may_work(), "its partitions may be anybody's by now"
    with pytest.raises(CoordError, match="committed"):
        batch.write(None, "lake")  # type: ignore[arg-type]


def test_a_batch_that_is_left_behind_is_said_once_and_covered_by_the_next_commit(
    world: LoopWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that filters batches calls `continue` before its commit."""
    loop = world.loop()
    left = world.take(loop)
    for end in (12, 14, 16):
        world.bounds = dict.fromkeys(range(4), Bounds(0, end))
        batch = world.take(loop)
    world.run(1_000)
    assert world.committed("spark") == []
    with pytest.raises(CoordError, match="later batch"):
        left.commit()

    batch.commit()
    world.run(1_000)

    assert world.committed_now == dict.fromkeys(range(4), 16)
    assert capsys.readouterr().out.count("was not committed before the next;") == 1


def test_a_full_batch_is_planned_while_one_is_written(world: LoopWorld) -> None:
    """What comes meanwhile is the business of a later one."""
    loop = world.loop(max_records=8)
    first = world.take(loop)
    world.run(2_000)
    world.bounds = {}
    first.commit()

    second = world.take(loop)

    assert (begins(second), ends(second)) == (
        dict.fromkeys(range(4), 2),
        dict.fromkeys(range(4), 4),
    )
    second.commit()
    assert loop.take() is None


def test_a_batch_that_would_not_be_full_is_planned_when_it_is_asked_for(world: LoopWorld) -> None:
    loop = world.loop(max_records=30)
    first = world.take(loop)
    world.run(2_000)
    first.commit()
    world.bounds = dict.fromkeys(range(4), Bounds(0, 20))

    assert sum(world.take(loop).ends.values()) == sum(first.ends.values()) + 30


def test_short_backlogs_are_read_whole_and_long_ones_share_the_rest() -> None:
    behind = {place(0): 1_000, place(1): 3, place(2): 500, place(3): 40}

    sizes = share_out(behind, 100, {})

    assert sizes == {place(1): 3, place(3): 32, place(2): 32, place(0): 33}
    assert share_out(behind, None, {}) == behind
    assert share_out(behind, 10_000, {}) == behind


def test_no_partition_of_a_thousand_starves() -> None:
    """A batch has room for ten of them: each is read in its turn."""
    behind = {TopicPartition("t", number): 10 for number in range(1_000)}
    read_in: dict[TopicPartition, int] = {}
    for number in range(1, 101):
        sizes = share_out(behind, 10, read_in)
        assert sum(sizes.values()) == 10
        read_in |= dict.fromkeys(sizes, number)

    assert read_in.keys() == behind.keys()


# ---- given and let go -------------------------------------------------------------------------


def test_a_demand_between_two_batches_is_met_at_once(world: LoopWorld) -> None:
    """The newcomer begins behind the batch, and the next one is of what is left."""
    loop = world.loop()
    world.take(loop).commit()
    world.run(1_000)

    (user,) = world.join("python")

    assert len(user.owns) == 2
    assert world.committed_now == dict.fromkeys(range(4), 10)
    world.bounds = dict.fromkeys(range(4), Bounds(0, 12))
    batch = world.take(loop)
    assert numbers(batch.ranges) == sorted({0, 1, 2, 3} - set(numbers(user.owns)))
    assert set(begins(batch).values()) == {10}


def test_a_demand_waits_for_the_batch_in_flight(world: LoopWorld) -> None:
    """Nothing is read twice by a hand-over for which there was time."""
    loop = world.loop()
    batch = world.take(loop)
    waits = iter(range(100))
    world.while_waiting = lambda: batch.commit() if next(waits) == 3 else None

    (user,) = world.join("python")
    world.run(1_000)

    assert len(user.owns) == 2
    assert world.committed_now == dict.fromkeys(range(4), 10)
    assert next(waits) < 10


@pytest.mark.parametrize("number", range(4))
def test_a_demand_waits_for_no_batch_of_other_partitions(world: LoopWorld, number: int) -> None:
    """The batch in flight reads one partition alone, which is demanded, or not."""
    world.bounds = dict.fromkeys(range(4), Bounds(0, 0)) | {number: Bounds(0, 10)}
    loop = world.loop()
    batch = world.take(loop)
    waits: list[int] = []
    world.while_waiting = lambda: waits.append(world.log.now_ms)

    (user,) = world.join("python")
    world.run(10_000)

    assert len(user.owns) == 2
    assert bool(waits) == (place(number) in user.owns)
    assert batch.may_work() == (place(number) not in user.owns)


def test_a_batch_that_outlasts_a_demand_is_fenced_and_read_again(world: LoopWorld) -> None:
    """The newcomer waits for half the rebalance timeout at most; the loop stays a member."""
    loop = world.loop()
    member = loop.member.member_id
    batch = world.take(loop)

    (user,) = world.join("python")
    world.run(10_000)

    assert len(user.owns) == 2
    assert not batch.may_work()
    with pytest.raises(MemberFenced):
        batch.commit()
    world.run(1_000)
    assert world.committed("spark") == []
    assert loop.member.member_id == member
    again = world.take(loop)
    assert numbers(again.ranges) == sorted({0, 1, 2, 3} - set(numbers(user.owns)))
    assert set(begins(again).values()) == {0}


def test_a_batch_without_a_demand_may_outlast_the_rebalance_timeout(world: LoopWorld) -> None:
    """The member's thread polls it."""
    loop = world.loop()
    batch = world.take(loop)

    world.run(60_000)

    assert batch.may_work()
    batch.commit()
    world.run(1_000)
    assert world.committed_now == dict.fromkeys(range(4), 10)


def test_more_partitions_join_the_next_batch(world: LoopWorld) -> None:
    (user,) = world.join("a")
    loop = world.loop()
    batch = world.take(loop)
    assert len(batch.ranges) == 2
    world.close(user)
    world.run(3_000)
    assert batch.may_work()
    batch.commit()

    assert len(world.take(loop).ranges) == 2
    world.bounds = dict.fromkeys(range(4), Bounds(0, 20))
    assert len(world.take(loop).ranges) == 4


# ---- fenced, failed, left ---------------------------------------------------------------------


def test_who_is_cut_off_is_fenced_and_commits_nothing(world: LoopWorld) -> None:
    """A network fails; another member works on the partitions by the time it is back."""
    transport = world.log.transport()
    loop = world.loop(transport=transport)
    batch = world.take(loop)
    transport.is_cut = True

    world.join("python")
    world.run(8_000)

    assert numbers(world.users[0].owns) == [0, 1, 2, 3]
    assert not batch.may_work()
    assert loop.take() is None
    with pytest.raises(MemberFenced):
        batch.commit()
    transport.is_cut = False
    world.run(10_000)
    assert world.committed("spark") == []
    assert len(world.take(loop).ranges) == 2, "it has joined again"


def test_a_job_that_is_away_for_minutes_stops_no_loop(world: LoopWorld) -> None:
    """Batches go on, and the commits come into the log; no member is expelled."""
    loop = world.loop()
    member = loop.member.member_id
    world.log.job_is_up = False
    for end in (12, 14, 16):
        world.bounds = dict.fromkeys(range(4), Bounds(0, end))
        world.take(loop).commit()
        world.run(60_000)
    world.log.job_is_up = True
    world.run(5_000)

    assert world.committed_now == dict.fromkeys(range(4), 16)
    assert loop.member.member_id == member


def test_a_refusal_for_good_is_raised(world: LoopWorld) -> None:
    """Here of its subscription; the member leaves."""
    loop = world.loop()
    batch = world.take(loop)
    loop.member.subscribe(pattern="(")
    world.loops.remove(loop)
    world.log.pump()

    loop._work()  # in its thread
    world.log.pump()

    with pytest.raises(GroupError, match="INVALID_REGULAR_EXPRESSION"):
        loop.take()
    with pytest.raises(MemberFenced):
        batch.commit()


def test_a_loop_that_is_left_leaves_the_group_at_once(world: LoopWorld) -> None:
    """Without a commit: others read these records again, and nobody waits for a session."""
    loop = world.loop()
    batch = world.take(loop)

    world.end(loop)

    with pytest.raises(MemberFenced):
        batch.commit()
    assert world.committed("spark") == []
    assert isinstance([e for e in world.requests if e.client == "spark"][-1], api.LeaveGroup)


class Endless:
    """A loop that hands out one batch after another, and notes its end."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.is_started = True

    def take(self) -> object:
        return object()

    def end(self) -> None:
        self.ended.set()


def batches_of(loop: Endless) -> GroupBatches:
    return GroupBatches(loop, ["t"])  # type: ignore[arg-type]


def test_a_loop_is_left_by_break() -> None:
    """Also where the program keeps a name for it."""
    loop = Endless()
    kept = batches_of(loop)

    for _ in kept:
        break

    assert loop.ended.is_set()
    assert list(kept) == []


def test_a_loop_is_left_by_an_exception() -> None:
    loop = Endless()
    kept = batches_of(loop)

    def work() -> None:
        for _ in kept:
            raise ValueError("no such column")

    with pytest.raises(ValueError, match="no such column"):
        work()

    assert loop.ended.is_set()


def test_a_loop_is_left_by_del_and_by_a_with_block() -> None:
    loop, other = Endless(), Endless()
    made = batches_of(loop)
    next(made)
    del made
    gc.collect()
    with batches_of(other) as batches_:
        next(batches_)

    assert loop.ended.is_set()
    assert other.ended.is_set()


# ---- logs that are not what they were ---------------------------------------------------------


def test_latest_is_committed_before_anything_is_read(world: LoopWorld) -> None:
    """A hand-over before the first batch: what came meanwhile is the newcomer's to read."""
    world.bounds = dict.fromkeys(range(4), Bounds(0, 50))
    loop = world.loop(**{"auto.offset.reset": "latest"})

    assert world.committed("spark") == [dict.fromkeys(range(4), 50)]
    assert loop.take() is None
    world.bounds = dict.fromkeys(range(4), Bounds(0, 60))
    assert set(begins(world.take(loop)).values()) == {50}


def test_a_log_that_was_cut_at_its_start_is_read_from_there(world: LoopWorld) -> None:
    """Retention overtakes the loop between two batches."""
    loop = world.loop()
    world.take(loop).commit()
    world.bounds[1] = Bounds(100, 110)

    batch = world.take(loop)

    assert (begins(batch), ends(batch)) == ({1: 100}, {1: 110})


def test_a_strict_loop_ends_before_it_passes_over_what_is_gone(world: LoopWorld) -> None:
    """`failOnDataLoss` is Spark's own word for it; it stands in any case."""
    loop = world.loop(kafka={"failondataloss": "TRUE"})
    world.take(loop).commit()
    world.bounds[1] = Bounds(100, 110)

    with pytest.raises(CoordError, match="gone before they were read: t-1") as raised:
        loop.take()
    with pytest.raises(CoordError):
        loop.take()

    assert "failOnDataLoss=false" in raised.value.hint


def test_partitions_that_are_not_there_wait_and_the_others_are_read(world: LoopWorld) -> None:
    """A topic was deleted, and the coordinator has not seen it yet; or its leader is away."""
    del world.bounds[2]
    loop = world.loop()
    batch = world.take(loop)
    assert numbers(batch.ranges) == [0, 1, 3]
    batch.commit()
    world.run(20_000)

    world.bounds[2] = Bounds(0, 10)
    world.run(7_000)

    assert begins(world.take(loop)) == {2: 0}


def test_a_broker_that_is_away_is_asked_again(world: LoopWorld) -> None:
    loop = world.loop()
    world.looks_to_fail = 2

    assert loop.take() is None
    assert loop.take() is None
    assert len(world.take(loop).ranges) == 4


def test_topics_that_do_not_exist_are_waited_for_and_named(
    world: LoopWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip of the pen in a topic's name: the program would wait in silence."""
    loop = world.loop("other")
    world.end(loop)
    world.log.topics = {}
    world.log.tell_topics()
    loop = world.loop()
    world.run(15_000)
    assert loop.take() is None
    assert capsys.readouterr().out.count("topics that do not exist are waited for") == 1

    world.log.topics = {"t": 4}
    world.log.tell_topics()
    world.run(5_000)
    assert len(world.take(loop).ranges) == 4


# ---- what is given ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"topics": "orders"}, "list of topics"),
        ({"topics": []}, "no topics"),
        ({"group": ""}, "group"),
        ({"max_records": 0}, "max_records"),
        ({"kafka": {"startingOffsets": "earliest"}}, "startingOffsets has no meaning"),
        ({"kafka": {"ENDINGOFFSETS": "latest"}}, "endingOffsets has no meaning"),
        ({"kafka": {"subscribepattern": "a.*"}}, "subscribePattern has no meaning"),
        ({"kafka": {"kafka.group.id": "g"}}, r"kafka\.group\.id has no meaning"),
        ({"kafka": {"maxOffsetsPerTrigger": "9"}}, "maxOffsetsPerTrigger has no meaning"),
        ({"kafka": {"failOnDataLost": "false"}}, "no such option"),
        ({"kafka": {"failOnDataLoss": "perhaps"}}, "true or false"),
        ({"config": {}}, "brokers"),
        ({"config": CONFIG | {"auto.offset.reset": "error"}}, "offset to begin at"),
        ({"config": CONFIG | {"max.poll.interval.ms": "soon"}}, "whole number"),
        ({"config": CONFIG | {"group.instance.id": "a"}}, "not offered"),
        ({"config": CONFIG | {"enable.auto.commit": True}}, "not offered"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_member_joins(
    world: LoopWorld, more: dict[str, Any], text: str
) -> None:
    """Each in one sentence, which names what was given."""
    spark: Any = FakeSession()
    given = {"group": "orders", "topics": ["t"], "config": CONFIG} | more
    given["transport"] = world.log.transport()

    with pytest.raises(SetupError, match=text):
        group_batches(spark, **given)


def test_spark_reaches_the_same_brokers_in_the_same_way(world: LoopWorld) -> None:
    """librdkafka's spelling for the members, Java's for Spark; what is given for Spark wins."""
    loop = world.loop(
        kafka={"includeheaders": "true", "kafka.isolation.level": "read_committed"},
        **{"security.protocol": "SSL"},
    )

    given: Any = world.take(loop).rows
    assert given.given["kafka.bootstrap.servers"] == "nowhere:1"
    assert given.given["kafka.security.protocol"] == "SSL"
    assert given.given["includeHeaders"] == "true"
    assert given.given["failOnDataLoss"] == "false"
    assert not given.given.keys() & {"kafka.client.id", "kafka.group.id"}
    assert loop._beginnings._is_committed


def test_no_thread_is_left_behind(world: LoopWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    spark: Any = FakeSession()
    made = group_batches(spark, "orders", ["t"], CONFIG, transport=world.log.transport())
    loop = made._loop
    loop.start(["t"])
    monkeypatch.setattr(batches, "_POLL_S", 0.01)
    made.close()
    loop._thread.join(60)

    assert not [each for each in threading.enumerate() if each not in before and each.is_alive()]
    with pytest.raises(StopIteration):
        next(made)

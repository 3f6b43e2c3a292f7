"""The member of a query of `format("coord")`, over the real core in memory and with real threads.

Time of the log goes on only while a test waits. Shows INV-147 and INV-148.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.client import AssignedMember
from coordlib.client.spark import source_member
from coordlib.client.spark.source_member import SourceMember
from coordlib.client.spark.source_offsets import METADATA, Offset
from coordlib.client.spark.source_options import parse
from coordlib.core.wire import api
from coordlib.errors import CannotReach, CoordError, GroupError
from coordlib.kafka import bounds
from coordlib.kafka.logs import Bounds, Place
from coordlib.testing.fake_log import FakeLog, FakeTransport
from tests.client.world import TIMING, t

PATIENCE_S = 60.0
STEP_MS = 50
FIRST = Offset("g", "q", 0, {})


class SourceWorld:
    """Queries of one group, as Spark calls them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = FakeLog({"t": 2})
        self.log.tell_topics()
        self.bounds = {0: Bounds(0, 10), 1: Bounds(0, 10)}
        self.brokers_answer = True
        self.queries: list[SourceMember] = []
        monkeypatch.setattr(bounds, "log_bounds", self._log_bounds)
        monkeypatch.setattr(source_member, "LOOK_S", 0.001)

    def _log_bounds(self, _: Any, places: list[Place], *__: Any, **___: Any) -> dict[Place, Any]:
        if not self.brokers_answer:
            raise TimeoutError("no answer")
        return {each: self.bounds.get(each.partition) for each in places}

    def query(self, transport: FakeTransport | None = None, **more: Any) -> SourceMember:
        options = parse(
            {
                "kafka.bootstrap.servers": "nowhere:1",
                "subscribe": "t",
                "group.id": "g",
                "startingOffsets": "earliest",
            }
        )
        options = replace(options, timing=TIMING, **more)
        query = SourceMember(options, transport or self.log.transport(), object())  # type: ignore[arg-type]
        self.queries.append(query)
        query.start()
        return query

    def until(self, is_so: Callable[[], object]) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < until_s
            self.log.advance(STEP_MS, step_ms=STEP_MS)
            time.sleep(0.002)

    def plan(self, query: SourceMember, start: Offset, rows_max: int | None = None) -> Offset:
        """The next batch, as soon as there is one."""
        found = [start]

        def is_planned() -> bool:
            found[0] = query.plan(start, rows_max)
            return found[0] is not start

        self.until(is_planned)
        return found[0]

    def idle(self, query: SourceMember, start: Offset, calls: int = 20) -> None:
        for _ in range(calls):
            assert query.plan(start, None) is start
            self.log.advance(STEP_MS, step_ms=STEP_MS)

    def commits(self) -> list[tuple[int, int, str]]:
        """Partition, offset and metadata of each row that was committed, in the log's order."""
        found = []
        for request in (each for batch in self.log.batches for each in batch):
            if isinstance(request, api.OffsetCommit | api.Release):
                rows = request.offsets or ()
                found += [(row.partition, row.offset, row.metadata) for row in rows]
        return found

    def reset(self, partition: int, offset: int) -> None:
        """An operator, while nobody is in the group."""
        row = api.CommittedOffset("t", partition, offset)
        request = api.OffsetCommit(v=1, id="ops", client="ops", group="g", offsets=(row,))
        self.log.append(0, request)
        self.log.pump()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceWorld]:
    monkeypatch.setattr(source_member, "_FIRST_S", 0.0)
    world = SourceWorld(monkeypatch)
    yield world
    for query in world.queries:
        leaving = threading.Thread(target=query.close)
        leaving.start()
        world.until(lambda leaving=leaving: not leaving.is_alive())  # type: ignore[misc]


def ranges(batch: Offset) -> dict[int, tuple[int, int]]:
    return {place.partition: (each.begin, each.end) for place, each in batch.read.items()}


def test_a_batch_is_committed_once_when_the_next_is_asked_for(world: SourceWorld) -> None:
    query = world.query()
    first = world.plan(query, FIRST)
    assert ranges(first) == {0: (0, 10), 1: (0, 10)}
    # Where a partition begins is committed before anything is read.
    assert world.commits() == [(0, 0, f"{METADATA} q 0"), (1, 0, f"{METADATA} q 0")]

    world.idle(query, first)
    world.bounds[1] = Bounds(0, 12)
    second = world.plan(query, first)

    assert ranges(second) == {1: (10, 12)}
    assert world.commits()[2:] == [(0, 10, f"{METADATA} q 1"), (1, 10, f"{METADATA} q 1")]


def test_a_batch_has_no_more_records_than_it_may(world: SourceWorld) -> None:
    query = world.query()

    assert sum(end - at for at, end in ranges(world.plan(query, FIRST, 7)).values()) == 7


def test_a_batch_waits_for_enough_records_and_not_for_ever(
    world: SourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = world.query(rows_min=21, delay_max_ms=3_600_000)
    world.until(lambda: query.plan(FIRST, None) is FIRST and query._positions)
    world.idle(query, FIRST)
    query._planned_s -= 3_601

    assert world.plan(query, FIRST).n == 1


def test_a_demand_waits_for_the_batch_that_reads_it_and_carries_its_commit(
    world: SourceWorld,
) -> None:
    one = world.query()
    first = world.plan(one, FIRST)
    two = world.query()
    world.until(lambda: one._leaving)
    (asked,) = one._leaving
    world.idle(two, FIRST)
    assert one._owned.keys() == set(t(0, 1)), "it is not let go in the middle of a batch"

    one.plan(first, None)
    world.bounds = {0: Bounds(0, 11), 1: Bounds(0, 11)}
    theirs = world.plan(two, replace(FIRST, query="q2"))
    assert ranges(theirs) == {asked.partition: (10, 11)}
    mine = world.plan(one, first)
    assert ranges(mine) == {1 - asked.partition: (10, 11)}


def test_a_partition_that_no_batch_reads_is_let_go_at_once(world: SourceWorld) -> None:
    one = world.query()
    first = world.plan(one, FIRST)
    world.idle(one, first, 3)
    two = world.query()

    world.until(lambda: two._owned)  # `one.plan` is not called meanwhile


def test_nothing_is_committed_of_what_was_lost(world: SourceWorld) -> None:
    transport = world.log.transport()
    one = world.query(transport)
    first = world.plan(one, FIRST)
    transport.is_cut = True
    world.until(lambda: not one._owned)
    before = world.commits()
    world.bounds = {0: Bounds(0, 11), 1: Bounds(0, 11)}
    world.idle(one, first)
    transport.is_cut = False
    # It joins again; its batch was through, and nobody else has committed: so these ends count.
    again = world.plan(one, first)

    assert ranges(again) == {0: (10, 11), 1: (10, 11)}
    assert world.commits()[: len(before)] == before


def restarted(world: SourceWorld, last: Offset) -> Offset:
    """The first batch of a query that starts from its checkpoint."""
    world.bounds = {0: Bounds(0, 12), 1: Bounds(0, 12)}
    return world.plan(world.query(), last)


def stop(world: SourceWorld, query: SourceMember) -> None:
    leaving = threading.Thread(target=query.close)
    leaving.start()
    world.until(lambda: not leaving.is_alive())
    world.queries.remove(query)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_query_that_starts_again_reads_nothing_twice(
    world: SourceWorld, is_committed: bool
) -> None:
    query = world.query()
    last = world.plan(query, FIRST)
    if is_committed:
        world.idle(query, last)
    stop(world, query)

    assert ranges(restarted(world, last)) == {0: (10, 12), 1: (10, 12)}


def test_a_reset_that_was_made_meanwhile_holds(world: SourceWorld) -> None:
    query = world.query()
    last = world.plan(query, FIRST)
    stop(world, query)
    world.reset(0, 4)

    assert ranges(restarted(world, last)) == {0: (4, 12), 1: (10, 12)}


def test_what_another_query_has_read_since_is_not_read_again(world: SourceWorld) -> None:
    query = world.query()
    last = world.plan(query, FIRST, 4)
    stop(world, query)
    other = world.query()
    through = world.plan(other, replace(FIRST, query="q2"))
    world.idle(other, through)
    stop(world, other)

    assert ranges(restarted(world, last)) == {0: (10, 12), 1: (10, 12)}


def test_a_member_that_is_refused_for_good_fails_its_query(world: SourceWorld) -> None:
    query = world.query(strategy="no such strategy")

    with pytest.raises(GroupError):
        world.until(lambda: query.plan(FIRST, None) is not FIRST)


def test_a_query_waits_while_no_broker_answers(world: SourceWorld) -> None:
    query = world.query()
    last = world.plan(query, FIRST)
    world.brokers_answer = False
    world.bounds = {0: Bounds(0, 12), 1: Bounds(0, 12)}
    world.idle(query, last)
    world.brokers_answer = True

    assert ranges(world.plan(query, last)) == {0: (10, 12), 1: (10, 12)}


@pytest.mark.parametrize("is_strict", [True, False])
def test_records_that_are_gone_fail_a_strict_query_alone(
    world: SourceWorld, is_strict: bool
) -> None:
    query = world.query(is_strict=is_strict)
    last = world.plan(query, FIRST)
    world.bounds = {0: Bounds(15, 20), 1: Bounds(0, 10)}
    if is_strict:
        with pytest.raises(CoordError, match="gone before they were read"):
            world.plan(query, last)
    else:
        assert ranges(world.plan(query, last)) == {0: (15, 20)}


@pytest.mark.parametrize("otherwise", ["earliest", "latest"])
def test_a_query_that_was_away_for_longer_than_offsets_are_kept_goes_on(
    world: SourceWorld, otherwise: str
) -> None:
    """Its checkpoint has where it ended; of a partition that its last batch did not read, it begins
    at the start: at the end it would miss records."""
    query = world.query()
    last = world.plan(query, FIRST)
    world.idle(query, last)
    world.bounds[0] = Bounds(0, 11)
    last = world.plan(query, last)
    world.idle(query, last)
    stop(world, query)
    request = api.DeleteGroup(v=1, id="ops", client="ops", group="g")
    world.log.append(0, request)
    world.log.pump()
    world.bounds = {0: Bounds(0, 12), 1: Bounds(0, 12)}

    assert ranges(world.plan(world.query(otherwise=otherwise), last)) in (
        {0: (11, 12), 1: (0, 12)},
        {0: (11, 12)},
    )


def test_a_new_query_begins_at_the_end_by_default(world: SourceWorld) -> None:
    query = world.query(otherwise="latest")
    world.until(lambda: query.plan(FIRST, None) is FIRST and len(query._positions) == 2)
    world.bounds[1] = Bounds(0, 12)

    assert ranges(world.plan(query, FIRST)) == {1: (10, 12)}


def test_a_topic_that_is_made_anew_under_a_query_begins_at_its_start(world: SourceWorld) -> None:
    """It is longer than the old one by now: no offset tells them apart, only the id."""
    query = world.query(otherwise="latest")
    world.until(lambda: query.plan(FIRST, None) is FIRST and len(query._positions) == 2)
    world.bounds = {0: Bounds(0, 12), 1: Bounds(0, 12)}
    last = world.plan(query, FIRST)
    world.log.make_anew("t")
    world.log.tell_topics()
    world.bounds = {0: Bounds(0, 20), 1: Bounds(0, 20)}
    begun: list[Offset] = [last]

    def begins_anew() -> bool:
        # What was planned before the id was known may be of either topic.
        begun.append(query.plan(begun[-1], None))
        world.log.advance(2_000)
        return (each := begun[-1].read.get(t(0)[0])) is not None and each.begin == 0

    world.until(begins_anew)

    assert ranges(begun[-1]) == {0: (0, 20), 1: (0, 20)}


def test_a_grant_that_is_over_says_nothing_of_the_next(world: SourceWorld) -> None:
    """A partition went away and came back before the first answer was looked at; others have
    committed meanwhile."""
    query = world.query()
    world.until(lambda: len(query._starts) == 1 and query._starts[0][0].answer.done())
    old = query._starts[0]
    fences = {place: fence - 1 for place, fence in old[1].items()}
    query._starts[0] = (old[0], fences)

    query._begin(FIRST)
    assert query._positions == {}


def test_a_row_that_is_refused_for_good_is_not_sent_for_ever(world: SourceWorld) -> None:
    query = world.query()
    last = world.plan(query, FIRST)
    world.log.make_anew("t")  # commits are of a topic that is no more
    world.log.tell_topics()
    world.bounds = {0: Bounds(0, 0), 1: Bounds(0, 0)}
    world.idle(query, last, 40)
    before = len(world.commits())
    world.idle(query, last, 40)

    assert len(world.commits()) == before
    assert query._commits.are_settled


def test_commits_do_not_wait_for_each_other(world: SourceWorld) -> None:
    """The job is away: the log keeps them, in order."""
    query = world.query()
    last = world.plan(query, FIRST)
    world.idle(query, last)
    world.log.job_is_up = False
    for end in (11, 12, 13):
        world.bounds[0] = Bounds(0, end)
        last = query.plan(last, None)
        assert last.read
    query.plan(last, None)
    world.log.job_is_up = True
    world.until(lambda: query.plan(last, None) is last and query._commits.are_settled)

    assert [row[:2] for row in world.commits()[-3:]] == [(0, 11), (0, 12), (0, 13)]


def test_a_topic_that_was_made_anew_begins_at_its_start(world: SourceWorld) -> None:
    query = world.query()
    last = world.plan(query, FIRST)
    world.idle(query, last)
    stop(world, query)
    world.log.make_anew("t")
    world.log.tell_topics()
    world.bounds = {0: Bounds(0, 3), 1: Bounds(0, 3)}

    assert ranges(world.plan(world.query(), last)) == {0: (0, 3), 1: (0, 3)}


def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged from now on."""
    said: list[str] = []
    log = SimpleNamespace(warning=lambda text, **_: said.append(text))
    monkeypatch.setattr(source_member, "_log", log)
    return said


def test_a_query_without_partitions_says_so_once(
    world: SourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = warnings(monkeypatch)
    monkeypatch.setattr(source_member, "_NOTHING_S", -1.0)
    query = world.query(topics=("elsewhere",))
    world.idle(query, FIRST)

    assert len(said) == 1
    assert "there may be no such topic" in said[0]


def test_batches_that_are_far_apart_are_warned_of_once(
    world: SourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = warnings(monkeypatch)
    query = world.query()
    last = world.plan(query, FIRST)
    for _ in range(2):
        query._called_s -= TIMING.rebalance_timeout_ms / 1000
        world.idle(query, last, 1)

    assert len(said) == 1
    assert "max.poll.interval.ms" in said[0]


# ---- Trigger.AvailableNow ------------------------------------------------------------------------


def available_now(
    world: SourceWorld, query: SourceMember, meanwhile: Callable[[], None] = lambda: None
) -> list[Offset]:
    """All batches of a query with that trigger, in Spark's thread."""
    batches: list[Offset] = []
    raised: list[Exception] = []

    def run() -> None:
        try:
            query.read_only_until_now()
            batches.append(query.plan(FIRST, 6))
            meanwhile()
            while len(batches) < 2 or batches[-1] is not batches[-2]:
                batches.append(query.plan(batches[-1], 6))
        except Exception as problem:  # noqa: BLE001  # raised below
            raised.append(problem)

    spark = threading.Thread(target=run)
    spark.start()
    world.until(lambda: not spark.is_alive())
    if raised:
        raise raised[0]
    return batches[:-1]


def test_available_now_reads_what_was_there_and_ends_when_it_is_committed(
    world: SourceWorld,
) -> None:
    query = world.query()
    batches = available_now(world, query)

    assert sum(each.size for batch in batches for each in batch.read.values()) == 20
    assert {row[:2] for row in world.commits()} >= {(0, 10), (1, 10)}


def test_available_now_does_not_read_what_comes_later(world: SourceWorld) -> None:
    def more_comes() -> None:
        world.bounds = {0: Bounds(0, 99), 1: Bounds(0, 99)}

    batches = available_now(world, world.query(), more_comes)

    assert sum(each.size for batch in batches for each in batch.read.values()) == 20


def test_available_now_does_not_end_while_the_member_may_not_work(world: SourceWorld) -> None:
    """Its session is over in the middle: it reads on when it is back."""
    transport = world.log.transport()
    query = world.query(transport)

    def cut() -> None:
        transport.is_cut = True
        threading.Timer(1.0, lambda: setattr(transport, "is_cut", False)).start()

    batches = available_now(world, query, cut)

    assert sum(each.size for batch in batches for each in batch.read.values()) >= 20
    assert {row[:2] for row in world.commits()} >= {(0, 10), (1, 10)}


def test_available_now_says_who_does_not_answer(world: SourceWorld) -> None:
    world.log.job_is_up = False
    timing = replace(TIMING, rebalance_timeout_ms=200, session_timeout_ms=8_000)
    query = world.query()
    query._options = replace(query._options, timing=timing)

    with pytest.raises(CannotReach, match="coordinator does not answer"):
        available_now(world, query)


def test_a_consumer_takes_over_where_the_query_committed(world: SourceWorld) -> None:
    query = world.query()
    last = world.plan(query, FIRST)
    world.idle(query, last)
    stop(world, query)
    member = AssignedMember("g", transport=world.log.transport(), timing=TIMING, client="c")
    member.subscribe(["t"])
    world.until(lambda: member.poll() or len(member.assignment) == 2)
    asked = member.committed_async(t(0, 1))
    world.until(asked.done)
    member.close(timeout_s=0)

    rows = asked.result().offsets
    assert {(row.partition, row.offset) for row in rows} == {(0, 10), (1, 10)}

"""Ctrl-C in calls of operators' clients, brokers, producers and readers.  # INV-141

`test_interrupted.py` has members of groups and claims, `transactions/test_interrupted.py` units of
work.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from coordlib.client.admin import Admin
from coordlib.client.transactions.committed_reader import CommittedReader
from coordlib.core.wire import api
from coordlib.errors import GroupError
from coordlib.testing.fake_log import FakeLog
from tests.client.controller.world import CLUSTER, World
from tests.client.interrupting import interrupt_everywhere
from tests.client.test_consumer import FakeReader, Program
from tests.client.test_interrupted import Given, read_log
from tests.client.transactions.data import PATIENCE_S, FakeCluster, FakeConsumer, FakeProducer
from tests.client.transactions.test_by_coordinator import policies  # noqa: F401  # a fixture
from tests.client.transactions.test_committed_reader import open_reader, producer_of, read
from tests.tools import clusters as c
from tests.tools.background import judged

Interrupted = Callable[[Callable[[], Any]], Any]
OUT = TopicPartition("out", 0, 0)


# ---- operators ----------------------------------------------------------------------------------


@pytest.fixture
def log() -> Iterator[FakeLog]:
    """A log whose coordinator judges in the background."""
    with judged(FakeLog({"t": 1})) as log:
        yield log


def said(call: Callable[[], Any]) -> str:
    try:
        return str(call())
    except GroupError as refused:
        return refused.code.name


ASKED: dict[str, Callable[[Admin], Any]] = {
    "a group": lambda admin: admin.describe_group("g").state,
    "a cluster": lambda admin: admin.metadata(CLUSTER),
    "a transaction": lambda admin: admin.abort_transaction("id"),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_question_that_is_interrupted_can_be_asked_again(log: FakeLog, asked: str) -> None:
    transport = log.transport()
    admin = Admin(transport=transport)
    expected = said(lambda: ASKED[asked](admin))

    def course(interrupted: Interrupted) -> None:
        interrupted(lambda: said(lambda: ASKED[asked](admin)))
        assert said(lambda: ASKED[asked](admin)) == expected

    interrupt_everywhere(course, least=20, step=2)


# ---- brokers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["poll", "ready", "alter", "stop", "close"])
def test_a_broker_that_is_interrupted_leads_and_leaves(what: str) -> None:
    def course(interrupted: Interrupted) -> None:
        world = World()
        (store,) = world.start(1, is_ready=False)
        agent = store.agent
        if what == "ready":
            interrupted(agent.ready)
        agent.ready()
        world.run(1_000)
        world.log.append(0, c.create(c.new_topic("t", assignment=[(1,)]), group=CLUSTER))
        world.log.pump()
        if what == "poll":
            interrupted(agent.poll)
        world.run(1_000)
        assert agent.may_lead("t", 0)
        assert store.kinds()[-1] == "leader"
        if what == "alter":
            interrupted(lambda: agent.alter_isr("t", 0, {1: agent.incarnation}))
            world.run(1_000)
            future = agent.alter_isr("t", 0, {1: agent.incarnation})
            world.run(1_000)
            assert future.result(0).isr == (1,)
        if what == "stop":
            interrupted(agent.stop)
        if what == "close":
            interrupted(lambda: agent.close(timeout_s=0))
        agent.close(timeout_s=0)
        world.log.pump()
        (left,) = [r for b in world.log.batches for r in b if isinstance(r, api.LeaveGroup)]
        assert left
        assert "fenced" in store.kinds()

    interrupt_everywhere(course, least=2, step=2)


# ---- producers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["produce", "poll", "flush", "close"])
def test_a_producer_without_id_that_is_interrupted_loses_no_number(what: str) -> None:
    """A number that no record has stops all readers of the partition."""

    def course(interrupted: Interrupted) -> None:
        log = FakeLog({})
        cluster = FakeCluster(log)
        producer = producer_of(log, cluster)

        def write(value: str) -> None:
            producer.produce("out", value, partition=0)

        write("a")
        if what == "produce":
            interrupted(lambda: write("b"))
        else:
            write("b")
            interrupted(producer.close if what == "close" else getattr(producer, what))
        write("c")
        assert producer.flush(PATIENCE_S) == 0
        given = read(open_reader(log, cluster))
        assert given in (["a", "b", "c"], ["a", "c"] if what == "produce" else None)

    interrupt_everywhere(course, FakeProducer, least=2)


# ---- readers ------------------------------------------------------------------------------------


CHANGES: dict[str, tuple[Callable[[CommittedReader], Any], set[int]]] = {
    "seek": (lambda reader: reader.seek(TopicPartition("out", 0, 7)), {7}),
    "pause": (lambda reader: reader.pause([OUT]), set()),
    "assign": (lambda reader: reader.assign([OUT]), {0}),
    "incremental_unassign": (lambda reader: reader.incremental_unassign([OUT]), set()),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_a_committed_reader_is_done_or_not_begun(what: str) -> None:
    """Records of `data.FakeConsumer`, which goes back where it is set."""
    change, then = CHANGES[what]

    def course(interrupted: Interrupted) -> None:
        cluster = FakeCluster(FakeLog({}))
        cluster.records["out", 0] = [(each.body, each.headers()) for each in read_log("numbered")]
        reader = CommittedReader({}, data_consumer=FakeConsumer(cluster))
        reader.assign([OUT])
        given = reader.consume(3, 0)
        interrupted(lambda: change(reader))
        after = [each.offset() for each in reader.consume(2, 0)][:1]
        assert len(given) == 3
        assert set(after) in ({3}, then)

    interrupt_everywhere(course, FakeConsumer, least=1)


def test_a_close_of_a_committed_reader_that_is_interrupted_goes_on() -> None:
    def course(interrupted: Interrupted) -> None:
        given = Given(read_log("plain"))
        closed: list[int] = []
        given.close = lambda: closed.append(1)  # type: ignore[attr-defined]
        reader = CommittedReader({}, data_consumer=given)
        interrupted(reader.close)
        reader.close()
        assert closed

    interrupt_everywhere(course, Given, least=1)


# ---- the other calls of a consumer --------------------------------------------------------------


CALLS: dict[str, Callable[[Any], Any]] = {
    "subscribe": lambda consumer: consumer.subscribe(["t"]),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "pause": lambda consumer: consumer.pause([TopicPartition("t", 0)]),
    "unassign": lambda consumer: consumer.unassign(),
    "position": lambda consumer: consumer.position([TopicPartition("t", 0)]),
    "assignment": lambda consumer: consumer.assignment(),
    "metadata": lambda consumer: consumer.consumer_group_metadata(),
}


@pytest.mark.parametrize("what", CALLS)
def test_after_any_call_of_a_consumer_that_is_interrupted_it_reads_on(what: str) -> None:
    def course(interrupted: Interrupted) -> None:
        log = FakeLog({"t": 1})
        log.tell_topics()
        a = Program(log, "a")
        for _ in range(4):
            a.settle()
        a.poll()
        interrupted(lambda: CALLS[what](a.consumer))
        a.consumer.subscribe(["t"])
        for _ in range(8):
            a.poll()
            log.advance(500, a.consumer.member.poll)
        a.consumer.assign([TopicPartition("t", 0)])
        a.consumer.resume([TopicPartition("t", 0)])
        a.settle()
        a.consumer.seek(TopicPartition("t", 0, 0))
        assert a.poll() == (0, 0)
        a.consumer.close(0)
        assert a.reader.is_closed

    interrupt_everywhere(course, FakeReader, least=1)

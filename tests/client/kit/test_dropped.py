"""A program drops a client without `close`: its threads end, and no heartbeats follow (INV-143)."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from coordlib.client import BrokerAgent
from coordlib.client.admin import Admin
from coordlib.client.claims.options import ConsumerOptions
from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.kit.transport import FailingTransport, while_used
from coordlib.client.transactions.committed_reader import CommittedReader
from coordlib.testing.fake_log import FakeLog
from tests.client.claims.fake_claims import FakeClaimsLog
from tests.client.claims.world import marshaler_of
from tests.client.controller.test_running import CLUSTER, ENDPOINTS
from tests.client.interrupting import HANGS_S
from tests.client.test_consumer import CONFIG, FakeReader, Program
from tests.client.transactions.data import FakeCluster, FakeConsumer
from tests.client.transactions.test_committed_reader import producer_of
from tests.client.transactions.test_interrupted import ByCoordinator, ByKafka


class Transport(FailingTransport[Any]):
    """Two threads, as the real ones have."""

    def __init__(self) -> None:
        self._is_closed = threading.Event()
        pause = threading.Event()
        self.turns = SimpleQueue[int]()
        self.threads = [
            self._start(name, lambda: pause.wait(0.01), Transport._turn) for name in ("a", "b")
        ]

    def _turn(self, _found: object) -> None:
        self.turns.put(threading.get_ident())

    def _guarded(self, turn: Callable[[], None]) -> bool:
        turn()
        return True

    def _all(self) -> list[Any]:
        return []

    def _named(self, handler: object) -> str:
        return str(handler)


def test_the_threads_of_a_transport_that_nobody_has_end() -> None:
    """They held it, and each other: 26 descriptors of each dropped consumer stayed for ever."""
    transport = Transport()
    threads, turned = transport.threads, set[int]()
    while len(turned) < len(threads):  # each has had the transport
        turned.add(transport.turns.get())
    del transport

    for each in threads:
        each.join(HANGS_S)
    assert not any(each.is_alive() for each in threads)


def test_a_consumer_that_is_dropped_is_collected_with_its_member() -> None:
    """A fake transport holds its handlers, so that the member here is not the transport's."""
    program = Program(FakeLog({"t": 1}), "a")
    consumer = program.consumer
    program.transport.detach(consumer.member)
    gone = weakref.ref(consumer), weakref.ref(consumer.member)
    told = while_used(lambda handler: handler.poll(), consumer.member)
    assert isinstance(program.reader, FakeReader)
    del consumer, program
    gc.collect()

    assert [each() for each in gone] == [None, None]
    told()  # an acknowledgement that comes later


def test_a_transport_whose_owner_was_dropped_ends_whatever_holds_it() -> None:
    transport = Transport()
    transport.is_dropped = True

    for each in transport.threads:
        each.join(HANGS_S)
    assert not any(each.is_alive() for each in transport.threads)


@pytest.fixture
def no_gc() -> Iterator[None]:
    """A program that makes little may not collect cycles for hours."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("protocol", ["classic", "assigned"])
def test_a_consumer_that_is_dropped_stops_before_anything_is_collected(protocol: str) -> None:
    """Heartbeats went on until the next collection of cycles, and its partitions were unread."""
    log = FakeLog({"t": 1})
    log.tell_topics()
    config = {**CONFIG, "client.id": "a", "group.protocol": protocol}
    transport = log.transport()
    consumer = CoordinatedConsumer(config, transport=transport, data_consumer=FakeReader())
    consumer.subscribe(["t"], on_assign=lambda *_: None)
    while not consumer.assignment():
        log.advance(100)
        consumer.poll(0)
    member = consumer.member
    del consumer

    assert member.is_dropped
    b = Program(log, "b", **{"group.protocol": protocol})
    log.advance(20_000, b.poll)
    assert [each.partition for each in b.consumer.assignment()] == [0]


@pytest.mark.usefixtures("no_gc")
def test_other_clients_that_are_dropped_are_collected() -> None:
    """With their last reference, so that no signs of life follow. A fake transport holds its
    handlers, and is made to let go."""
    log = FakeLog({"t": 1})
    transport, claims = log.transport(), FakeClaimsLog({"t": 1})
    claims_transport = claims.transport()
    marshaler = marshaler_of(claims, claims_transport)
    made: list[Any] = [
        CommittedReader({}, data_consumer=FakeConsumer(FakeCluster(log))),
        producer_of(log, FakeCluster(log)),
        ByCoordinator(log, FakeCluster(log)).producer,
        ByKafka(log, "k").producer,
        Admin(transport=transport),
        BrokerAgent(CLUSTER, broker=1, endpoints=ENDPOINTS, transport=transport),
        marshaler.consumer(["t"], ConsumerOptions()),
        marshaler,
    ]
    log.pump()
    for each in [*log._transports, *claims.transports]:
        each._handlers.clear()
    gone = {type(each).__name__: weakref.ref(each) for each in made}
    each = None
    del made, marshaler
    left = {name for name, each in gone.items() if each() is not None}
    assert left <= {"CoordinatedProducer", "IdempotentProducer"}  # they write no signs of life
    gc.collect()
    assert [name for name, each in gone.items() if each() is not None] == []

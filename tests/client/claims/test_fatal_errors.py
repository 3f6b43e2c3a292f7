"""A producer of claims that has failed for ever: all stop at once, with a sentence (INV-156)."""

import logging
import threading
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.client.claims import events as sg
from coordlib.client.claims.kafka import KafkaClaims
from coordlib.client.claims.transport import Coordination
from coordlib.core.wire.claims import Heartbeat
from coordlib.errors import CannotReach
from tests.kafka.queue_producer import Queue

FATAL = KafkaError(KafkaError._FATAL, "the numbers are not in order", fatal=True)
TOPIC = "__marshal.6s"
SENTENCE = f"The transport has failed: the numbers are not in order\n{TOPIC}\nClose these clients"


class Handler:
    """A consumer, as the transport sees it."""

    def __init__(self) -> None:
        self.fed: list[sg.Input] = []
        self.failure: Exception | None = None
        self.on_fed = lambda: None

    def feed(self, event: sg.Input) -> None:
        self.fed.append(event)
        self.on_fed()

    def wake_ms(self) -> int | None:
        return 0

    def fail(self, problem: Exception) -> None:
        self.failure = problem


class BareClaims(KafkaClaims):
    """The transport without a broker; turns of its threads are taken by the test."""

    def __init__(self, *handlers: Handler) -> None:
        self.lock = threading.RLock()
        self._options, self._topic = {"bootstrap.servers": "nowhere:1"}, TOPIC
        self.place = Coordination(TOPIC, 4, "id", 6_000)
        self._views, self._kept = {}, []
        self._handlers = [lambda handler=each: handler for each in handlers]  # type: ignore[misc]
        self._unsent, self._is_closed = SimpleQueue(), threading.Event()
        self._producer: Any = Queue({})
        #: Nothing is found of the topic: it is away.
        self._reader = SimpleNamespace(admin=SimpleNamespace(), close=lambda: None)  # type: ignore[assignment]
        self._looked_ms = self._timers_ms = 0
        self.looks = 0

    def now_ms(self) -> int:
        return 1_000

    def _look(self) -> None:
        self.looks += 1

    def sign(self, handler: Any) -> None:
        self.send(handler, 1, 0, lambda now: Heartbeat(1, now, "1", "c", "g", "t", 0, 5))


def raise_(problem: Exception) -> None:
    raise problem


@pytest.fixture
def scene() -> tuple[BareClaims, Handler, Handler]:
    one, other = Handler(), Handler()
    return BareClaims(one, other), one, other


def must_have_stopped(transport: BareClaims, *handlers: Handler) -> None:
    for each in handlers:
        assert str(each.failure).startswith(SENTENCE)
    with pytest.raises(CannotReach, match="the numbers are not in order"):
        transport.check()


def test_a_message_that_it_gives_up_stops_all(scene: tuple[BareClaims, Handler, Handler]) -> None:
    """The others handed out messages until their fences closed; who waited for a flush or a close
    waited until its time was up, and was given another reason."""
    transport, one, other = scene
    transport.sign(one)
    transport._producer.end(FATAL)

    must_have_stopped(transport, one, other)


def test_an_error_that_poll_raises_stops_all(scene: tuple[BareClaims, Handler, Handler]) -> None:
    transport, one, other = scene

    assert not transport._guarded(lambda: raise_(KafkaException(FATAL)))
    must_have_stopped(transport, one, other)
    assert transport.looks == 1  # whether the topic was made anew, which would be the reason


def test_a_flush_that_meets_it_is_no_kafka_exception(
    scene: tuple[BareClaims, Handler, Handler],
) -> None:
    transport, one, other = scene
    transport._producer.flush = lambda _: raise_(KafkaException(FATAL))

    assert not transport.flush(60)
    must_have_stopped(transport, one, other)


def test_any_other_failure_of_a_thread_is_told_to_all(
    scene: tuple[BareClaims, Handler, Handler], caplog: pytest.LogCaptureFixture
) -> None:
    transport, one, other = scene
    with caplog.at_level(logging.CRITICAL):
        assert not transport._guarded(lambda: raise_(LookupError("no view")))

    for each in (one, other):
        assert str(each.failure).startswith("The transport has failed: LookupError('no view')")


def test_a_consumer_that_sends_again_at_once_holds_up_nobody(
    scene: tuple[BareClaims, Handler, Handler],
) -> None:
    transport, one, other = scene
    transport._producer.is_full = True
    one.on_fed = lambda: transport.sign(one) if len(one.fed) < 1_000 else None
    transport.sign(one)
    transport._serve(None)

    assert [type(each) for each in one.fed] == [sg.NotWritten, sg.Elapsed]
    assert [type(each) for each in other.fed] == [sg.Elapsed]

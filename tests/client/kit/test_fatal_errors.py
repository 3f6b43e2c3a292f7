"""A fatal error of the producer of requests ends the producer, and not the members' transport."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.client.kit import events as sg
from coordlib.client.kit.reading import ResponsesGone
from coordlib.client.kit.transport import KafkaTransport
from coordlib.core.wire import api
from coordlib.errors import CannotReach, NotAllowed
from coordlib.kafka import producer
from tests.client.test_one_handler import BareTransport, Handler
from tests.kafka.queue_producer import Queue

FATAL = KafkaError(KafkaError._FATAL, "the numbers are not in order", fatal=True)
DENIED = KafkaError(KafkaError._FATAL, "x: Broker: Cluster authorization failed", fatal=True)


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> list[Queue]:
    monkeypatch.setattr(Queue, "made", [])
    monkeypatch.setattr(producer, "Producer", Queue)
    return Queue.made


def send(transport: KafkaTransport, handler: Any, id_: str) -> None:
    request = api.FindCoordinator(v=1, id=id_, client="c", group="g", reply=0)
    transport.send(handler, request)


def raise_(problem: Exception) -> None:
    raise problem


def serve(transport: BareTransport) -> None:
    transport.run(lambda: transport._serve(None))


def told(handler: Any) -> list[sg.Input]:
    return [each for each in handler.fed if not isinstance(each, sg.Elapsed)]


def test_another_producer_writes_on_and_members_join_anew(queues: list[Queue]) -> None:
    """INV-105: the log was cut, and offsets may not show it. Every member was dead for good."""
    one, other = Handler("aa"), Handler("bb")
    transport = BareTransport(one, other)
    send(transport, one, "aa-1")
    send(transport, other, "bb-1")
    queues[0].end(FATAL)
    serve(transport)
    send(transport, one, "aa-2")

    transport.check()
    assert [len(each.waiting) for each in queues] == [0, 1]
    for handler in (one, other):
        written, cut = told(handler)
        assert isinstance(written, sg.NotWritten)
        assert not written.is_final
        assert isinstance(cut, sg.LogCut)


@pytest.mark.parametrize("raised", [FATAL, KafkaError(KafkaError._FATAL, "dead")])
def test_the_thread_that_sends_outlives_an_error_that_poll_raises(
    raised: KafkaError, queues: list[Queue]
) -> None:
    transport = BareTransport()
    queues[0].on_poll = lambda: raise_(KafkaException(raised))

    assert transport._guarded(lambda: transport._producer.poll(0))
    transport.check()


def test_a_fatal_error_of_the_reader_is_not_taken_for_the_producers(queues: list[Queue]) -> None:
    """INV-156. Nothing replaces the reader: its thread raised again at once, for ever, and every
    member of the transport was deaf."""
    transport = BareTransport()

    assert not transport._guarded(lambda: raise_(KafkaException(FATAL)))
    with pytest.raises(CannotReach, match="transport has failed: the numbers are not in order"):
        transport.check()


def test_a_member_that_sends_again_at_once_holds_up_nobody(queues: list[Queue]) -> None:
    """INV-156. The queue is full for as long as the broker is away: each of its requests came back
    within the turn, and no timer of any member and no acknowledgement had its turn."""
    one, other = Handler("aa"), Handler("bb")
    transport = BareTransport(one, other)
    queues[0].is_full = True

    def send_again(event: sg.Input) -> None:
        one.fed.append(event)
        if isinstance(event, sg.NotWritten) and len(one.fed) < 1_000:  # a test ends all the same
            send(transport, one, "aa-2")

    one.feed = send_again  # type: ignore[method-assign]
    send(transport, one, "aa-1")
    serve(transport)

    assert len(told(one)) == 1
    assert len(other.fed) == 1  # the time


def test_members_join_anew_where_responses_are_gone(queues: list[Queue]) -> None:
    """INV-156. A laptop that slept for longer than the topic keeps responses, or a log that has
    lost its end: every member of the program was dead for good."""
    one, other = Handler("aa"), Handler("bb")
    transport, starts = BareTransport(one, other), list[float]()
    away = [CannotReach("no broker")]

    def start(timeout_s: float) -> None:
        starts.append(timeout_s)
        if away:
            raise away.pop()

    transport._reader.start = start
    gone = ResponsesGone("Responses are gone unread: out of range", "coord.responses, partition 0")
    assert transport._guarded(lambda: raise_(gone))
    assert one.fed == []
    assert transport._guarded(lambda: raise_(gone))

    assert len(starts) == 2
    for handler in (one, other):
        assert [type(each) for each in handler.fed] == [sg.LogCut]
    transport.check()


def test_a_reader_whose_right_is_gone_too_ends(queues: list[Queue]) -> None:
    transport = BareTransport()
    transport._reader.start = lambda _: raise_(NotAllowed("A right is missing."))

    assert not transport._guarded(lambda: raise_(ResponsesGone("gone")))
    with pytest.raises(NotAllowed):
        transport.check()


def test_a_transport_that_its_members_outlive_says_so(queues: list[Queue]) -> None:
    """INV-156. The library's RuntimeError came out of a poll; without it a poll would be silent."""
    handler = Handler("aa")
    transport = BareTransport(handler)
    transport._threads = []
    transport._reader.close = lambda: None
    transport.close()
    send(transport, handler, "aa-1")

    with pytest.raises(CannotReach, match="The transport is closed"):
        transport.check()


def test_a_right_that_is_missing_stays_final(queues: list[Queue]) -> None:
    handler = Handler("aa")
    transport = BareTransport(handler)
    send(transport, handler, "aa-1")
    queues[0].end(DENIED)
    serve(transport)

    with pytest.raises(NotAllowed):
        transport.check()
    assert len(queues) == 1
    (written,) = told(handler)
    assert isinstance(written, sg.NotWritten)
    assert written.is_final

"""A fatal error of the producer of requests ends the producer, and not the members' transport."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.client.machine import signals as sg
from coordlib.client.shell.transport import KafkaTransport
from coordlib.errors import NotAllowed
from coordlib.kafka import producer
from coordlib.records import requests as rq
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
    request = rq.FindCoordinator(v=1, id=id_, client="c", group="g", reply=0)
    transport.send(handler, request)


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
def test_the_thread_that_sends_outlives_an_error_that_poll_raises(raised: KafkaError) -> None:
    transport = BareTransport()

    def poll() -> None:
        raise KafkaException(raised)

    assert transport._guarded(poll)
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

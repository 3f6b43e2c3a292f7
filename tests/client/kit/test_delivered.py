"""What transports make of a message that was written, and nobody says where.

After a connection was lost librdkafka sends again what may be written already. A broker that has it
answers with DUPLICATE_SEQUENCE_NUMBER: then the message counts as delivered, without an offset.
"""

from threading import RLock
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from confluent_kafka import Message

from coordlib.client.claims import events as claims
from coordlib.client.claims.events import CoordinationTopicChanged
from coordlib.client.claims.kafka import KafkaClaims
from coordlib.client.claims.transport import Coordination
from coordlib.client.kit import events as members
from coordlib.client.kit.reading import Mark
from coordlib.client.kit.transport import KafkaTransport

UNKNOWN = Message(topic="t", partition=0, offset=-1001)


class Handler:
    """Notes what it is fed."""

    def __init__(self) -> None:
        self.fed: list[Any] = []
        self.identity = SimpleNamespace(shard=0)

        self.failed: list[Exception] = []

    def fail(self, problem: Exception) -> None:
        self.failed.append(problem)

    def feed(self, event: Any) -> None:
        self.fed.append(event)


def test_a_claim_without_a_place_in_the_log_is_tried_again() -> None:
    """It ended the thread that sends, and with it all claims of the program."""
    handler: Any = Handler()
    transport = KafkaClaims.__new__(KafkaClaims)
    transport._delivered(handler, 7, 1_000, -1, None, UNKNOWN)

    (event,) = handler.fed
    assert isinstance(event, claims.NotWritten)
    assert event.id == 7


def test_a_claim_below_what_was_read_ends_all_claims() -> None:
    """The coordination topic has lost its end: its epoch was another one's before.  # INV-105"""
    handler: Any = Handler()
    transport = KafkaClaims.__new__(KafkaClaims)
    transport.lock, transport._handlers = RLock(), [ref(handler)]
    transport.place = Coordination("__marshal", 1, "id", 5_000)
    transport._delivered(handler, 7, 1_000, 41, None, Message(topic="t", partition=0, offset=41))

    assert handler.fed == []
    (problem,) = handler.failed
    assert "has lost its end: offset 41 was there" in str(problem)
    with pytest.raises(CoordinationTopicChanged):
        transport.check()


def test_a_request_without_a_place_in_the_log_is_tried_again() -> None:
    """The same for members, of whom no heartbeat would have followed."""
    handler: Any = Handler()
    transport = KafkaTransport.__new__(KafkaTransport)
    transport._delivered(handler, "q7", Mark(1_000), None, UNKNOWN)

    (event,) = handler.fed
    assert isinstance(event, members.NotWritten)
    assert (event.id, event.is_final) == ("q7", False)

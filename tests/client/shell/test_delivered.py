"""What transports make of a message that was written, and nobody says where.

After a connection was lost librdkafka sends again what may be written already. A broker that has it
answers with DUPLICATE_SEQUENCE_NUMBER: then the message counts as delivered, without an offset.
"""

from types import SimpleNamespace
from typing import Any

from confluent_kafka import Message

from coordlib.client.claims import signals as claims
from coordlib.client.claims.shell.kafka import KafkaClaims
from coordlib.client.machine import signals as members
from coordlib.client.shell.transport import KafkaTransport

UNKNOWN = Message(topic="t", partition=0, offset=-1001)


class Handler:
    """Notes what it is fed."""

    def __init__(self) -> None:
        self.fed: list[Any] = []
        self.identity = SimpleNamespace(shard=0)

    def feed(self, event: Any) -> None:
        self.fed.append(event)


def test_a_claim_without_a_place_in_the_log_is_tried_again() -> None:
    """It ended the thread that sends, and with it all claims of the program."""
    handler: Any = Handler()
    transport = KafkaClaims.__new__(KafkaClaims)
    transport._delivered(handler, 7, 1_000, None, UNKNOWN)

    (event,) = handler.fed
    assert isinstance(event, claims.NotWritten)
    assert event.id == 7


def test_a_request_without_a_place_in_the_log_is_tried_again() -> None:
    """The same for members, of whom no heartbeat would have followed."""
    handler: Any = Handler()
    transport = KafkaTransport.__new__(KafkaTransport)
    transport._delivered(handler, "q7", 1_000, None, UNKNOWN)

    (event,) = handler.fed
    assert isinstance(event, members.NotWritten)
    assert (event.id, event.is_final) == ("q7", False)

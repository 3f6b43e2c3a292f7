"""What reads the messages of a group's consumer: as they stand in the log, or committed ones."""

from typing import Any

from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.groups.settings import Settings
from coordlib.client.kit.data_consumer import open_reader
from coordlib.client.kit.transport import Transport
from coordlib.client.transactions.committed_reader import CommittedReader
from coordlib.client.transactions.verdict import TornTransaction
from coordlib.errors import CoordError


def data_consumer_of(settings: Settings, transport: Transport, given: Any = None) -> Any:
    """What reads the messages of a group's consumer.

    Args:
        given: by the program, in place of a confluent-kafka Consumer.
    """
    options = {
        **settings.common,
        **({"client.id": settings.client} if settings.client else {}),
        "auto.offset.reset": settings.auto_offset_reset,
    }
    if settings.is_decided_here:
        return CommittedReader(options, transport=transport, data_consumer=given)
    return given or open_reader(options)


def give_up_in(data: Any, torn: TornTransaction, partition: KafkaTopicPartition) -> None:
    """Go on without a torn transaction. Raises CoordError: records are read as they are."""
    if not isinstance(data, CommittedReader):
        raise CoordError("Only a consumer with coord.decided.by=coordinator has torn transactions.")
    data.give_up(torn, partition)

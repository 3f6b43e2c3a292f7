"""When the oldest waiting records of some partitions were written: the age of a backlog.

A partition that has ended and one that does not answer are two cases: only the first one means that
no record waits there.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coordlib.kafka.clients import reader_config
from coordlib.kafka.denied import denial, reading
from coordlib.kafka.places import Place

_POLL_S: Final = 0.5


def first_times(
    client: Mapping[str, Any],
    waiting: Mapping[Place, int],
    timeout_s: float,
    *,
    is_committed: bool,
) -> dict[Place, int | None]:
    """The time of the first record at each of these positions or behind it, in epoch ms.

    Args:
        is_committed: whether their reader reads committed records only.

    Returns:
        None for a partition that ends without one: the marks at the end of transactions, and for a
        reader of committed records aborted ones, are no records. Partitions that did not answer in
        time are missing.

    Raises:
        KafkaException: a partition cannot be read.
        NotAllowed: a topic may not be read.
    """
    if not waiting:
        return {}
    consumer = Consumer(
        {
            **reader_config(client, is_committed=is_committed),
            "fetch.message.max.bytes": 65_536,
            "queued.min.messages": 1,
        }
    )
    found: dict[Place, int | None] = {}
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in waiting.items()])
        deadline = time.monotonic() + timeout_s
        while len(found) < len(waiting) and time.monotonic() < deadline:
            for record in consumer.consume(len(waiting) - len(found), _POLL_S):
                _refuse_denied(record, client)
                _note(consumer, record, found)
    finally:
        consumer.close()
    return found


def _refuse_denied(record: Any, client: Mapping[str, Any]) -> None:
    error = record.error()
    if error is None or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return
    if denied := denial(error, reading(record.topic() or ""), client):
        raise denied


def _note(consumer: Consumer, record: Any, found: dict[Place, int | None]) -> None:
    error = record.error()
    if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return  # of the group that is never joined
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    place = Place(record.topic() or "", record.partition() or 0)
    if place not in found:
        found[place] = None if error is not None else int(record.timestamp()[1])
        consumer.pause([TopicPartition(*place)])

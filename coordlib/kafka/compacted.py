"""Read a compacted topic's partition to its end: the newest value per key, committed ones only.

The end is the last stable offset asked before reading, so a reader sees every transaction that
was complete by then, and says as of when.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coordlib.errors import CannotReach

_POLL_S = 0.2
_SILENCE_S = 20.0
_TRANSIENT = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)


class Stamped(NamedTuple):
    """A record's value, and its timestamp in epoch milliseconds."""

    value: bytes
    time_ms: int


def newest_by_key(
    client_options: Mapping[str, str], topic: str, partition: int
) -> dict[bytes, bytes]:
    """As `newest_stamped`, without the times."""
    found = newest_stamped(client_options, topic, partition)
    return {key: stamped.value for key, stamped in found.items()}


def newest_stamped(
    client_options: Mapping[str, str], topic: str, partition: int
) -> dict[bytes, Stamped]:
    """The live records of one partition, in the order of their newest value.

    Args:
        client_options: librdkafka's, with `bootstrap.servers`.

    Raises:
        CannotReach: the broker does not answer, or stops answering for 20 seconds.
    """
    consumer = Consumer(
        {
            **client_options,
            "group.id": "coordlib-reader",  # required by the client; never joined or committed
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        return _read(consumer, TopicPartition(topic, partition))
    except KafkaException as problem:
        raise CannotReach(
            f"{topic} cannot be read: {problem.args[0].str()}",
            f"{topic}, partition {partition}",
            "Check that the broker runs and that this client may read the topic.",
        ) from problem
    finally:
        consumer.close()


def _bounds(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Oldest offset and last stable offset; a topic made a moment ago may have no leader yet."""
    deadline = time.monotonic() + _SILENCE_S
    while True:
        try:
            low, end = consumer.get_watermark_offsets(place, timeout=_SILENCE_S)
            return low, end
        except KafkaException as problem:
            if problem.args[0].code() not in _TRANSIENT or time.monotonic() > deadline:
                raise
            consumer.list_topics(place.topic, timeout=_SILENCE_S)
            time.sleep(_POLL_S)


def _read(consumer: Consumer, place: TopicPartition) -> dict[bytes, Stamped]:
    low, end = _bounds(consumer, place)
    place.offset = low
    consumer.assign([place])
    found: dict[bytes, Stamped] = {}
    heard_at = time.monotonic()
    while consumer.position([place])[0].offset < end and low < end:
        message = consumer.poll(_POLL_S)
        if message is None:
            if time.monotonic() - heard_at > _SILENCE_S:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            continue
        heard_at = time.monotonic()
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                break
            raise KafkaException(error)
        key, value = message.key() or b"", message.value()
        found.pop(key, None)
        if value is not None:
            found[key] = Stamped(value, message.timestamp()[1])
    return found

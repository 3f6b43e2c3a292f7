"""The live records of a compacted topic's partition: the newest committed value per key."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from coordlib.errors import CannotReach
from coordlib.kafka.clients import reason_of
from coordlib.kafka.reading import SILENCE_S, PartitionReader


class Stamped(NamedTuple):
    """A record's value, and its timestamp in epoch milliseconds."""

    value: bytes
    time_ms: int


def newest_by_key(
    client_options: Mapping[str, Any],
    topic: str,
    partition: int,
    first: int = 0,
    silence_s: float = SILENCE_S,
) -> dict[bytes, bytes]:
    """As `newest_stamped`, without the times."""
    found = newest_stamped(client_options, topic, partition, first, silence_s)
    return {key: stamped.value for key, stamped in found.items()}


def newest_of_each(
    client_options: Mapping[str, Any],
    topic: str,
    partitions: Iterable[int],
    silence_s: float = SILENCE_S,
) -> dict[int, dict[bytes, bytes]]:
    """As `newest_by_key`, of several partitions, with one client for all of them."""
    with PartitionReader(client_options) as reader:
        found = {each: _newest(reader, topic, each, 0, silence_s) for each in partitions}
    return {
        partition: {key: stamped.value for key, stamped in live.items()}
        for partition, live in found.items()
    }


def newest_stamped(
    client_options: Mapping[str, Any],
    topic: str,
    partition: int,
    first: int = 0,
    silence_s: float = SILENCE_S,
) -> dict[bytes, Stamped]:
    """The live records of one partition, in the order of their newest value.

    Args:
        client_options: librdkafka's, with `bootstrap.servers`.
        first: offset from which it is read; 0: all of it.

    Raises:
        CannotReach: the broker does not answer, or stops answering for this long.
        NotAllowed: this client may not read the topic.
    """
    with PartitionReader(client_options) as reader:
        return _newest(reader, topic, partition, first, silence_s)


def _newest(
    reader: PartitionReader, topic: str, partition: int, first: int, silence_s: float
) -> dict[bytes, Stamped]:
    found: dict[bytes, Stamped] = {}
    try:
        for message in reader.read(topic, partition, first=first, silence_s=silence_s):
            key, value = message.key() or b"", message.value()
            found.pop(key, None)
            if value is not None:
                found[key] = Stamped(value, message.timestamp()[1])
    except KafkaException as problem:
        raise CannotReach(
            f"{topic} cannot be read: {reason_of(problem)}",
            f"{topic}, partition {partition}",
            "Check that the broker runs and that this client may read the topic.",
        ) from problem
    return found

"""The live records of a compacted topic's partition: the newest committed value per key."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException

from coordlib.errors import CannotReach
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin, reaching, reason_of
from coordlib.kafka.places import Place
from coordlib.kafka.reading import SILENCE_S, PartitionReader

#: How long an open transaction is waited for: longer than brokers take to end one that was left
#: behind, with a timeout as the job has it.
DECIDED_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.02
#: Each look for a leader that is away asks brokers for the topic.
_LEADER_EVERY_S: Final = 0.2


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


def newest_decided(
    client_options: Mapping[str, Any],
    topic: str,
    partition: int,
    first: int = 0,
    patience_s: float = DECIDED_S,
) -> dict[bytes, bytes]:
    """As `newest_by_key`, of a partition with several transactional writers.

    A committed record behind the open transaction of another writer cannot be read. So this waits
    until all transactions have ended that were open when it was called.

    Raises CannotReach: one of them does not end.
    """
    place, until_s = Place(topic, partition), time.monotonic() + patience_s
    with reaching("It is not known where the topic ends.", "Check that the broker runs."):
        admin = open_admin(client_options, log_level=2)
        end = _end(admin, place, until_s, is_committed=False)
        while _end(admin, place, until_s, is_committed=True) < end:
            if time.monotonic() > until_s:
                raise CannotReach(
                    f"A transaction of another job stays open for {patience_s:.0f} s.",
                    f"{topic}, partition {partition}",
                    "Start that job again, which ends it, or wait until the brokers do.",
                )
            time.sleep(_LOOK_EVERY_S)
    return newest_by_key(client_options, topic, partition, first)


def _end(admin: Admin, place: Place, until_s: float, *, is_committed: bool) -> int:
    """Where the partition ends; 0: there is none. Raises TimeoutError: nobody leads it."""
    while True:
        found = log_bounds(admin, [place], is_committed=is_committed)
        if place in found:
            bounds = found[place]
            return 0 if bounds is None else bounds.end
        if time.monotonic() > until_s:
            raise TimeoutError(f"{place.topic}-{place.partition} has no leader")
        time.sleep(_LEADER_EVERY_S)


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

"""How large the records are that wait for the job, from samples of them.

Kafka returns how many records a partition has, not how many bytes lie between two of them. What is
no longer than a sample is read whole: each record of it may have 1 MiB. Of all else a few records
are read at places that are evenly spread over what waits, and the largest mean of a place counts:
a batch is filled from a few such places at most, and the mean of the whole backlog is no measure
of its heaviest part. Records that are large in fewer places than that can be missed; then the
worker's own count finds them (`batch_size.BatchTooLarge`).
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from coordlib import limits
from coordlib.errors import CannotReach
from coordlib.kafka.clients import reader_config
from coordlib.kafka.denied import denial, reading

#: Places in each partition, and how many records, or bytes of them, are read at each.
PLACES: Final = 16
SAMPLE: Final = 50
_SAMPLE_BYTES: Final = limits.REQUEST_BYTES_MAX
#: Of a span that is read whole: as much as at all places of a longer one.
_WHOLE_BYTES: Final = PLACES * _SAMPLE_BYTES
_SILENCE_S: Final = 20.0
_POLL_S: Final = 0.1
#: Errors about the group have no meaning: it is never joined.
_PASSING: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED})

#: (topic, partition) -> first and next offset of what waits.
Waiting = Mapping[tuple[str, int], tuple[int, int]]


class Reader(Protocol):
    """As much of confluent-kafka's Consumer as is used here."""

    def assign(self, partitions: list[TopicPartition], /) -> Any: ...

    def incremental_unassign(self, partitions: list[TopicPartition], /) -> Any: ...

    def consume(self, num_messages: int, timeout: float, /) -> list[Message]: ...

    def get_watermark_offsets(
        self, partition: TopicPartition, /, timeout: float
    ) -> tuple[int, int] | None: ...


def mean_bytes_waiting(
    client_options: Mapping[str, str],
    topics: Sequence[str],
    partitions: Sequence[int],
    next_offsets: Mapping[str, Mapping[str, int]],
) -> dict[str, float]:
    """Topic -> the mean size of the records that wait, where they are largest; 0: none wait.

    Args:
        client_options: librdkafka's, with `bootstrap.servers`.
        topics: the input topics, with their prefix.
        partitions: those of each of them that are read.
        next_offsets: topic -> partition -> first record that is not judged yet; absent: all.

    Raises:
        CannotReach: the broker does not answer.
    """
    consumer = Consumer(
        {
            **reader_config(client_options, is_committed=False),  # as the source reads
            "queued.max.messages.kbytes": 16 * limits.KIB,
        }
    )
    try:
        places = [(topic, partition) for topic in topics for partition in partitions]
        waiting = {place: _waiting(consumer, place, next_offsets) for place in places}
        return {
            topic: largest_mean(
                consumer, {place: span for place, span in waiting.items() if place[0] == topic}
            )
            for topic in topics
        }
    except KafkaException as problem:
        raise denial(problem, reading(topics[0]), client_options) or CannotReach(
            f"The requests that wait cannot be read: {problem.args[0].str()}",
            ", ".join(topics),
            "Check that the broker runs and that this job may read the topics.",
        ) from problem
    finally:
        consumer.close()


def _waiting(
    consumer: Reader, place: tuple[str, int], next_offsets: Mapping[str, Mapping[str, int]]
) -> tuple[int, int]:
    topic, partition = place
    bounds = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_SILENCE_S)
    start, end = bounds or (0, 0)
    return max(start, next_offsets.get(topic, {}).get(str(partition), 0)), end


def largest_mean(consumer: Reader, waiting: Waiting) -> float:
    """Of all places that are looked at, the largest mean size of records; 0: none wait."""
    few = {place: first for place, (first, end) in waiting.items() if 0 < end - first <= SAMPLE}
    many = {place: span for place, span in waiting.items() if span[1] - span[0] > SAMPLE}
    means = [0.0, *_means(consumer, few, _WHOLE_BYTES)]
    for number in range(PLACES):
        starts = {
            place: first + (end - first) * number // PLACES for place, (first, end) in many.items()
        }
        means += _means(consumer, starts, _SAMPLE_BYTES)
    return max(means)


def _means(consumer: Reader, starts: Mapping[tuple[str, int], int], bytes_max: int) -> list[float]:
    """The mean size of the records at one place of each partition, from `bytes_max` of them."""
    if not starts:
        return []
    consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
    sizes: dict[tuple[str, int], list[int]] = {place: [] for place in starts}
    missing = set(starts)
    deadline = time.monotonic() + _SILENCE_S
    while missing:
        done: list[TopicPartition] = []
        for message in consumer.consume(SAMPLE, _POLL_S):
            place = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is not None and error.code() not in _PASSING:
                raise KafkaException(error)
            if place not in missing:  # it does not keep the others waited for
                continue
            deadline = time.monotonic() + _SILENCE_S
            if error is None:
                sizes[place].append(len(message.value() or b""))
            if error is not None or _is_enough(sizes[place], bytes_max):
                missing.discard(place)
                done.append(TopicPartition(*place))
        if done and missing:
            consumer.incremental_unassign(done)
        if missing and time.monotonic() > deadline:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return [sum(found) / len(found) for found in sizes.values() if found]


def _is_enough(sizes: list[int], bytes_max: int) -> bool:
    return len(sizes) >= SAMPLE or sum(sizes) >= bytes_max

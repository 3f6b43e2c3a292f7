"""Read a partition up to its end; of a compacted one the newest committed value per key."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from coordlib.errors import CannotReach
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import (
    LEADER_MOVED,
    denial,
    open_admin,
    reaching,
    reader_config,
    reading,
    reason_of,
)
from coordlib.kafka.logs import Place

SILENCE_S: Final = 20.0
_POLL_S: Final = 0.2
#: A topic that was made a moment ago may have no leader yet, or not in every broker's view.
_TRANSIENT: Final = LEADER_MOVED | {KafkaError.UNKNOWN_TOPIC_OR_PART}
#: The client connects again by itself; if it cannot, the silence ends the reading. Errors
#: about the group have no meaning: it is never joined.
PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)
#: The error of a client that reads at an offset where no record stands.
_NOTHING_THERE: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET})


class PartitionReader(AbstractContextManager["PartitionReader"]):
    """One client that reads partitions to their ends, one after another.

    Args:
        options: librdkafka's, with `bootstrap.servers`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        # An end-of-partition event comes with an empty fetch, and a partition whose newest offset
        # is the end of a transaction ends with such an event only.
        self._consumer = Consumer({**reader_config(options), "fetch.wait.max.ms": 20})

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(
        self,
        topic: str,
        partition: int,
        *,
        first: int = 0,
        newest_max: int | None = None,
        on_cut: Callable[[int], None] = lambda _: None,
        silence_s: float = SILENCE_S,
    ) -> Iterator[Message]:
        """The records of a partition, committed ones only, in their order.

        Args:
            first: offset at which to begin; an older one than the oldest means the oldest.
            newest_max: read at most so many offsets before the end; None: all.
            on_cut: called with the number of older offsets that `newest_max` leaves out.
            silence_s: the broker is given up after this time without an answer.

        Raises:
            KafkaException: the partition cannot be read, or the broker is silent.
            NotAllowed: this client may not read it.
        """
        consumer = self._consumer
        try:
            place = TopicPartition(topic, partition)
            low, end = _bounds(consumer, place, silence_s)
            low = max(low, first)
            first = low if newest_max is None else max(low, end - newest_max)
            if first > low:
                on_cut(first - low)
            if first < end:
                # A number: the logical beginning would be asked for once more, after the leader.
                place.offset = first
                consumer.assign([place])
                yield from _until(consumer, end, silence_s)
        except KafkaException as problem:
            of_topic = _of_topic(consumer, topic, silence_s) if _is_unknown(problem) else problem
            raise denial(of_topic, reading(topic), self._options) or problem from problem


def read_to_end(
    options: Mapping[str, Any],
    topic: str,
    partition: int,
    first: int = 0,
    silence_s: float = SILENCE_S,
) -> Iterator[Message]:
    """As `PartitionReader.read`, with a client for this one partition."""
    with PartitionReader(options) as reader:
        yield from reader.read(topic, partition, first=first, silence_s=silence_s)


def read_uncommitted(options: Mapping[str, Any], topic: str, partition: int) -> Iterator[Message]:
    """All records of a partition, those of open and aborted transactions too.

    Raises KafkaException: the partition cannot be read, or the broker is silent.
    """
    consumer = Consumer({**reader_config(options, is_committed=False), "fetch.wait.max.ms": 20})
    try:
        place = TopicPartition(topic, partition)
        place.offset, end = _bounds(consumer, place, SILENCE_S)
        if place.offset < end:
            consumer.assign([place])
            yield from _until(consumer, end, SILENCE_S)
    finally:
        consumer.close()


def _is_unknown(problem: KafkaException) -> bool:
    """Whether the client has found no such partition: the topic may be hidden from it."""
    unknown = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
    return problem.args[0].code() in unknown


def _of_topic(consumer: Consumer, topic: str, silence_s: float) -> KafkaError | None:
    """What the brokers answer to a question for this one topic; None: it is there."""
    found = consumer.list_topics(topic, timeout=silence_s).topics.get(topic)
    return None if found is None else found.error


def read_range(
    options: Mapping[str, Any],
    topic: str,
    partition: int,
    first: int,
    end: int,
    silence_s: float = SILENCE_S,
) -> Iterator[Message]:
    """The records of a partition from `first` up to `end`, exclusive, uncommitted ones too.

    Raises:
        KafkaException: the partition cannot be read, `first` is not in it, or the broker is silent.
    """
    if first >= end:
        return
    uncommitted = reader_config(options, is_committed=False)
    consumer = Consumer({**uncommitted, "auto.offset.reset": "error", "fetch.wait.max.ms": 20})
    try:
        consumer.assign([TopicPartition(topic, partition, first)])
        for message in _until(consumer, end, silence_s):
            if (message.offset() or 0) < end:  # what lies before it may be marks of transactions
                yield message
    finally:
        consumer.close()


def records_at(
    options: Mapping[str, Any], offsets: Mapping[Place, int], silence_s: float = SILENCE_S
) -> dict[Place, Message | None]:
    """The record at one offset of each partition, uncommitted ones too; None: there is none.

    Raises KafkaException: a partition cannot be read, or the broker is silent.
    """
    uncommitted = reader_config(options, is_committed=False)
    consumer = Consumer({**uncommitted, "auto.offset.reset": "error", "fetch.wait.max.ms": 20})
    found: dict[Place, Message | None] = {}
    heard_at = time.monotonic()
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in offsets.items()])
        while len(found) < len(offsets):
            message = consumer.poll(_POLL_S)
            error = None if message is None else message.error()
            if message is not None and (error is None or error.code() in _NOTHING_THERE):
                place = Place(message.topic() or "", message.partition() or 0)
                is_it = error is None and message.offset() == offsets[place]
                found.setdefault(place, message if is_it else None)
                heard_at = time.monotonic()
            elif error is not None and error.code() not in PASSING:
                raise KafkaException(error)
            elif time.monotonic() - heard_at > silence_s:
                raise KafkaException(error or KafkaError(KafkaError._TIMED_OUT))
    finally:
        consumer.close()
    return found


def _bounds(consumer: Consumer, place: TopicPartition, silence_s: float) -> tuple[int, int]:
    deadline = time.monotonic() + silence_s
    while True:
        try:
            low, end = consumer.get_watermark_offsets(place, timeout=silence_s)
            return low, end
        except KafkaException as problem:
            if problem.args[0].code() not in _TRANSIENT or time.monotonic() > deadline:
                raise
            consumer.list_topics(place.topic, timeout=silence_s)
            time.sleep(_POLL_S)


def _until(consumer: Consumer, end: int, silence_s: float) -> Iterator[Message]:
    heard_at = time.monotonic()
    while True:
        message = consumer.poll(_POLL_S)
        error = None if message is None else message.error()
        if message is not None and error is None:
            yield message
            if (message.offset() or 0) + 1 >= end:
                return
            heard_at = time.monotonic()  # not before: the caller may take long over a record
        elif error is not None and error.code() == KafkaError._PARTITION_EOF:
            return
        elif error is not None and error.code() not in PASSING:
            raise KafkaException(error)
        elif time.monotonic() - heard_at > silence_s:
            raise KafkaException(error or KafkaError(KafkaError._TIMED_OUT))


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

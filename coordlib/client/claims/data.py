"""Messages of the claimed partitions: fetched first, handed out when their claim allows it.

`client/groups/reading.py` hands out by partition; claims also hand out by offset (delivery at most
once) and by what is still open (strict ordering), so each partition has a queue of its own here.
"""

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.claims.options import ConsumerOptions
from coordlib.client.kit.data_consumer import open_reader
from coordlib.client.kit.signals import TopicPartition
from coordlib.errors import NotAllowed
from coordlib.kafka.clients import reason_of
from coordlib.kafka.denied import denial, is_denied, reading

_log = logging.getLogger("coordlib.client")

BATCH: Final = 500
#: Of all topics together.
KNOW_TIMEOUT_S: Final = 1.0
#: The library forgets a topic of which nothing is read after 15 minutes; one of which something is
#: read it asks for by itself.
KNOWN_FOR_S: Final = 600.0
#: With so many waiting, no more are fetched of a partition; at half of it they are again.
WAITING_MAX: Final = 2_000


def data_consumer_of(common: Mapping[str, Any], client: str, options: ConsumerOptions) -> Any:
    """A confluent-kafka Consumer that only reads the partitions assigned to it here."""
    own = {
        "client.id": client,
        "auto.offset.reset": "error",  # where to begin is decided by the claim
        "fetch.wait.max.ms": options.fetch_wait_ms,
        "message.max.bytes": max(1_000_000, options.max_message_bytes),
        "fetch.message.max.bytes": max(1_048_576, options.max_message_bytes),
        "fetch.max.bytes": max(52_428_800, options.max_message_bytes),
    }
    return open_reader({**common, **own})


class Data:
    """The messages of one consumer; used by the user's thread alone.

    Args:
        reader: confluent-kafka's Consumer, or something like it; never subscribes or commits.
        options: librdkafka's; an error names by them who lacks a right.
        topics: all from which it may read.
    """

    def __init__(
        self, reader: Any, options: Mapping[str, Any] | None = None, topics: Sequence[str] = ()
    ) -> None:
        self._reader, self._options, self._topics = reader, options or {}, topics
        #: Topic -> until when the library knows its leaders, monotonic seconds.
        self._known: dict[str, float] = {}
        self.waiting: dict[TopicPartition, deque[Any]] = {}
        #: Error events that the user is to have.
        self.errors: deque[Any] = deque()
        #: Partitions whose position is not in the log.
        self.out_of_range: list[TopicPartition] = []
        #: Raised by the call that finds it.
        self.denied: NotAllowed | None = None
        self._paused: set[TopicPartition] = set()
        self._turn = 0

    def begin(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these from here on."""
        self._know([*sorted({place.topic for place in starts}), *self._topics])
        self.waiting |= {place: deque() for place in starts}
        begun = [KafkaTopicPartition(*place, offset) for place, offset in starts.items()]
        self._reader.incremental_assign(begun)

    def end(self, places: Iterable[TopicPartition]) -> None:
        """Read these no more; what was fetched of them is dropped."""
        gone = [place for place in places if self.waiting.pop(place, None) is not None]
        self._paused.difference_update(gone)
        if gone:
            self._reader.incremental_unassign([KafkaTopicPartition(*each) for each in gone])

    def fetch(self, timeout_s: float) -> None:
        """Wait for a message, and take others that are here. A right that is missing is `denied`.

        To be called whole: the library does not give a message again.
        """
        self._resume()
        first = self._reader.poll(timeout_s)
        if first is None:
            return
        messages = [first, *self._reader.consume(BATCH, 0)]
        for message in messages:
            self._keep(message)
        self._pause()
        for message in messages:
            right = reading(message.topic() or "")
            self.denied = denial(message.error(), right, self._options) or self.denied

    def turns(self) -> list[tuple[TopicPartition, deque[Any]]]:
        """The queues that have messages, each time beginning with another one."""
        full = [(place, queue) for place, queue in self.waiting.items() if queue]
        self._turn += 1
        at = self._turn % len(full) if full else 0
        return full[at:] + full[:at]

    def close(self) -> None:
        self.waiting.clear()
        self._reader.close()

    def _know(self, topics: Iterable[str]) -> None:
        """Ask for the topics' leaders. The library would look for them once a second: that second
        would be most of what it takes to go on where another consumer has stopped.

        All of them before anything is read: later a broker answers only after the fetch that it
        holds open, and each claim would wait for that.
        """
        until = monotonic() + KNOW_TIMEOUT_S
        for topic in topics:
            now = monotonic()
            if self._known.get(topic, 0.0) > now:
                continue
            try:
                self._reader.list_topics(topic, timeout=max(0.0, until - now))
            except KafkaException as problem:  # the library goes on looking
                _log.info("No metadata of %s: %s", topic, reason_of(problem))
                return
            self._known[topic] = now + KNOWN_FOR_S

    def _keep(self, message: Any) -> None:
        error, topic, partition = message.error(), message.topic(), message.partition()
        place = None if topic is None or partition is None else TopicPartition(topic, partition)
        if error is None and place in self.waiting:
            self.waiting[place].append(message)
        elif error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            self.out_of_range += [] if place is None else [place]
        elif error is not None and not is_denied(error):
            self.errors.append(message)

    def _pause(self) -> None:
        full = [p for p, queue in self.waiting.items() if len(queue) >= WAITING_MAX]
        fresh = [place for place in full if place not in self._paused]
        if fresh:
            self._paused.update(fresh)
            self._reader.pause([KafkaTopicPartition(*place) for place in fresh])

    def _resume(self) -> None:
        low = [place for place in self._paused if len(self.waiting[place]) < WAITING_MAX // 2]
        if low:
            self._paused.difference_update(low)
            self._reader.resume([KafkaTopicPartition(*place) for place in low])

"""What a consumer of claims may be asked for, checked before anything is opened.

And the messages of its partitions: fetched first, handed out when their claim allows it.
`client/groups/reading.py` hands out by partition; claims also hand out by offset (delivery at most
once) and by what is still open (strict ordering), so each partition has a queue of its own here.
"""

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Literal

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib import limits
from coordlib.client.kit.config import PREFIX, refuse_auto_commit
from coordlib.client.kit.data import open_reader
from coordlib.client.kit.events import TopicPartition
from coordlib.core.wire.envelope import is_name, is_topic
from coordlib.errors import NotAllowed, SetupError
from coordlib.kafka.clients import denial, is_denied, reading, reason_of

Delivery = Literal["at-least-once", "at-most-once"]
AT_LEAST_ONCE: Final[Delivery] = "at-least-once"
AT_MOST_ONCE: Final[Delivery] = "at-most-once"
#: Its values of `auto.offset.reset`, and whether a partition then begins at its log's end.
_RESETS: Final = {
    **dict.fromkeys(("earliest", "beginning", "smallest"), False),
    **dict.fromkeys(("latest", "end", "largest"), True),
}
#: Keys of consumer groups that promise what claims do not have.
_NOT_OFFERED: Final = {
    "group.protocol": "Leave it out: claims have no coordinator.",
    "transactional.id": "Leave it out here, and give it to a producer.",
    "group.instance.id": "Leave it out: client.id is what outlives a restart.",
    "partition.assignment.strategy": "Leave it out: consumers claim what is free.",
    "session.timeout.ms": "Leave it out: the coordination topic's name gives the interval.",
    "heartbeat.interval.ms": "Leave it out: the coordination topic's name gives the interval.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Options of one `MarshalConsumer`; Marshal's names stand in brackets.

    Raises SetupError for numbers out of range, and for options that contradict each other.
    """

    #: At the start, reclaim what this client id holds by an earlier process [FastReclaim].
    fast_reclaim: bool = True
    #: Partition 0 is the key to a topic; losing one partition releases all [ClaimEntireTopic].
    claim_entire_topic: bool = False
    #: Claim all that is free in one pass, not one partition per pass [GreedyClaims].
    greedy_claims: bool = False
    #: Release partitions that this consumer cannot keep up with [ReleaseClaimsIfBehind].
    release_claims_if_behind: bool = True
    #: Partitions, or topics where whole ones are claimed; 0: no limit [MaximumClaims].
    maximum_claims: int = 0
    #: One message in flight per partition, the next one after its commit [StrictOrdering].
    strict_ordering: bool = False
    #: `at-least-once`, or `at-most-once`: a batch is signed in the log before it is read.
    delivery: Delivery = AT_LEAST_ONCE
    #: Write positions to Kafka's group of this name, too, for those who watch it.
    commit_to_kafka: bool = True
    #: Uncommitted messages per partition; with more, no further ones come [MaxMessageQueue].
    max_message_queue: int = 1_000
    #: How long a broker may hold back an empty fetch [ConsumeRequestTimeout].
    fetch_wait_ms: int = 500
    #: Largest message that can be read [MaxMessageSize].
    max_message_bytes: int = 2_000_000

    def __post_init__(self) -> None:
        if self.delivery not in (AT_LEAST_ONCE, AT_MOST_ONCE):
            raise SetupError(f"delivery is {AT_LEAST_ONCE} or {AT_MOST_ONCE}.", repr(self.delivery))
        _at_least("maximum_claims", self.maximum_claims, 0)
        _at_least("max_message_queue", self.max_message_queue, 1)
        _at_least("fetch_wait_ms", self.fetch_wait_ms, 0)
        _at_least("max_message_bytes", self.max_message_bytes, 1_000)
        if self.is_at_most_once and self.strict_ordering:
            raise SetupError(
                "strict_ordering waits for commits, and delivery at most once has none.",
                "strict_ordering=True",
                "Leave out one of them.",
            )
        if self.is_at_most_once and not self.commit_to_kafka:
            raise SetupError(
                "At most once needs commit_to_kafka.",
                "commit_to_kafka=False",
                "Leave it on: a reader that begins late may have no other position.",
            )

    @property
    def is_at_most_once(self) -> bool:
        return self.delivery == AT_MOST_ONCE


def _at_least(name: str, value: int, least: int) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise SetupError(f"{name} is a whole number of {least} or more.", repr(value))


@dataclass(frozen=True, slots=True)
class Settings:
    """A marshaler's configuration, taken apart."""

    group: str
    client: str
    prefix: str
    #: Without a position, begin at the log's end instead of its start.
    begins_at_end: bool
    #: Options for every Kafka client.
    common: Mapping[str, Any]


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Take a configuration apart. Raises SetupError, naming the key.

    `auto.offset.reset` is `earliest` unless given, as in Marshal.
    """
    rest = dict(config)
    for key, hint in _NOT_OFFERED.items():
        if key in rest:
            raise SetupError(f"{key} is not offered with claims.", repr(rest[key]), hint)
    refuse_auto_commit(rest)
    reset = str(rest.pop("auto.offset.reset", "earliest"))
    if reset not in _RESETS:
        raise SetupError("auto.offset.reset is none of " + ", ".join(_RESETS) + ".", repr(reset))
    return Settings(
        group=_name("group.id", rest.pop("group.id", "")),
        client=_name("client.id", rest.pop("client.id", "")),
        prefix=str(rest.pop(PREFIX, "coord")),
        begins_at_end=_RESETS[reset],
        common=rest,
    )


def _name(key: str, given: object) -> str:
    """A name that can stand in a message, whose fields are split at `/`."""
    text = str(given or "")
    if not is_name(text, limits.NAME_LENGTH_MAX) or "/" in text:
        raise SetupError(
            f"{key} cannot be in a claim's message.",
            repr(given),
            f"Give 1 to {limits.NAME_LENGTH_MAX} bytes without / and control characters.",
        )
    return text


def topics_wanted(topics: Sequence[str], options: ConsumerOptions) -> tuple[str, ...]:
    """The topics of one consumer, each once.

    Raises SetupError: none, a name that no topic can have (an expression, say), or several without
    `claim_entire_topic`.
    """
    if isinstance(topics, str):
        raise SetupError("Topics are given as a list.", repr(topics), f"Give [{topics!r}].")
    for each in topics:
        if not isinstance(each, str) or not is_topic(each):
            what, hint = "No topic can have this name.", "Name topics; there are no expressions."
            raise SetupError(what, repr(each)[:300], hint)
    wanted = tuple(dict.fromkeys(topics))
    if not wanted:
        raise SetupError("A consumer needs a topic.", "topics", "Name at least one.")
    if len(wanted) > 1 and not options.claim_entire_topic:
        raise SetupError(
            "Several topics need claim_entire_topic.",
            ", ".join(wanted),
            "Set it, or make one consumer for each topic.",
        )
    return wanted


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

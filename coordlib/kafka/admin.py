"""Kafka's admin client, with questions for offsets that cannot crash the process.

librdkafka 2.16 looks up the leaders of asked partitions on the thread of the caller. If it does not
know all of them, it also registers for the next metadata, and whatever metadata comes just then
makes its own thread finish the same question: memory is freed twice, and the process ends by
SIGSEGV or SIGABRT. So leaders are asked for before, and partitions without one are left out: then
it has no reason to register, unless it has lost a leader since.
(`rd_kafka_topic_partition_list_query_leaders_async`.)

A leader that does not answer in time is no error to librdkafka either: it merges what the other
brokers have answered, and the rest are successes with the offset -1001
(`rd_kafka_ListOffsets_response_merge`). Whoever takes that for the end of a log has read all of it:
a fence would stay open on a proof that is none. Here such an answer is an error.
"""

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not re-export
    AdminClient,
    ClusterMetadata,
    OffsetSpec,
    TopicMetadata,
)

#: After this, leaders are asked for again: long before librdkafka forgets them.
KEPT_S: Final = 300.0
#: Of librdkafka's `metadata.max.age.ms`.
KEPT_SHARE: Final = 1 / 3
_AGE: Final = "metadata.max.age.ms"
_AGE_MS: Final = 900_000
#: More unknown topics than these are asked for with all others, in one request.
EACH_MAX: Final = 16
_ASK_S: Final = 10.0


class _Described(NamedTuple):
    """A broker's answer about a topic."""

    at_s: float
    metadata: TopicMetadata | None
    """None: there is no such topic."""
    brokers: Mapping[int, Any]

    def failure(self, partition: int) -> KafkaError | None:
        """Why nobody can be asked for this partition; None: its leader can."""
        if self.metadata is None:
            return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if self.metadata.error is not None:
            return self.metadata.error
        found = self.metadata.partitions.get(partition)
        if found is None:
            return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if found.leader not in self.brokers:
            return KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        return None


class _Leaders:
    """Brokers' answers about topics; used by threads of the caller and of librdkafka."""

    def __init__(self, kept_s: float) -> None:
        self.kept_s = kept_s
        self._lock = threading.Lock()
        self._topics: dict[str, _Described] = {}

    def note(self, found: ClusterMetadata, asked: Iterable[str], *, is_all: bool) -> None:
        """What was answered.

        Args:
            asked: topics that somebody wants to know of: not there, if they are not in it.
            is_all: whether all topics were asked for.
        """
        now_s = time.monotonic()
        new = dict.fromkeys(asked, _Described(now_s, None, {}))
        new |= {name: _Described(now_s, each, found.brokers) for name, each in found.topics.items()}
        with self._lock:
            # Twice as long: whoever looks now may be about to use what has just grown old.
            kept = {} if is_all else self._topics
            kept = {
                name: each for name, each in kept.items() if now_s - each.at_s < 2 * self.kept_s
            }
            self._topics = {**kept, **new}

    def of(self, topics: Iterable[str]) -> dict[str, _Described]:
        """What is known of these."""
        with self._lock:
            return {topic: self._topics[topic] for topic in topics if topic in self._topics}

    def forget(self, topics: Iterable[str]) -> None:
        """They have to be asked for again."""
        with self._lock:
            for topic in topics:
                self._topics.pop(topic, None)

    def hear(self, topic: str, answer: "Future[Any]") -> None:
        """librdkafka forgets the leaders of a topic that fails; called by a thread of its own."""
        if not answer.cancelled() and answer.exception() is not None:
            self.forget([topic])


class Admin(AdminClient):
    """An admin client. Keep it in a variable: its answers are lost when it is collected.

    It creates no topics by asking for them.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__({"allow.auto.create.topics": False, **options})
        self._leaders = _Leaders(min(KEPT_S, int(options.get(_AGE, _AGE_MS)) / 1000 * KEPT_SHARE))

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Kafka's, and remembers who leads. Raises KafkaException."""
        return self._list(topic, timeout, () if topic is None else (topic,))

    def forget(self, topics: Iterable[str]) -> None:
        """Before the next question for their offsets, ask who leads these topics.

        librdkafka asks for offsets by the leaders' epochs that it knows, for up to 15 minutes. A
        broker that was away leads in a newer epoch, and refuses the older one all the while
        (FENCED_LEADER_EPOCH).
        """
        self._leaders.forget(topics)

    def list_offsets(  # type: ignore[override]  # as in AdminClient
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        metadata_timeout_s: float | None = None,
        **kwargs: Any,
    ) -> dict[TopicPartition, "Future[Any]"]:
        """Kafka's. Waits for metadata of topics whose leaders are not known; see above.

        Each answer, or KafkaException, is in the partition's future.

        Args:
            metadata_timeout_s: how long it waits at most for each; by default `request_timeout`.
        """
        asked = topic_partition_offsets
        failures: dict[TopicPartition, KafkaException]
        try:
            request_timeout_s = kwargs.get("request_timeout", _ASK_S)
            leaders = self._learn(asked, metadata_timeout_s or request_timeout_s)
        except KafkaException as problem:
            failures = dict.fromkeys(asked, problem)
        else:
            failures = {
                place: KafkaException(failure)
                for place in asked
                if (failure := _failure(leaders, place)) is not None
            }
        rest = {place: spec for place, spec in asked.items() if place not in failures}
        asked_now = super().list_offsets(rest, **kwargs) if rest else {}
        answers = {place: _answered(answer) for place, answer in asked_now.items()}
        for place, answer in answers.items():
            # Not `self`: the client would be closed by its own thread, which waits for that thread.
            answer.add_done_callback(partial(self._leaders.hear, place.topic))
        return {**answers, **{place: _failed(problem) for place, problem in failures.items()}}

    def _learn(self, places: Collection[TopicPartition], timeout_s: float) -> dict[str, _Described]:
        """Ask who leads, where it is not known or was asked long ago. Raises KafkaException."""
        since_s = time.monotonic() - self._leaders.kept_s
        wanted = {place.topic for place in places}
        leaders = self._leaders.of(wanted)
        stale = {
            place.topic
            for place in places
            if _failure(leaders, place) is not None or leaders[place.topic].at_s < since_s
        }
        if len(stale) > EACH_MAX:
            self._list(None, timeout_s, stale)
        else:
            for topic in sorted(stale):
                self.list_topics(topic, timeout=timeout_s)
        return self._leaders.of(wanted)

    def _list(self, topic: str | None, timeout_s: float, wanted: Iterable[str]) -> ClusterMetadata:
        named = () if topic is None else (topic,)
        found: ClusterMetadata = super().list_topics(*named, timeout=timeout_s)
        self._leaders.note(found, wanted, is_all=topic is None)
        return found


def _failure(leaders: Mapping[str, _Described], place: TopicPartition) -> KafkaError | None:
    known = leaders.get(place.topic)
    if known is None:  # forgotten meanwhile by another thread
        return KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    return known.failure(place.partition)


def _answered(answer: "Future[Any]") -> "Future[Any]":
    """The same answer, or the error that it should have been."""
    checked: Future[Any] = Future()

    def check(done: "Future[Any]") -> None:
        problem = done.exception()
        if problem is None and done.result().offset == OFFSET_INVALID:
            problem = KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if problem is None:
            checked.set_result(done.result())
        else:
            checked.set_exception(problem)

    answer.add_done_callback(check)
    return checked


def _failed(problem: KafkaException) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_exception(problem)
    return future

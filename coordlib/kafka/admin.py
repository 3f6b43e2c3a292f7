"""Kafka's admin client, with questions for offsets that cannot crash the process.

librdkafka 2.16 looks up the leaders of asked partitions on the thread of the caller. If it does not
know all of them, it also registers for the next metadata, and whatever metadata comes just then
makes its own thread finish the same question: memory is freed twice, and the process ends by
SIGSEGV or SIGABRT. So leaders are asked for before, and partitions without one are left out: then
it never registers. (`rd_kafka_topic_partition_list_query_leaders_async`.)
"""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition
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


class _Told(NamedTuple):
    """What a broker said of a topic."""

    at_s: float
    metadata: TopicMetadata
    brokers: Mapping[int, Any]


class Admin(AdminClient):
    """An admin client. Keep it in a variable: its answers are lost when it is collected.

    It creates no topics by asking for them.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__({"allow.auto.create.topics": False, **options})
        kept_s = int(options.get(_AGE, _AGE_MS)) / 1000 * KEPT_SHARE
        self._kept_s = min(KEPT_S, kept_s)
        self._told: dict[str, _Told] = {}

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Kafka's, and remembers who leads. Raises KafkaException."""
        asked = () if topic is None else (topic,)
        found: ClusterMetadata = super().list_topics(*asked, timeout=timeout)
        now_s = time.monotonic()
        kept = {} if topic is None else self._told
        kept = {name: told for name, told in kept.items() if now_s - told.at_s < self._kept_s}
        new = {name: _Told(now_s, each, found.brokers) for name, each in found.topics.items()}
        self._told = {**kept, **new}
        return found

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
        failures: dict[TopicPartition, KafkaException] = {}
        try:
            request_timeout_s = kwargs.get("request_timeout", _ASK_S)
            self._learn(asked, metadata_timeout_s or request_timeout_s)
        except KafkaException as problem:
            failures = dict.fromkeys(asked, problem)
        else:
            failures = {
                place: KafkaException(failure)
                for place in asked
                if (failure := self._failure(place)) is not None
            }
        rest = {place: spec for place, spec in asked.items() if place not in failures}
        answers = super().list_offsets(rest, **kwargs) if rest else {}
        for place, answer in answers.items():
            answer.add_done_callback(partial(self._hear, place.topic))
        return {**answers, **{place: _failed(problem) for place, problem in failures.items()}}

    def _hear(self, topic: str, answer: "Future[Any]") -> None:
        """librdkafka forgets the leaders of a topic that fails; on a thread of its own."""
        if not answer.cancelled() and answer.exception() is not None:
            self._told.pop(topic, None)

    def _learn(self, places: Iterable[TopicPartition], timeout_s: float) -> None:
        """Ask who leads, where it is not known or was asked long ago. Raises KafkaException."""
        since_s = time.monotonic() - self._kept_s
        topics = {
            place.topic
            for place in places
            if self._failure(place) is not None or self._told[place.topic].at_s < since_s
        }
        for topic in sorted(topics) if len(topics) <= EACH_MAX else [None]:
            self.list_topics(topic, timeout=timeout_s)

    def _failure(self, place: TopicPartition) -> KafkaError | None:
        """Why nobody can be asked for this partition; None: its leader can."""
        told = self._told.get(place.topic)
        if told is None:
            return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if told.metadata.error is not None:
            return told.metadata.error
        partition = told.metadata.partitions.get(place.partition)
        if partition is None:
            return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if partition.leader not in told.brokers:
            return KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        return None


def _failed(problem: KafkaException) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_exception(problem)
    return future

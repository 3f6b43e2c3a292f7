"""What reads records, where a group, or a program, says which: a consumer that joins no group."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from coordlib.client.kit.topic_metadata import read_counts
from coordlib.client.kit.uninterrupted import in_users_thread
from coordlib.errors import CoordError
from coordlib.kafka.client_keys import refuse_transactional, require_servers
from coordlib.kafka.clients import open_admin, opening

_log = logging.getLogger("coordlib.client")

Found = TypeVar("Found")


class DataConsumer(Consumer):
    """confluent-kafka's Consumer, whose `poll` also reports topics that do not exist.

    To librdkafka the partitions of a group come one by one from its member, so it never misses a
    topic by itself: a misspelt one looked like an empty one for ever.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(dict(options))
        self._options = options
        self._missing: deque[Message] = deque()

    def poll(self, timeout: float = -1) -> Message | None:
        """As confluent-kafka's; first an error for each topic that was looked for in vain."""
        return self._missing.popleft() if self._missing else super().poll(timeout)

    def look_for(self, topics: Sequence[str]) -> None:
        """Look whether these are there, without waiting for it."""
        if topics:
            threading.Thread(target=self._look, args=(topics,), daemon=True).start()

    def _look(self, topics: Sequence[str]) -> None:
        try:
            # By a client of its own: this one may be closed meanwhile.
            counts = read_counts(open_admin(self._options), self._options, topics, None)
        except CoordError as problem:  # also of a right that is missing, which reading tells
            _log.info("Whether the subscribed topics are there is not known: %s", problem.what)
            return
        for name in topics:
            if name not in counts:
                what = f"Subscribed topic not available: {name}"
                _log.warning("%s. It is read when somebody has made it", what)
                error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, what)
                self._missing.append(Message(topic=name, error=error))


class AsksCluster:
    """What a consumer may ask its cluster, as confluent-kafka's Consumer answers it."""

    #: confluent-kafka's Consumer, or what takes its place.
    _data: Any

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Metadata of the cluster and of one topic or all: a ClusterMetadata."""
        return _of_open(lambda: self._data.list_topics(topic, timeout))

    def look_for(self, topics: Sequence[str]) -> None:
        """Let `poll` return an error for each of these that is not there."""
        if isinstance(self._data, DataConsumer | AsksCluster):
            self._data.look_for(topics)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """First offset of a partition and the one after its last; None: no answer in time."""
        asked = self._data.get_watermark_offsets
        found: tuple[int, int] | None = _of_open(lambda: asked(partition, timeout, cached))
        return found

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """The first offset at or after each time, given as `offset` in ms; -1: none."""
        return _of_open(lambda: self._data.offsets_for_times(list(partitions), timeout))


def _of_open(ask: Callable[[], Found]) -> Found:
    """Raises CoordError: it is closed."""
    try:
        return ask()
    except RuntimeError as problem:  # the library's word for it
        raise CoordError("The consumer is closed.", str(problem)) from problem


def open_reader(options: Mapping[str, Any]) -> Consumer:
    """A confluent-kafka Consumer that only reads the partitions assigned to it, and never commits.

    Args:
        options: its keys; those that would let it do more are overruled.

    Raises SetupError: one of them is wrong, missing, or a producer's that promises something.
    """
    require_servers(options)
    refuse_transactional(options)
    own = {
        "group.id": f"coordlib-unused-{uuid4().hex}",  # the library wants one
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
    }
    with opening():
        return DataConsumer({**in_users_thread(options), **own})


def seek_to(reader: Any, partition: TopicPartition) -> None:
    """Go on from another offset. Raises CoordError: the library refuses it.

    librdkafka seeks only where it fetches. After an offset out of range, or before the first fetch,
    it does not: there the partition begins anew.
    """
    try:
        reader.seek(partition)
    except KafkaException as problem:
        if problem.args[0].code() != KafkaError._STATE:
            where = f"{partition.topic}-{partition.partition}"
            raise CoordError(f"It cannot seek: {problem.args[0].str()}", where) from problem
        reader.incremental_unassign([partition])
        reader.incremental_assign([partition])

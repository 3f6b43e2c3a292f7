"""What reads records, where a group, or a program, says which: a consumer that joins no group."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coordlib.errors import CoordError
from coordlib.kafka.client_keys import refuse_transactional, require_servers
from coordlib.kafka.clients import opening

Found = TypeVar("Found")


class AsksCluster:
    """What a consumer may ask its cluster, as confluent-kafka's Consumer answers it."""

    #: confluent-kafka's Consumer, or what takes its place.
    _data: Any

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Metadata of the cluster and of one topic or all: a ClusterMetadata."""
        return _of_open(lambda: self._data.list_topics(topic, timeout))

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
        return Consumer({**options, **own})


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

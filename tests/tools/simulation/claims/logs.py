"""Logs of the simulated cluster as consumers of claims and the job read them: starts, and cuts."""

from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.core.engine.state import InputRecord
from coordlib.kafka.logs import Bounds
from tests.tools.simulation.cluster import Cluster, Partition
from tests.tools.simulation.data import DataConsumer, Message

#: Kafka's words for bounds of a log, in a ListOffsets request.
LATEST, EARLIEST, NEWEST_STAMP = -1, -2, -3
MESSAGES: Final = "m"


def start_of(partition: Partition) -> int:
    """Where the log begins: its oldest record, or its next one."""
    return partition.records[0].offset if partition.records else partition.end


def cut(partition: Partition, before: int) -> None:
    """Retention deletes all records below an offset."""
    partition.records = [each for each in partition.records if each.offset >= before]


class SimulatedAdmin:
    """As much of confluent-kafka's AdminClient as `Beginnings` asks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> Any:
        return SimpleNamespace(topics=self._cluster.listing())

    def list_offsets(self, asked: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        self._cluster.require_up()
        return {place: self._answer(place, spec) for place, spec in asked.items()}

    def _answer(self, place: KafkaTopicPartition, spec: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        partition = self._cluster.partitions.get((place.topic, place.partition))
        if partition is None:
            answer.set_exception(KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION)))
        else:
            answer.set_result(_found(partition, spec._value))
        return answer


def _found(partition: Partition, asked: int) -> Any:
    records = partition.records
    if asked == LATEST:
        return SimpleNamespace(offset=partition.end, timestamp=-1)
    if asked == EARLIEST:
        return SimpleNamespace(offset=start_of(partition), timestamp=-1)
    if asked == NEWEST_STAMP:
        newest = max(records, key=lambda each: each.timestamp_ms, default=None)
    else:
        newest = next((each for each in records if each.timestamp_ms >= asked), None)
    if newest is None:
        return SimpleNamespace(offset=-1, timestamp=-1)
    return SimpleNamespace(offset=newest.offset, timestamp=newest.timestamp_ms)


class SimulatedInput:
    """`InputLog`: the coordination topic, as a rebuild folds it once more."""

    def __init__(self, cluster: Cluster, topic: str, shards: int) -> None:
        self._cluster, self._topic, self._shards = cluster, topic, shards

    def starts(self) -> dict[int, int]:
        self._cluster.require_up()
        partitions = self._cluster.partitions
        return {n: start_of(partitions[self._topic, n]) for n in range(self._shards)}

    def read(self, shard: int, first: int, end: int) -> Iterator[InputRecord]:
        records, _ = self._cluster.partitions[self._topic, shard].read(first, is_committed=False)
        for each in records:
            if each.offset < end:
                yield InputRecord(MESSAGES, each.offset, each.timestamp_ms, each.value)


class ClaimsReader(DataConsumer):
    """The data consumer of a consumer of claims."""

    def consume(self, count: int, timeout: float) -> list[Message]:
        found = iter(lambda: self.poll(timeout), None)
        return [message for message, _ in zip(found, range(count), strict=False)]

    def list_topics(self, topic: str, timeout: float) -> None:
        """Everything is known here."""


def bounds_of(cluster: Cluster, place: tuple[str, int]) -> Bounds | None:
    """Where a log begins and ends; None: there is no such partition."""
    partition = cluster.partitions.get(place)
    return None if partition is None else Bounds(start_of(partition), partition.end)

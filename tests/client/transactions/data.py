"""A cluster of Kafka in memory, for records of transactions that the coordinator decides."""

import time
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from coordlib.client.transactions.committed import PartitionReader
from coordlib.core.wire.data_headers import Marker, Stamp, read_headers
from coordlib.testing.fake_log import FakeLog

PARTITIONS = 2
#: How long a call may take that has nothing to wait for; a busy machine may stop for long.
PATIENCE_S = 60.0
#: Time in the log passes so much faster than that of the calls.
SPEED = 10


class FakeCluster:
    """Topics without end; what is written is there when it is acknowledged."""

    def __init__(self, log: FakeLog, name: str = "there") -> None:
        self.log, self.name = log, name
        self.topics: dict[str, int] = {"out": PARTITIONS}
        self.compacted: set[str] = set()
        #: Topic and partition -> value, headers.
        self.records: dict[tuple[str, int], list[tuple[Any, Any]]] = defaultdict(list)
        #: Where retention has let each log begin; readers go on there, as with `earliest`.
        self.begins: dict[tuple[str, int], int] = defaultdict(int)
        #: Whether it acknowledges anything; and with what, where it does not.
        self.is_up = True
        self.fails: KafkaError | None = None

    def producer(self, _options: Any = None) -> "FakeProducer":
        return FakeProducer(self)

    def headers(self, topic: str = "out", partition: int = 0) -> list[Stamp | Marker | None]:
        found = self.records[topic, partition]
        return [read_headers(headers, has_value=value is not None) for value, headers in found]

    def committed(self, topic: str = "out", partition: int = 0) -> list[Any]:
        """What a reader from the beginning is given, without a question to anybody."""
        reader: PartitionReader[Any] = PartitionReader()
        for offset, (value, headers) in enumerate(self.records[topic, partition]):
            header = read_headers(headers, has_value=value is not None)
            reader.add(offset, header, value, self.log.now_ms)
        taken = []
        while (one := reader.take()) is not None:
            taken.append(one[1])
        return taken


class FakeProducer:
    """confluent-kafka's idempotent one; time passes while it is polled."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._queue: list[tuple[tuple[str, int], Any, Any, Any]] = []

    def produce(
        self,
        topic: str,
        value: Any,
        _key: Any,
        partition: int,
        *,
        headers: Any,
        timestamp: int,  # as confluent-kafka has it
        on_delivery: Any,
    ) -> None:
        _refuse_strange(value)
        self._queue.append(((topic, partition), value, headers, on_delivery))

    def poll(self, timeout: float) -> int:
        cluster, served = self._cluster, 0
        if cluster.is_up:
            queued, self._queue = self._queue, []
            for place, value, headers, told in queued:
                error = cluster.fails
                if place[0] not in cluster.topics:
                    error = KafkaError(KafkaError._UNKNOWN_TOPIC)
                if error is None:
                    cluster.records[place].append((value, headers))
                told(error, None)
                served += 1
        cluster.log.pump()
        if timeout:
            cluster.log.advance(20)
            time.sleep(timeout / SPEED)
        return served

    def flush(self, _timeout: float) -> int:
        self.poll(0)
        return len(self._queue)

    def purge(self) -> None:
        self._queue = []

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        cluster = self._cluster
        found = {
            name: SimpleNamespace(partitions=dict.fromkeys(range(count)), error=None)
            for name, count in cluster.topics.items()
            if topic in (None, name)
        }
        return SimpleNamespace(cluster_id=cluster.name, topics=found)


def _refuse_strange(value: Any) -> None:
    """As confluent-kafka does."""
    if isinstance(value, str):
        value.encode()
    elif not isinstance(value, bytes | None):
        raise TypeError(f"a bytes-like object is required, not {type(value).__name__!r}")


class FakeMessage:
    """As much of confluent-kafka's Message as is used."""

    def __init__(self, place: tuple[str, int], offset: int, value: Any, headers: Any) -> None:
        self._place, self._offset, self._value, self._headers = place, offset, value, headers
        self._error: KafkaError | None = None

    @classmethod
    def event(cls, place: tuple[str, int], offset: int, code: int) -> "FakeMessage":
        made = cls(place, offset, None, None)
        made._error = KafkaError(code)
        return made

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def value(self) -> Any:
        return self._value

    def headers(self) -> Any:
        return self._headers

    def error(self) -> KafkaError | None:
        return self._error

    def leader_epoch(self) -> int | None:
        return None

    def __len__(self) -> int:
        return len(self._value or b"")


class FakeConsumer:
    """confluent-kafka's, of assigned partitions; time passes while it is polled."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.positions: dict[tuple[str, int], int] = {}
        self.paused: set[tuple[str, int]] = set()
        self._told_end: dict[tuple[str, int], int] = {}

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.positions.clear()
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self.positions[each.topic, each.partition] = max(0, each.offset)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            del self.positions[each.topic, each.partition]

    def unassign(self) -> None:
        self.positions.clear()

    def seek(self, partition: TopicPartition) -> None:
        self.incremental_assign([partition])

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {(each.topic, each.partition) for each in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {(each.topic, each.partition) for each in partitions}

    def poll(self, timeout: float) -> FakeMessage | None:
        self._cluster.log.pump()
        for place, at in self.positions.items():
            if place in self.paused:
                continue
            records, at = self._cluster.records[place], max(at, self._cluster.begins[place])
            if at < len(records):
                self.positions[place] = at + 1
                return FakeMessage(place, at, *records[at])
            if self._told_end.get(place) != at:
                self._told_end[place] = at
                return FakeMessage.event(place, at, KafkaError._PARTITION_EOF)
        if timeout:
            self._cluster.log.advance(20)
            time.sleep(timeout / SPEED)
        return None

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        place = partition.topic, partition.partition
        return self._cluster.begins[place], len(self._cluster.records[place])

    def close(self) -> None:
        self.positions.clear()

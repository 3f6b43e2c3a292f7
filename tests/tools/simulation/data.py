"""The data that groups read: messages, and a stand-in for the Consumer that fetches them."""

from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import TopicPartition as KafkaTopicPartition

from tests.tools.simulation.cluster import Cluster


class Message:
    """As much of a confluent-kafka Message as a consumer looks at."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self._topic, self._partition, self._offset = topic, partition, offset

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def leader_epoch(self) -> int:
        return 0

    def error(self) -> None:
        return None


class DataConsumer:
    """As much of a confluent-kafka Consumer as `Reading` uses: partitions, positions, poll."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._positions: dict[tuple[str, int], int] = {}
        self._paused: set[tuple[str, int]] = set()
        self._is_closed = False

    def incremental_assign(self, partitions: list[KafkaTopicPartition]) -> None:
        self._require_open()
        for each in partitions:
            start = 0 if each.offset == OFFSET_BEGINNING else each.offset
            self._positions[(each.topic, each.partition)] = start

    def incremental_unassign(self, partitions: list[KafkaTopicPartition]) -> None:
        self._require_open()
        for each in partitions:
            del self._positions[(each.topic, each.partition)]
            self._paused.discard((each.topic, each.partition))

    def unassign(self) -> None:
        self._require_open()
        self._positions.clear()
        self._paused.clear()

    def poll(self, timeout: float) -> Message | None:
        for place, position in list(self._positions.items()):
            if place in self._paused or position >= self._cluster.partitions[place].end:
                continue
            if place[0] in self._cluster.hidden:
                continue
            # To the end of the row: the next partition has its turn first.
            del self._positions[place]
            self._positions[place] = position + 1
            return Message(*place, position)
        return None

    def seek(self, partition: KafkaTopicPartition) -> None:
        self._positions[(partition.topic, partition.partition)] = partition.offset

    def pause(self, partitions: list[KafkaTopicPartition]) -> None:
        self._paused |= {(each.topic, each.partition) for each in partitions}

    def resume(self, partitions: list[KafkaTopicPartition]) -> None:
        self._paused -= {(each.topic, each.partition) for each in partitions}

    def close(self) -> None:
        self._positions.clear()
        self._is_closed = True

    def _require_open(self) -> None:
        """Raises RuntimeError, as confluent-kafka does when it is used after `close`."""
        if self._is_closed:
            raise RuntimeError("Consumer closed")

"""How samples of what waits are read, without a broker: partitions that are silent."""

from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from coordlib.job.beginning import SAMPLE, largest_mean

#: In polls, each of which is a second.
LONG = 200


class Record:
    def __init__(self, partition: int, size: int) -> None:
        self._partition, self._size = partition, size

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def value(self) -> bytes:
        return bytes(self._size)

    def error(self) -> None:
        return None


class Log:
    """A reader; each partition delivers all the time, or from some second on.

    Args:
        ignores: records of unassigned partitions are delivered all the same, as those that had
            been fetched before.
    """

    def __init__(self, since_s: dict[int, int], *, ignores: bool = False) -> None:
        self.now_s, self._since_s, self._ignores = 0, since_s, ignores
        self.assigned: set[int] = set()
        self.unassigned: list[int] = []

    def assign(self, partitions: list[TopicPartition], /) -> None:
        self.assigned = {each.partition for each in partitions}

    def incremental_unassign(self, partitions: list[TopicPartition], /) -> None:
        gone = [each.partition for each in partitions]
        assert self.assigned.issuperset(gone), "Kafka refuses that"
        assert len(gone) == len(set(gone)), "Kafka refuses that, too"
        self.assigned -= set(gone)
        self.unassigned += gone

    def consume(self, num_messages: int, timeout: float, /) -> list[Any]:
        self.now_s += 1
        assert self.now_s < LONG, "it waits for ever"
        return list(self._records(num_messages))

    def _records(self, number: int) -> Iterator[Record]:
        for partition, since_s in self._since_s.items():
            if self.now_s >= since_s and (self._ignores or partition in self.assigned):
                yield from (Record(partition, 100) for _ in range(number))

    def get_watermark_offsets(
        self, partition: TopicPartition, /, timeout: float
    ) -> tuple[int, int] | None:
        return None


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    def mean(log: Log) -> float:
        clock = SimpleNamespace(monotonic=lambda: float(log.now_s))
        monkeypatch.setattr("coordlib.job.beginning.time", clock)
        return largest_mean(log, {("t", each): (0, 10 * SAMPLE) for each in log._since_s})

    return mean


@pytest.mark.parametrize("ignores", [False, True])
def test_a_silent_partition_ends_the_start(read: Any, ignores: bool) -> None:
    """Another one had its sample and delivered on: the start waited for ever."""
    with pytest.raises(KafkaException, match="TIMED_OUT"):
        read(Log({0: 0, 1: LONG}, ignores=ignores))


def test_a_partition_that_has_its_sample_is_read_no_further(read: Any) -> None:
    log = Log({0: 0, 1: 5})

    assert read(log) == 100
    assert log.unassigned == [0], "at the first place; then both come at once"


def test_whoever_delivers_is_waited_for(read: Any) -> None:
    """One partition after the other, each within the time."""
    late = dict(zip(range(5), count(0, 15), strict=False))

    assert read(Log(late)) == 100

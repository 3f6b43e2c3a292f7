"""A simulated Spark query of a member that commits with its writes: batch after batch.

`Share.write_once` and `Writes` are the real ones; a batch is as much of a DataFrame as they use.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Self

from coordlib.client.kit.events import Answer, TopicPartition
from coordlib.client.spark.delta_writes import Share
from tests.tools.simulation.lake.table import URI, Row, SparkLake

if TYPE_CHECKING:
    from coordlib.client.groups.member import AssignedMember
    from tests.tools.simulation.lake.member import LakeMember

#: Where a writer may die or stand still: before it asks, before it is answered, when it has seen
#: that its batch is written, and behind its word. Those in between are the table's.
READ, ASKED, WRITTEN, SAID = "read", "asked", "written", "said"
IDLE_MS: Final = 250
#: How often one looks that waits for an answer.
LOOK_MS: Final = 150


class Batch:
    """As much of a DataFrame of the Kafka source as `Writes` looks at."""

    def __init__(self, spark: SparkLake, rows: tuple[Row, ...]) -> None:
        self.sparkSession = spark  # Spark's name
        self.rows = rows
        self.is_cached = False

    def persist(self) -> None:
        self.is_cached = True

    def unpersist(self) -> None:
        self.is_cached = False

    def groupBy(self, *names: str) -> Self:  # noqa: N802  # Spark's name
        assert names == ("topic", "partition")
        return self

    def agg(self, wanted: Mapping[str, str]) -> Self:
        assert wanted == {"offset": "max"}
        return self

    def collect(self) -> list[dict[str, Any]]:
        greatest: dict[tuple[str, int], int] = {}
        for topic, partition, offset in self.rows:
            greatest[topic, partition] = max(offset, greatest.get((topic, partition), -1))
        return [
            {"topic": topic, "partition": partition, "max(offset)": offset}
            for (topic, partition), offset in greatest.items()
        ]


class Awaited:
    """A future of a member: its caller waits on virtual time."""

    def __init__(self, future: "Future[Answer]", process: "LakeMember") -> None:
        self._future, self._process = future, process

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: float) -> Answer:
        """Raises TimeoutError."""
        if timeout > 0:
            self._process.maybe_crash(ASKED)
            self._process.wait(LOOK_MS, self._future.done)
        return self._future.result(0)


class Asking:
    """As much of a member as `Writes` uses."""

    def __init__(self, member: "AssignedMember", process: "LakeMember") -> None:
        self._member, self._process = member, process
        self.identity = member.identity

    def ask(self, event: Any) -> Awaited:
        return Awaited(self._member.ask(event), self._process)


class Query:
    """One run: a fixed set of partitions, read from the committed offsets on.

    Args:
        begin: where each partition begins.
    """

    def __init__(
        self, process: "LakeMember", share: Share, begin: dict[TopicPartition, int]
    ) -> None:
        self.process, self.share, self.positions = process, share, begin
        self.is_in_batch = self.is_over = False
        #: What ended it.
        self.problem: Exception | None = None
        self._ended = process.ended_of(share)

    def work(self) -> None:
        """In its thread, until it is stopped, or a batch fails."""
        try:
            while not self._ended.is_set():
                rows = self._next_rows()
                if not rows:
                    self.process.wait(IDLE_MS, self._ended.is_set)
                    continue
                self.is_in_batch = True
                self._batch(rows)
                self.is_in_batch = False
        except Exception as problem:  # noqa: BLE001  # as Spark keeps what foreachBatch raised
            self.problem = problem
        finally:
            self.is_over, self.is_in_batch = True, False

    def _batch(self, rows: tuple[Row, ...]) -> None:
        """What a user's foreachBatch does."""
        process = self.process
        process.maybe_crash(READ)
        process.wait(process.work_ms(), lambda: False)
        batch = Batch(process.spark, rows)
        self.share.write_once(batch, rows, URI)  # type: ignore[arg-type]  # as much as it uses
        process.maybe_crash(SAID)
        for topic, partition, offset in rows:
            self.positions[TopicPartition(topic, partition)] = offset + 1

    def _next_rows(self) -> tuple[Row, ...]:
        cluster, found = self.process.cluster, []
        for place, at in self.positions.items() if cluster.is_up else ():
            end = min(cluster.partitions[place].end, at + self.process.batch_max)
            found += [(place.topic, place.partition, offset) for offset in range(at, end)]
        return tuple(found)

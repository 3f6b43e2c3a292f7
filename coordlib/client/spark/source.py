"""`spark.readStream.format("coord")`: a streaming query that is a member of a group.

The query is never restarted when partitions move: its state, watermark and checkpoint stay. Spark
makes a `GroupStreamReader` in two kinds of processes. In the planner's, one per query, the reader
is the member (`source_member`). In the others it only carries `read` to the executors
(`source_reading`), so a reader that was pickled has no member.

Schema and options are those of Spark's Kafka source, where they have a meaning in a group.

Keeps INV-147.
"""

import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark.source_member import SourceMember
from coordlib.client.spark.source_offsets import Offset, PlannedRange
from coordlib.client.spark.source_options import SourceOptions, parse
from coordlib.client.spark.source_reading import Task, read_task, schema_of
from coordlib.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class GroupStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query as a member of a group.

    Args:
        tasks: into how many tasks a batch is cut, at most.
    """

    def __init__(self, options: SourceOptions, tasks: int) -> None:
        self._options, self._tasks = options, tasks
        self._member: SourceMember | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_tasks": self._tasks, "_member": None}

    # ---- in the planner's process ---------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """A new query: nothing is read."""
        self._started()
        return Offset.first(self._options.group).json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch. The batch that ends at `start` is through."""
        after = Offset.parse(start, self._options.group)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        planned = self._started().plan(after, rows_max)
        return start if planned is after else planned.json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_max = self._options.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the partitions at the newest look, for the query's progress."""
        return None if self._member is None else self._member.newest_ends()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._started().read_only_until_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one batch, by its own offset alone: a batch that runs again is the same."""
        if start == end:
            return []
        ranges = Offset.parse(end, self._options.group).read
        return [Task(part) for part in _cut(ranges, self._tasks)]

    def stop(self) -> None:
        if self._member is not None:
            self._member.close()

    def _started(self) -> SourceMember:
        if self._member is None:
            self._member = SourceMember(self._options)
            # Spark ends this process by it, and calls no `stop`.
            signal.signal(signal.SIGTERM, self._member.end_process)
            self._member.start()
        return self._member

    # ---- in a worker ----------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, cast(Task, partition))


class GroupSource(DataSource):
    """What `format("coord")` names; `register` makes it known to a session."""

    #: Into how many tasks a batch is cut, at most.
    tasks = 1

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse(options)

    @classmethod
    def name(cls) -> str:
        return "coord"

    def schema(self) -> "StructType":
        return schema_of(self._parsed)

    def streamReader(self, schema: "StructType") -> GroupStreamReader:  # noqa: N802
        if schema != self.schema():
            raise SetupError(
                'Rows of format("coord") have a schema of their own.', "schema(…)", "Leave it out."
            )
        return GroupStreamReader(self._parsed, self.tasks)


def register(spark: "SparkSession") -> None:
    """Make `format("coord")` known to a session.

    Raises:
        SetupError: an executor lacks what reads the records.
    """
    cores = spark.sparkContext.defaultParallelism
    if not str(spark.sparkContext.master).startswith("local"):
        _require_on_executors(spark, cores)

    class Registered(GroupSource):
        tasks = cores

    spark.dataSource.register(Registered)


def _require_on_executors(spark: "SparkSession", cores: int) -> None:
    """Before a member joins: its first batch would fail."""

    def missing(_: object) -> Iterator[str]:
        try:
            import coordlib.client.spark.source_reading  # noqa: F401
        except ImportError as problem:
            yield str(problem)

    found = spark.sparkContext.parallelize(range(cores), cores).mapPartitions(missing).collect()
    if found:
        hint = "Ship an environment with coordlib[cli,spark] to the executors (spark.archives)."
        raise SetupError("An executor cannot read for the group.", found[0], hint)


def _cut(
    ranges: Mapping[TopicPartition, PlannedRange], tasks: int
) -> list[dict[TopicPartition, PlannedRange]]:
    """Ranges by task, the largest first, each to the task with the fewest records so far."""
    parts: list[dict[TopicPartition, PlannedRange]] = [{} for _ in range(min(tasks, len(ranges)))]
    sizes = [0] * len(parts)
    for place, each in sorted(ranges.items(), key=lambda pair: (-pair[1].size, pair[0])):
        least = sizes.index(min(sizes))
        parts[least][place] = each
        sizes[least] += each.size
    return parts

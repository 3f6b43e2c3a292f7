"""The queries of one `SparkGroupReader`, one after another: how they begin, and which end."""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import structlog

from coordlib.client.groups.assigned_member import AssignedMember
from coordlib.client.kit.signals import TopicPartition
from coordlib.client.spark.beginnings import Begin
from coordlib.client.spark.positions import spark_offsets, spark_partitions
from coordlib.client.spark.run import Run
from coordlib.client.spark.share import Share
from coordlib.client.spark.tables import Tables
from coordlib.client.spark.writes import Writes
from coordlib.errors import CoordError, SetupError
from coordlib.kafka.options import KafkaOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_log = structlog.get_logger()
#: Makes the query of one share from the Kafka source's rows; the reader starts it.
Start = Callable[["DataFrame", Share], "DataStreamWriter"]
_UNSAFE: Final = re.compile(r"[^\w.-]", re.ASCII)


class Queries:
    """Starts queries, each with unused batch numbers, and cleans up after them.

    Args:
        start: the user's function.
        source: all options of the Kafka source but the partitions to read.
        folder: for checkpoints.
        writes: of a reader that commits with its writes.
        tables: that the group has written to.
    """

    def __init__(
        self,
        spark: "SparkSession",
        start: Start,
        source: Mapping[str, str],
        folder: Path,
        writes: Writes | None,
        tables: Tables,
    ) -> None:
        self._spark, self._start = spark, start
        self._source, self.folder, self._writes = dict(source), folder, writes
        self._tables = tables
        #: The number of queries started.
        self.count = 0
        #: Batch numbers that earlier queries may have used.
        self._numbers_used = 0
        #: Queries that were stopped and may still be in a batch.
        self._ending: list[Run] = []

    def require_folder(self) -> None:
        """Make the folder, if there is none. Raises SetupError: it cannot be used."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            writable = self.folder / f".can-be-written-{uuid4().hex}"
            writable.touch()
            writable.unlink()
        except OSError as problem:
            mend = "Make space, or name a folder of this machine in which this program may write."
            raise SetupError("The reader's folder cannot be used.", str(problem), mend) from problem

    def begin(
        self,
        member: AssignedMember,
        fences: Mapping[TopicPartition, int],
        begin: Begin,
    ) -> Run:
        """Start the next query. Raises the exceptions of the user's `start` and of Spark."""
        ended, identity = threading.Event(), member.identity
        # A client id, and so a member id, may have characters that no folder should.
        name = _UNSAFE.sub("_", f"{member.member_id}-{self.count}")
        share = Share(
            group=identity.group,
            member=member.member_id,
            generation=member.generation,
            log=f"{identity.incarnation}-{identity.shard}",
            fences=fences,
            checkpoint=str(self.folder / name),
            batches_before=self._numbers_used,
            may_work=lambda: not ended.is_set() and member.may_work(),
            writes=self._writes,
            tables=self._tables,
        )
        writer = self._start(self._rows(begin), share)
        # Here, whatever file system Spark takes paths for by default.
        writer = writer.option("checkpointLocation", f"file://{share.checkpoint}")
        self.count += 1
        run = Run(writer.start(), share, ended, begin)
        _log.info("query started", group=share.group, partitions=len(fences), run=self.count)
        return run

    def forget(self, run: Run) -> None:
        """Stop tracking the query as current: it is stopped, but its batch may still run."""
        run.stop_now()
        self._numbers_used += run.numbers_used
        self._ending.append(run)

    def are_over(self, patience_s: float) -> bool:
        """Whether no stopped query is in a batch any more.

        Raises CoordError: one was stopped longer ago than `patience_s`, and others wait for it.
        """
        for run in [each for each in self._ending if each.is_over()]:
            run.clean_up()
            self._ending.remove(run)
        for run in self._ending:
            if run.ends_since_s <= patience_s:
                continue
            where = f"group {run.share.group}, member {run.share.member}"
            if not run.takes_any_time:
                raise CoordError(
                    "The query was stopped, and its batch does not end.",
                    where,
                    "Look what foreachBatch waits for; if it only takes long, choose a longer "
                    "batch_timeout_s. Then end this program and start again.",
                )
            if not run.has_warned:
                run.has_warned = True
                what = "nothing is read until the batch of a stopped query ends"
                _log.warning(what, where=where, stopped_for_s=round(run.ends_since_s))
        return not self._ending

    def await_end(self, partitions: Iterable[TopicPartition], patience_s: float) -> None:
        """Wait up to this time for the batches of stopped queries that read one of these."""
        for run in self._ending:
            if run.reads_any(partitions):
                run.is_over(patience_s)

    def end(self, patience_s: float) -> None:
        """Wait for each up to this time, and clean up after those that have ended."""
        for run in self._ending:
            if run.is_over(patience_s):
                run.clean_up()

    def _rows(self, begin: Begin) -> "DataFrame":
        return (
            self._spark.readStream.format("kafka")
            .options(**self._source)
            .option("assign", spark_partitions(begin.offsets))
            .option("startingOffsets", spark_offsets(begin.offsets))
            .load()
        )


def source_options(config: Mapping[str, Any]) -> dict[str, str]:
    """Options by which Spark's source reaches the same brokers as coordlib. Raises SetupError."""
    own = ("bootstrap.servers", "group.id", "client.id", "auto.offset.reset")
    values = {key: str(value) for key, value in config.items() if key not in own}
    if not (servers := config.get("bootstrap.servers")):
        mend = 'For example config={"bootstrap.servers": "localhost:9092"}.'
        raise SetupError("A reader needs to know its brokers.", "bootstrap.servers", mend)
    return {**KafkaOptions(values).spark(), "kafka.bootstrap.servers": str(servers)}


def is_true(options: Mapping[str, str], name: str) -> bool:
    """Whether an option of Spark's is set; Spark does not look at the case of names."""
    return any(
        key.lower() == name.lower() and value.lower() == "true" for key, value in options.items()
    )

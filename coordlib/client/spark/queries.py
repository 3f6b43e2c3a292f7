"""The queries of one `SparkGroupReader`, one after another: starts, positions, ends."""

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import structlog

from coordlib.client.groups.member import AssignedMember
from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark.delta_writes import Share, Tables, Writes
from coordlib.client.spark.group_offsets import Begin, CommittedPositions
from coordlib.client.spark.positions import finished, spark_offsets, spark_partitions
from coordlib.errors import CoordError, SetupError
from coordlib.spark_stopping import LOOK_EVERY_S, Gap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_log = structlog.get_logger()


class Run:
    """A query that was started, and the share that it reads.

    Args:
        ended: set as soon as the run may not act any more; its share's `may_work` looks at it.
        begin: where each partition begins; these offsets are committed already.
    """

    def __init__(
        self,
        query: "StreamingQuery",
        share: Share,
        ended: threading.Event,
        begin: Begin,
    ) -> None:
        self.query, self.share = query, share
        self._ended, self._begin = ended, begin
        self.committed = CommittedPositions(begin.committed)
        self._stopper: threading.Thread | None = None
        #: Whether its batch may be as long as any other once it was stopped, as no member waits for
        #: its partitions.
        self.takes_any_time = False
        #: Whether the log has a line that its batch goes on and on.
        self.has_warned = False
        self._stopped_s = 0.0

    def reads_any(self, partitions: Iterable[TopicPartition]) -> bool:
        return not self.share.fences.keys().isdisjoint(partitions)

    def unsaid(self) -> dict[TopicPartition, int]:
        """Positions of finished batches that are not written to the log yet."""
        read = {each: at for each, at in finished(self.query).items() if each in self.share.fences}
        return self.committed.uncommitted(read)

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition."""
        read = finished(self.query)
        return {each: read.get(each, at) for each, at in self._begin.offsets.items()}

    @property
    def numbers_used(self) -> int:
        """A bound of the numbers that its batches have used, also of one that was given up.

        A batch begins after the progress of the one before it was reported: at most one more has
        begun than the newest progress shows. Its number is `batch + 1`; 0 is the claim's.
        """
        newest = self.query.lastProgress
        return (int(newest["batchId"]) if newest is not None else -1) + 3

    def stop(self, patience_s: float) -> bool:
        """Wait up to this time for the end of the batch, then stop; returns whether it ended.

        A batch that takes longer is cut short, and has a quarter of that time to end.
        """
        gap, until = Gap(self.query), time.monotonic() + patience_s
        while not gap.is_here and time.monotonic() < until:
            time.sleep(LOOK_EVERY_S)
        self.stop_now()
        return self.is_over(patience_s / 4)

    def stop_now(self) -> None:
        """Returns at once. Spark interrupts its own thread, but Python code in foreachBatch goes on
        until it returns: from now on its share's `may_work` is false.
        """
        self._ended.set()
        if self._stopper is None:
            self._stopped_s = time.monotonic()
            self._stopper = threading.Thread(target=self._stop_query, daemon=True)
            self._stopper.start()

    def is_over(self, timeout_s: float = 0.0) -> bool:
        """Whether nothing of it runs any more; only after `stop_now`."""
        stopper = self._stopper
        if stopper is None:
            return False
        stopper.join(max(0.0, timeout_s))
        return not stopper.is_alive()

    @property
    def ends_since_s(self) -> float:
        """Seconds since it was stopped."""
        return time.monotonic() - self._stopped_s if self._stopper is not None else 0.0

    def clean_up(self) -> None:
        """Delete its checkpoint, which is not read again: its offsets are in the log."""
        shutil.rmtree(Path(self.share.checkpoint), ignore_errors=True)

    def _stop_query(self) -> None:
        try:
            self.query.stop()
        except Exception as problem:  # noqa: BLE001  # of a batch that was cut short, in any words
            _log.info("a batch was cut short", group=self.share.group, error=repr(problem)[:500])


#: Makes the query of one share from the Kafka source's rows; the reader starts it.
StartQuery = Callable[["DataFrame", Share], "DataStreamWriter"]
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
        start: StartQuery,
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
            hint = "Make space, or name a folder of this machine in which this program may write."
            raise SetupError("The reader's folder cannot be used.", str(problem), hint) from problem

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
            where = run.share.where
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

"""One query of the job: a pipeline's source, fold and sink, on a checkpoint of its own."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import replace

from coordlib.config import EngineConfig
from coordlib.core.engine.state import ShardSettings
from coordlib.core.wire.stored import Layout
from coordlib.errors import CoordError, ReplayDiffers, TooMuchAtOnce, WorkerEnded
from coordlib.job import rebuild
from coordlib.job.batch import Batch, BatchSize, assemble
from coordlib.job.beginning import Memory, beginning_of, size_of_batches
from coordlib.job.checkpoint import CheckpointFolder, Ended, Identity
from coordlib.job.crash import CrashPoint
from coordlib.job.failures import has_java_ended
from coordlib.job.judged_log import JudgedLog
from coordlib.job.operator import Beginning, judge, judge_alone
from coordlib.job.pipelines import Pipeline
from coordlib.job.progress import OtherCells, next_marker
from coordlib.job.rebuild import Replay
from coordlib.job.sink import TransactionalSink, Written, open_producer
from coordlib.job.start import (
    Probing,
    agree,
    begun_with,
    ended_before,
    make_anew,
    must_begin_anew,
    next_record,
    not_committed,
)
from coordlib.job.workers import LOW_NICENESS, workers_of
from coordlib.kafka import reading
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin, reaching
from coordlib.kafka.layout import Grown, grown, recorded_partitions
from coordlib.kafka.logs import Bounds, Place
from coordlib.kafka.options import KafkaOptions
from coordlib.kafka.topics import look_up
from coordlib.kafka.transactions import fence
from coordlib.spark_stopping import stop_between_batches

if TYPE_CHECKING:
    from pyspark.broadcast import Broadcast
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: How long a task waits for a broker; Spark's default is spark.network.timeout, which is about
#: executors here.
BROKER_TIMEOUT_MS: Final = 120_000


def read_inputs(
    spark: "SparkSession",
    inputs: Mapping[str, str],
    options: Mapping[str, str],
    engine: EngineConfig,
    starting_offsets: Mapping[str, Mapping[str, int]] | None,
    records_max: int,
    partitions: Sequence[int],
) -> "DataFrame":
    """Columns shard, topic (an input's letter), offset, timestamp_ms, is_log_append, value.

    Args:
        inputs: topics by letter.
        options: `kafka.*` options of the source, with `kafka.bootstrap.servers`.
        engine: how long a fetch may wait at its end.
        starting_offsets: topic -> partition -> next offset, of a new checkpoint; None: earliest.
        records_max: how many records a batch may have (`batch.py`).
        partitions: those of each topic that are read: shards, and none that was added to a topic.
    """
    from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

    letters = F.create_map(*(F.lit(x) for letter, topic in inputs.items() for x in (topic, letter)))
    start = json.dumps(starting_offsets) if starting_offsets else "earliest"
    return (
        spark.readStream.format("kafka")
        .option("kafka.fetch.max.wait.ms", engine.fetch_wait_ms)
        .option("kafkaConsumer.pollTimeoutMs", BROKER_TIMEOUT_MS)
        .options(**options)
        .options(**chosen(inputs, partitions))
        .option("startingOffsets", start)
        .option("maxOffsetsPerTrigger", records_max)
        .option("failOnDataLoss", "true")
        .load()
        .select(
            F.col("partition").alias("shard"),
            letters[F.col("topic")].alias("topic"),
            F.col("offset"),
            F.unix_millis(F.col("timestamp")).alias("timestamp_ms"),
            (F.col("timestampType") == 1).alias("is_log_append"),
            F.col("value"),
        )
    )


def chosen(inputs: Mapping[str, str], partitions: Sequence[int]) -> dict[str, str]:
    """The option that says what is read: named partitions, as a subscription takes up whatever is
    added to a topic, which is of no shard.  # INV-115"""
    return {"assign": json.dumps({topic: list(partitions) for topic in inputs.values()})}


_log = structlog.get_logger()
#: Of the pipelines' queries alone. Their expressions are few and their batches small: Java code is
#: written anew for each task of each batch, which took a tenth of a batch and a quarter of its CPU.
QUERY_CONF: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_EARLIEST: Final = -2
#: Called after each batch: what was committed, and where its outputs end.
OnBatch = Callable[[Batch, Written], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """Where a pipeline's query reads and keeps its state, and in what sizes."""

    bootstrap_servers: str
    #: Folder or URI of the query's checkpoint.
    checkpoint: str
    engine: EngineConfig = field(default_factory=EngineConfig)
    kafka: KafkaOptions = field(default_factory=KafkaOptions)
    #: The application has another query, for whose answers somebody waits: a batch of this one is
    #: one task at a time, in Python workers that the other's come before.
    is_low_priority: bool = False

    @property
    def client(self) -> dict[str, str]:
        """Options of librdkafka's clients."""
        return {**self.kafka.librdkafka(), "bootstrap.servers": self.bootstrap_servers}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """What was settled at the start, and holds for every query of this driver."""

    settings: ShardSettings
    identity: Identity
    folder: CheckpointFolder
    taken_over: int
    beginning: "Broadcast[Beginning]"
    #: Shard -> where its input begins, of a pipeline that was brought up by its input.
    starts: Mapping[int, int]
    #: Of one Python worker.
    memory_bytes: int
    size: BatchSize


class PipelineQuery:
    """A pipeline's query. `query` is Spark's, perhaps one after the other; `failure`: why it ended.

    Args:
        on_batch: called in the query's thread; what it raises ends the query.
    """

    def __init__(
        self, spark: "SparkSession", pipeline: Pipeline, options: QueryOptions, on_batch: OnBatch
    ) -> None:
        #: What it reads and judges.
        self.pipeline = pipeline
        self._spark, self._options, self._on_batch = spark, options, on_batch
        self.newest_by_key = partial(reading.newest_by_key, options.client)
        timeout_ms = options.engine.transaction_timeout_ms
        self.sink = TransactionalSink(
            pipeline,
            partial(open_producer, pipeline, options.client, timeout_ms),
            self.newest_by_key,
            timeout_ms,
            client_options=options.client,
            others=OtherCells(
                partial(fence, options.client), partial(reading.newest_decided, options.client)
            ),
        )
        self.query: StreamingQuery | None = None
        self.failure: CoordError | None = None
        self._settled: tuple[CheckpointFolder, Identity] | None = None
        self._log: JudgedLog | None = None
        self._running: _Running | None = None
        #: Of the batches' size, which the query's thread and the owner's change.
        self._lock = threading.Lock()
        #: Records are judged one by one; the query has not begun.
        self.is_probing = False
        self._crash = CrashPoint.from_environment(pipeline.label)

    @property
    def folder(self) -> CheckpointFolder:
        """The checkpoint's folder."""
        return CheckpointFolder(self._spark, self._options.checkpoint)

    @property
    def records_max(self) -> int:
        """How many records Spark plans for a batch; 0 before the first query."""
        return self._running.size.records if self._running else 0

    def bounds_of_saved(self, shards: Iterable[int]) -> dict[Place, Bounds | None]:
        """Where the topics begin and end from which these shards are restored.

        Raises CannotReach: no broker answers.
        """
        prefix, names = self.pipeline.prefix, self.pipeline.restored_from
        places = [Place(f"{prefix}.{name}", shard) for name in names for shard in shards]
        with reaching("It is not known where the topics begin.", "Check that the broker runs."):
            return log_bounds(open_admin(self._options.client, log_level=2), places)

    def must_begin_anew(self) -> bool:
        """Whether the checkpoint has to be made anew, by the progress topic as it was read."""
        return must_begin_anew(self.folder, self.sink.marker)

    def settle(
        self,
        layout: Layout,
        is_rebuild: bool = False,
        replay: Replay | None = None,
        log: JudgedLog | None = None,
        require_whole: Callable[[], None] = lambda: None,
    ) -> CheckpointFolder:
        """Fence older drivers and settle which checkpoint goes on; `agree` has the arguments.

        Raises:
            StartRefused: the topics or the checkpoint are not what they must be.
            CannotReach: no broker answers.
        """
        folder = self.folder
        folder.make()
        identity = agree(
            self.sink,
            folder,
            layout,
            self.pipeline,
            self.newest_by_key,
            is_rebuild,
            replay,
            log=log,
            require_whole=require_whole,
        )
        self._settled, self._log = (folder, identity), log
        shards = self.pipeline.shards(layout.shards)
        cut, bounds = rebuild.cut_at_two_looks(
            lambda: self.bounds_of_saved(shards), self.sink.marker
        )
        for each in cut:
            hint = "keep the checkpoint: a rebuild would lack them"
            _log.error("a compacted topic has lost records", where=each, hint=hint)
        if is_rebuild:  # what is there is what the states are made of
            there = ((place, log) for place, log in bounds.items() if log is not None and log.end)
            self.sink.saved = {place: log.end - 1 for place, log in there}
        return folder

    def lost_checkpoint(self) -> str:
        """Why the next start will not find the checkpoint of this run; empty: it will.

        Spark notices nothing: it makes a folder that was removed again, for its next batch.
        """
        assert self._settled is not None, "settle comes first"
        folder, identity = self._settled
        found = folder.identity()
        if found == identity:
            return ""
        what = "has been removed" if found is None else "is another one now"
        return (
            f"the checkpoint {what} under the running job, which goes on; the next start cannot. "
            f"Stop the job, empty {folder.path}, and start with --rebuild."
        )

    def grown(self) -> list[Grown]:
        """Topics to which partitions were added. Raises KafkaException, NotAllowed."""
        layout, prefix, client = self.sink.layout, self.pipeline.prefix, self._options.client
        if layout is None:
            return []
        names = recorded_partitions(prefix, layout)
        found = look_up(open_admin(client, log_level=2), names, client)
        return grown(prefix, layout, {name: len(each.partitions) for name, each in found.items()})

    def prepare(
        self,
        settings: ShardSettings,
        replay: Replay | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Find what the settled checkpoint goes on from.

        Raises StartRefused, CannotReach; StopAsked: `is_stopped` said so, between two probes.
        """
        running = self._running_of(settings, replay)
        ended = running.folder.ended()
        if self.pipeline.sets_aside and ended is not None and ended.probes:
            self._probe(running, ended, is_stopped)
            running = self._running_of(settings, replay)
        self._plan_no_more_than_before(running)

    def _probe(self, running: _Running, ended: Ended, is_stopped: Callable[[], bool]) -> None:
        """Judge the records that come next one by one, then begin behind them.  # INV-144"""
        folder, layout = running.folder, self.sink.layout
        assert layout is not None, "agreed on"
        before, pipeline, newest_by_key = self.sink.marker, self.pipeline, self.newest_by_key
        self.is_probing = True
        Probing(
            pipeline=pipeline,
            sink=self.sink,
            next_record=partial(next_record, self._options.client),
            newest_by_key=newest_by_key,
            folder=folder,
            identity=running.identity,
            settings=running.settings,
            judge=partial(judge_alone, self._spark, pipeline.fold),
            write=partial(self.write_batch, running=running),
            is_stopped=is_stopped,
        ).run()
        self.is_probing = False
        ended = replace(ended, probes=False)
        if (marker := self.sink.marker) is before:
            folder.write_ended(ended)
            return
        pages = self.sink.progress.id_pages
        seeds = rebuild.seed_blobs(newest_by_key, pages, pipeline, layout.shards, marker)
        made = make_anew(self.sink, folder, layout, pipeline, seeds, ended)
        self._settled = folder, made

    def _running_of(self, settings: ShardSettings, replay: Replay | None) -> _Running:
        """Keep what the settled checkpoint goes on from."""
        assert self._settled is not None, "settle comes first"
        folder, identity = self._settled
        marker, progress, engine = self.sink.marker, self.sink.progress, self._options.engine
        memory = Memory.of(self._spark, engine)
        beginning = beginning_of(
            folder, identity, marker, self.pipeline, self.newest_by_key, progress.id_pages, replay
        )
        self._running = _Running(
            settings=replace(settings, set_aside=progress.set_aside),
            identity=identity,
            folder=folder,
            taken_over=beginning.taken_over,
            beginning=self._spark.sparkContext.broadcast(beginning),
            starts=replay.starts if replay else {},
            memory_bytes=memory.worker_bytes,
            size=size_of_batches(
                self._options.client, self.pipeline, settings.shards, marker, engine, memory
            ),
        )
        return self._running

    def _plan_no_more_than_before(self, running: _Running) -> None:
        """After a batch that has ended the job. One that runs again is noted.  # INV-131"""
        folder, identity, marker = running.folder, running.identity, self.sink.marker
        if (ended := ended_before(folder, identity, marker)) is not None:
            running.size.limit(ended.records)
        planned = not_committed(folder, identity, marker)
        if planned is None:
            return
        begun = begun_with(folder, identity, planned, running.size.records)
        with _put_up_with("the start is not counted"):
            folder.write_begun(begun)

    def note_end(self, reason: Exception | None) -> None:
        """Keep for the next start whether the planned batch was too much.  # INV-131

        Args:
            reason: what ended the query; None: it is to stop. One that nobody knows leaves the
                note of the start, as an end without a word does, but for the end of Java with a
                planned batch: that is halved, while a record that is probed would be rejected.
        """
        if self._settled is None:
            return
        folder, identity = self._settled
        with _put_up_with("the next start runs the planned batch once more"):
            notes = folder.without_java() or folder
            is_silent = isinstance(reason, WorkerEnded) or not isinstance(reason, CoordError | None)
            is_known = isinstance(reason, TooMuchAtOnce)
            if is_known or (is_silent and has_java_ended(folder)):
                self._note_too_much(notes, identity, is_known)
            elif not is_silent:
                notes.forget_begun()
                notes.forget_silent_probe()

    def _note_too_much(self, folder: CheckpointFolder, identity: Identity, is_known: bool) -> None:
        planned, probe = not_committed(folder, identity, self.sink.marker), folder.probe()
        if planned is not None:
            records = min(planned.records, self.records_max or planned.records)
            folder.write_ended(
                Ended(checkpoint=identity.checkpoint, batch=planned.number, records=records)
            )
        elif probe is not None and is_known:  # Java may have been killed, too
            folder.write_probe(replace(probe, is_too_much=True))

    def begin(self) -> "StreamingQuery":
        """Start the query."""
        assert self._running is not None, "prepare comes first"
        return self._begin(self._running)

    def close(self) -> None:
        """Stop between two batches, and write nothing more."""
        if self.query is not None:
            stop_between_batches(self.query)
        self.sink.close()

    def plan_other_batches(self) -> None:
        """Go on with another number of records in a batch, if the requests' sizes ask for it."""
        running, query = self._running, self.query
        if running is None or query is None or not query.isActive:
            return
        with self._lock:
            records = running.size.next(time.monotonic())
        if records == running.size.records:
            return
        _log.warning(
            "batches have another number of records from now on",
            records=records,
            query=self.pipeline.query_name,
        )
        stop_between_batches(query)
        if query.exception() is None:
            running.size.renewed(records, time.monotonic())
            self._begin(running)

    def _begin(self, running: _Running) -> "StreamingQuery":
        options, spark, pipeline = self._options, self._spark, self.pipeline
        continued = running.identity.rebuilt_from
        rows = read_inputs(
            spark,
            pipeline.inputs,
            {**options.kafka.spark(), "kafka.bootstrap.servers": options.bootstrap_servers},
            options.engine,
            _starting_offsets(continued.next_offsets, running, pipeline) if continued else None,
            running.size.records,
            pipeline.shards(running.settings.shards),
        )
        if options.is_low_priority:
            rows = rows.coalesce(1)
        with workers_of(spark, LOW_NICENESS if options.is_low_priority else 0):
            outputs = judge(
                rows,
                pipeline,
                running.settings,
                running.beginning,
                running.memory_bytes,
                running.identity.keys,
            )
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pipeline.pool)
        writer = (
            outputs.writeStream.queryName(pipeline.query_name)
            .option("checkpointLocation", options.checkpoint)
            .trigger(processingTime=f"{options.engine.trigger_interval_ms} milliseconds")
            .outputMode("append")
            .foreachBatch(_BatchWriter(self, running))
        )
        self.query = start_interpreted(spark, writer)
        return self.query

    def write_batch(self, frame: "DataFrame", number: int, running: _Running) -> None:
        """One micro-batch: collect once, write once, tell the owner."""
        began = time.monotonic()
        self._crash.maybe_crash("batch-begins", number)
        try:
            # Arrow, because pickling rows one by one costs more than writing them.
            columns = frame.toArrow().to_pydict()
            batch = assemble(number, zip(*columns.values(), strict=True))
            self._crash.maybe_crash("batch-judged", number)
            if self._log is not None:
                before, inputs = self.sink.marker, self.pipeline.inputs
                after = next_marker(before, batch, running.identity, inputs)
                self._log.require_same(before, after)
            written = self.sink.write(batch, running.identity, running.taken_over)
        except CoordError as problem:
            self.failure = problem
            if isinstance(problem, ReplayDiffers):
                running.folder.write_difference(running.identity.checkpoint, number)
            raise
        with self._lock:
            for report in batch.reports:
                running.size.batch_ended(report.records, report.input_bytes, report.output_bytes)
        self._on_batch(batch, written)
        spent = time.monotonic() - began
        self._crash.maybe_crash("batch-ends", number)
        _log.debug("batch", number=number, outputs=len(batch.outputs), seconds=round(spent, 3))


@contextmanager
def _put_up_with(what: str) -> Iterator[None]:
    """Notes of batches only help: where none can be written, all goes on without."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, OSError, CoordError) as problem:  # the Java process may have ended, too
        _log.warning(what, error=str(problem))


def start_interpreted(spark: "SparkSession", writer: "DataStreamWriter") -> "StreamingQuery":
    """Start a query for which Spark writes no Java code; all else of the session is as before."""
    with _set(spark, QUERY_CONF):  # the query has a copy of the session's settings
        return writer.start()


class _BatchWriter:
    """foreachBatch's function."""

    def __init__(self, owner: PipelineQuery, running: _Running) -> None:
        self._owner, self._running = owner, running

    def __call__(self, frame: "DataFrame", number: int) -> None:
        self._owner.write_batch(frame, number, self._running)


@contextmanager
def _set(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)


def _starting_offsets(
    next_offsets: Mapping[str, Mapping[str, int]], running: _Running, pipeline: Pipeline
) -> dict[str, dict[str, int]]:
    """Spark wants every partition named; -2 is its word for the earliest."""
    return {
        topic: {
            str(shard): max(
                next_offsets.get(topic, {}).get(str(shard), _EARLIEST),
                running.starts.get(shard, _EARLIEST),
            )
            for shard in pipeline.shards(running.settings.shards)
        }
        for topic in pipeline.inputs.values()
    }

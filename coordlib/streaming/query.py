"""The coordinator as a streaming query: checks at the start, then source, operator and sink.

topics are as they must be -> fence older drivers -> read the marker -> layout agrees ->
checkpoint belongs to them -> run
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from coordlib.config import CoordinatorConfig
from coordlib.coordinators.groups.family import Groups
from coordlib.coordinators.groups.settings import GroupSettings
from coordlib.coordinators.shard.shard import ShardSettings
from coordlib.effects.routing import OUTPUT_TOPICS, RESPONSES
from coordlib.errors import CoordError, ReplayDiffers
from coordlib.kafka import compacted, topics
from coordlib.kafka.options import KafkaOptions
from coordlib.records.stored import FEATURES, Layout, Marker
from coordlib.spark.stopping import stop_between_batches
from coordlib.streaming.batch import Batch, assemble
from coordlib.streaming.batch_size import BatchSize
from coordlib.streaming.beginning import beginning_of, size_of_batches, worker_memory_bytes
from coordlib.streaming.beside.offset_watch import OffsetWatch
from coordlib.streaming.beside.status_file import StatusFile
from coordlib.streaming.beside.ticks import KafkaTicks, TickThread, TickWriter
from coordlib.streaming.beside.topic_watch import KafkaCluster, TopicWatch
from coordlib.streaming.beside.troubles import Troubles
from coordlib.streaming.checkpoint import CheckpointFolder, Identity
from coordlib.streaming.control import ControlWriter
from coordlib.streaming.control_keys import Authority, begin, requests_ends
from coordlib.streaming.crash import Crash
from coordlib.streaming.operator import Beginning, judge
from coordlib.streaming.plane import Plane, groups
from coordlib.streaming.signatures import ED25519
from coordlib.streaming.sink import TransactionalSink
from coordlib.streaming.sink_producer import open_producer
from coordlib.streaming.source import read_inputs
from coordlib.streaming.start import agree
from coordlib.streaming.start_times import StartTimes
from coordlib.streaming.strategies import load_strategies

if TYPE_CHECKING:
    from pyspark.broadcast import Broadcast
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = structlog.get_logger()
POOL = "coordinator"
#: Of the coordinator's query alone. Its expressions are few and its batches small: Java code is
#: written anew for each task of each batch, which took a tenth of a batch and a quarter of its CPU.
QUERY_CONF: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """What the coordinator reads, where it keeps its state, and how it judges."""

    bootstrap_servers: str
    prefix: str = "coord"
    #: Folder or URI of the query's checkpoint.
    checkpoint: str
    config: CoordinatorConfig = field(default_factory=CoordinatorConfig)
    kafka: KafkaOptions = field(default_factory=KafkaOptions)
    status_file: Path | None = None
    #: Begin a new checkpoint from the compacted topics.
    is_rebuild: bool = False


class Coordinator:
    """A running coordinator. `query` is Spark's; `failure` says why it ended, if it did."""

    def __init__(
        self, spark: "SparkSession", options: CoordinatorOptions, times: StartTimes | None = None
    ) -> None:
        self._spark, self._options = spark, options
        self._times = times or StartTimes()
        self._plane = groups(options.prefix)
        self._client_options = {
            **options.kafka.librdkafka(),
            "bootstrap.servers": options.bootstrap_servers,
        }
        self.failure: Exception | None = None
        self.query: StreamingQuery | None = None
        self._status = StatusFile(options.status_file)
        self._status.status.checkpoint = options.checkpoint
        self._status.write()
        #: When the newest batch was told, or the start.
        self._told_ms = self._status.status.updated_ms
        self._newest_by_key = partial(compacted.newest_by_key, self._client_options)
        timeout_ms = options.config.engine.transaction_timeout_ms
        self._sink = TransactionalSink(
            self._plane,
            partial(open_producer, self._plane, self._client_options, timeout_ms),
            self._newest_by_key,
            timeout_ms,
        )
        self._running: _Running | None = None
        self._control: ControlWriter | None = None
        self._ticks: TickThread | None = None
        self._topics: TopicWatch | None = None
        self._strategies = load_strategies(options.config.assigned.strategies)
        self._crash = Crash.from_environment()
        #: What fails beside the query.
        self.troubles = Troubles()
        self._offsets = OffsetWatch(
            self._client_options, options.prefix, options.config.engine, self.troubles
        )

    def start(self) -> "StreamingQuery":
        """Check everything, fence older drivers, and run.

        Raises:
            StartRefused: the topics or the checkpoint are not what they must be.
            CannotReach: no broker answers.
        """
        found, warnings = topics.require(self._client_options, self._options.prefix)
        for warning in warnings:
            _log.warning(str(warning))
        layout, prefix = _layout_of(found), self._options.prefix
        folder = CheckpointFolder(self._spark, self._options.checkpoint)
        identity = agree(
            self._sink, folder, layout, self._plane, self._newest_by_key, self._options.is_rebuild
        )
        ends = partial(requests_ends, self._client_options, prefix, layout.shards)
        authority = begin(self._sink, folder, found.incarnation, ends, ED25519)
        self._control = ControlWriter(prefix, self._client_options, authority.signer)
        self._ticks = TickThread(
            TickWriter(
                KafkaTicks(self._control, self._client_options),
                positions_at_start(self._sink.marker, layout.shards),
                output_partitions(prefix, layout),
            )
        )
        marker, engine = self._sink.marker, self._options.config.engine
        memory_bytes = worker_memory_bytes(self._spark, engine)
        beginning = beginning_of(folder, identity, marker, self._plane, self._newest_by_key)
        self._running = _Running(
            settings=self._settings(layout, found.incarnation, authority),
            identity=identity,
            folder=folder,
            taken_over=beginning.taken_over,
            beginning=self._spark.sparkContext.broadcast(beginning),
            memory_bytes=memory_bytes,
            size=size_of_batches(
                self._client_options, self._plane, layout.shards, marker, engine, memory_bytes
            ),
        )
        self._times.reach("checks")
        self.query = self._run(self._running)
        self._times.reach("query")
        self._offsets.start(layout.shards)
        self._ticks.start()
        self._watch_topics(layout, self._control)
        return self.query

    def _watch_topics(self, layout: Layout, control: ControlWriter) -> None:
        interval_ms = self._options.config.engine.topic_watch_interval_ms
        if interval_ms:
            prefix, options = self._options.prefix, self._client_options
            cluster = KafkaCluster(prefix, layout.shards, control, options)
            self._topics = TopicWatch(cluster, interval_ms / 1000, self.troubles)
            self._topics.start()

    def _settings(self, layout: Layout, incarnation: str, authority: Authority) -> ShardSettings:
        config = self._options.config
        return ShardSettings(
            shard=-1,
            shards=layout.shards,
            reply_partitions=layout.reply_partitions,
            incarnation=incarnation,
            bounds=config.shard,
            families={Groups.SPACE: GroupSettings(config.group, self._strategies)},
            keys=authority.keys,
            verify=ED25519.verify,
            checks_invariants=config.engine.check_invariants,
        )

    def check(self) -> None:
        """Tell what fails beside the query. Raises CannotReach when the ticks have ended."""
        self._plan_other_batches()
        # Not with the batches: those that do not come are when somebody looks.
        with self._status.lock:
            if self._note_troubles():
                self._status.write()
        if self._ticks is not None:
            self._ticks.check()

    def _plan_other_batches(self) -> None:
        """Go on with another number of records in a batch, if the requests' sizes ask for it."""
        running, query = self._running, self.query
        if running is None or query is None or not query.isActive:
            return
        with self._status.lock:
            records = running.size.next(time.monotonic())
        if records == running.size.records:
            return
        _log.warning("batches have another number of records from now on", records=records)
        stop_between_batches(query)
        if query.exception() is None:
            running.size.renewed(records, time.monotonic())
            self.query = self._run(running)

    def _note_troubles(self) -> bool:
        """Whether there is anything new."""
        status = self._status.status
        before = status.watches_failing, status.offsets_failing
        status.watches_failing = self.troubles.now
        status.offsets_failing = self._offsets.failing
        return before != (status.watches_failing, status.offsets_failing)

    def close(self) -> None:
        """Write nothing more into the log, and say that the job has stopped."""
        if self._topics is not None:
            self._topics.stop()
        if self._ticks is not None:
            self._ticks.stop()
        if self._control is not None:
            self._control.close()
        self._offsets.stop()
        with self._status.lock:
            self._status.status.state = "stopped" if self.failure is None else "failed"
            self._status.write()

    def _run(self, running: "_Running") -> "StreamingQuery":
        options, spark = self._options, self._spark
        config = options.config
        continued = running.identity.rebuilt_from
        plane = self._plane
        rows = read_inputs(
            spark,
            plane.inputs,
            {**options.kafka.spark(), "kafka.bootstrap.servers": options.bootstrap_servers},
            config.engine,
            _starting_offsets(continued.next_offsets, running.settings.shards, plane)
            if continued
            else None,
            running.size.records,
        )
        outputs = judge(
            rows,
            plane.fold,
            running.settings,
            running.beginning,
            running.memory_bytes,
            running.identity.keys_of_shards,
        )
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        writer = (
            outputs.writeStream.queryName(plane.query_name)
            .option("checkpointLocation", options.checkpoint)
            .trigger(processingTime=f"{config.engine.trigger_interval_ms} milliseconds")
            .outputMode("append")
            .foreachBatch(_BatchWriter(self, running))
        )
        with _set(spark, QUERY_CONF):  # the query has a copy of the session's settings
            return writer.start()

    def write_batch(self, frame: "DataFrame", number: int, running: "_Running") -> None:
        """One micro-batch: collect once, write once, tell the ticks and the status file."""
        began = time.monotonic()
        self._crash.strike("batch-begins", number)
        try:
            # Arrow, because pickling rows one by one costs more than writing them.
            columns = frame.toArrow().to_pydict()
            batch = assemble(number, zip(*columns.values(), strict=True))
            self._crash.strike("batch-judged", number)
            written = self._sink.write(batch, running.identity, running.taken_over)
        except CoordError as problem:
            self.failure = problem
            if isinstance(problem, ReplayDiffers):
                running.folder.write_difference(number)
            raise
        statuses = [report.status for report in batch.reports]
        if self._ticks is not None:
            self._ticks.writer.batch_committed(statuses, written)
        with self._status.lock:
            for report in batch.reports:
                running.size.batch_ended(report.records, report.input_bytes)
            self._tell(batch, running.size.records)
        spent = time.monotonic() - began
        self._crash.strike("batch-ends", number)
        _log.debug("batch", number=number, outputs=len(batch.outputs), seconds=round(spent, 3))

    def _tell(self, batch: Batch, records_max: int) -> None:
        status, marker = self._status.status, self._sink.marker
        now = time.time_ns() // 1_000_000
        status.last_batch_ms = now - self._told_ms if self._told_ms else 0
        self._told_ms = now
        if status.state == "starting":
            self._times.reach("first batch")
            status.start_s = self._times.phases
            _log.info(
                "started", **{f"{n}_s".replace(" ", "_"): s for n, s in status.start_s.items()}
            )
        # Not before: the first batch, brought by the tick at the start, compiles everything and
        # takes seconds; who waits for "running" is then answered at once.
        status.state = "running"
        status.batch_id = batch.number
        status.batch_records_max = records_max
        status.outputs += len(batch.outputs)
        status.state_bytes = sum(report.state_bytes for report in batch.reports)
        if marker is not None:
            status.next_offsets = marker.next_offsets
            status.judged_ms = max((p.previous_ms for p in marker.shards.values()), default=0)
        if self._ticks is not None:
            status.ticks = self._ticks.writer.written
        self._note_troubles()
        self._status.write()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """What was settled at the start, and holds for every query of this driver."""

    settings: ShardSettings
    identity: Identity
    folder: CheckpointFolder
    taken_over: int
    beginning: "Broadcast[Beginning]"
    #: Of one Python worker.
    memory_bytes: int
    size: BatchSize


class _BatchWriter:
    """foreachBatch's function."""

    def __init__(self, coordinator: Coordinator, running: _Running) -> None:
        self._coordinator, self._running = coordinator, running

    def __call__(self, frame: "DataFrame", number: int) -> None:
        self._coordinator.write_batch(frame, number, self._running)


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


def _layout_of(found: topics.Layout) -> Layout:
    return Layout(
        shards=found.shards,
        reply_partitions=found.responses,
        topic_ids=dict(found.topic_ids),
        features=FEATURES,
    )


def positions_at_start(marker: Marker | None, shards: int) -> dict[int, int]:
    """Newest request of each shard whose outputs are committed; -1: none."""
    known = marker.shards if marker else {}
    return {s: known[str(s)].offset if str(s) in known else -1 for s in range(shards)}


def output_partitions(prefix: str, layout: Layout) -> list[tuple[str, int]]:
    """Wherever a driver of this prefix may have written outputs."""
    counts = dict.fromkeys(OUTPUT_TOPICS, layout.shards)
    counts[RESPONSES] = layout.reply_partitions
    return [
        (f"{prefix}.{t}", partition) for t, count in counts.items() for partition in range(count)
    ]


def _starting_offsets(
    next_offsets: dict[str, dict[str, int]], shards: int, plane: Plane
) -> dict[str, dict[str, int]]:
    """Spark wants every partition named; -2 is its word for the earliest."""
    return {
        topic: {str(s): next_offsets.get(topic, {}).get(str(s), -2) for s in range(shards)}
        for topic in plane.inputs.values()
    }

"""The coordinator as a streaming query: checks at the start, then source, operator and sink."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from coordlib.config import CoordinatorConfig
from coordlib.core.controller.protocol import BrokersSettings, Clusters
from coordlib.core.engine.effects import OUTBOX, OUTPUT_TOPICS, RESPONSES
from coordlib.core.engine.state import ShardSettings
from coordlib.core.groups.assignors.registry import BUILT_IN
from coordlib.core.groups.assignors.server_model import Strategy
from coordlib.core.groups.group import GroupSettings
from coordlib.core.groups.protocol import Groups
from coordlib.core.transactions.protocol import Transactions, TransactionsSettings
from coordlib.core.wire import stored
from coordlib.core.wire.cells import Owned, require_within, shards_of
from coordlib.core.wire.stored import Layout, Marker
from coordlib.errors import SetupError
from coordlib.job import rebuild
from coordlib.job.background.decisions import DecisionWatch, KafkaDecisions
from coordlib.job.background.feeder import (
    Feeder,
    FeederThread,
    OutboxLog,
    OutboxThread,
    Waiting,
    waiting_in,
)
from coordlib.job.background.loop import HealthReport, JobStatus, StatusFile
from coordlib.job.background.offset_watch import OffsetWatch
from coordlib.job.background.ticks import KafkaTicks, TickThread, TickWriter
from coordlib.job.background.topic_watch import KafkaCluster, OwnWatch, TopicWatch
from coordlib.job.batch import Batch
from coordlib.job.control import ED25519, Authority, ControlWriter, begin, requests_ends
from coordlib.job.judged_log import JudgedLog, KafkaInputs
from coordlib.job.pipelines import groups
from coordlib.job.process import StartTimes
from coordlib.job.query import PipelineQuery, QueryOptions
from coordlib.job.sink import ShownIds, Written
from coordlib.job.workers import require_executors
from coordlib.kafka import topics
from coordlib.kafka.options import KafkaOptions
from coordlib.kafka.reading import newest_of_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ENTRY_POINTS = "coordlib.strategies"


def load_strategies(names: Sequence[str]) -> dict[str, Strategy]:
    """The users' strategies of these names.

    Raises:
        SetupError: a name is a built-in one's, no or two packages have it, or it does not load.
    """
    found = list(entry_points(group=ENTRY_POINTS))
    count = Counter(point.name for point in found)
    points = {point.name: point for point in found}
    return {name: _load(name, points, count[name]) for name in dict.fromkeys(names)}


def _load(name: str, points: Mapping[str, EntryPoint], count: int) -> Strategy:
    if name in BUILT_IN:
        raise SetupError(
            "A strategy of yours has the name of a built-in one.",
            repr(name),
            f"Give it another name than {', '.join(sorted(BUILT_IN))}; those need not be named.",
        )
    if name not in points:
        known = ", ".join(sorted(points)) or "none"
        raise SetupError(
            "There is no such strategy.",
            f"{name!r}; entry points of the group {ENTRY_POINTS}: {known}",
            "Install the package that has it, here and where Spark's Python workers run.",
        )
    where = f"{name} = {points[name].value}"
    if count > 1:
        raise SetupError(
            "Several packages have a strategy of this name.", where, "Remove all but one of them."
        )
    try:
        strategy: Strategy = points[name].load()
    except Exception as problem:  # whatever a user's module raises
        raise SetupError(
            f"The strategy cannot be loaded: {problem!r}.", where, "Correct it or its entry point."
        ) from problem
    if not callable(strategy):
        raise SetupError(
            f"The strategy is no function: it is a {type(strategy).__name__}.",
            where,
            "Let the entry point name a function of members and partitions.",
        )
    return strategy


_log = structlog.get_logger()


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
    #: Also from topics of which records have been deleted.
    accepts_loss: bool = False
    #: The shards of this job, where others have the rest; None: all.
    owned: Owned = None

    @property
    def of_query(self) -> QueryOptions:
        """Those of the groups' query."""
        return QueryOptions(
            bootstrap_servers=self.bootstrap_servers,
            checkpoint=self.checkpoint,
            engine=self.config.engine,
            kafka=self.kafka,
        )


class Coordinator:
    """A running coordinator. `query` is Spark's; `failure` says why it ended, if it did."""

    def __init__(
        self, spark: "SparkSession", options: CoordinatorOptions, times: StartTimes | None = None
    ) -> None:
        self._spark, self._options = spark, options
        self._times = times or StartTimes()
        self._client_options = options.of_query.client
        #: Written by all that the job runs.
        self.status_file = self._status = StatusFile(options.status_file)
        #: Set when the first batch has ended.
        self.has_begun = threading.Event()
        self._status.status.checkpoint = options.checkpoint
        self._status.status.shards = str(options.owned or "")
        self._status.write()
        #: When the newest batch was told, or the start.
        self._committed_ms = self._status.status.updated_ms
        self._query = PipelineQuery(
            spark,
            groups(options.prefix, options.owned),
            options.of_query,
            self._batch_committed,
        )
        self._failure: Exception | None = None
        self._control: ControlWriter | None = None
        self._ticks: TickThread | None = None
        self._feeder: FeederThread | None = None
        self._outboxes: OutboxThread | None = None
        self._topics: TopicWatch | None = None
        self._decisions: DecisionWatch | None = None
        self._strategies = load_strategies(options.config.assigned.strategies)
        #: What fails beside the query.
        self.health = HealthReport()
        self._offsets = OffsetWatch(
            self._client_options, options.prefix, options.config.engine, self.health
        )
        self._own = OwnWatch(lambda: self._query, self.health)

    @property
    def query(self) -> "StreamingQuery | None":
        """Spark's; it may go on as another one."""
        return self._query.query

    @property
    def failure(self) -> Exception | None:
        """What ended the job, if it is known."""
        return self._failure or self._query.failure

    @failure.setter
    def failure(self, reason: Exception) -> None:
        self._failure = reason

    def start(self, is_stopped: Callable[[], bool] = lambda: False) -> "StreamingQuery":
        """Check everything, fence older drivers, and run.

        Raises:
            StopAsked: `is_stopped` said so, between two probes.
            SetupError: the cluster's executors cannot run this.
            StartRefused: the topics or the checkpoint are not what they must be.
            CannotReach: no broker answers.
        """
        require_executors(self._spark, self._options.checkpoint)
        found, warnings = topics.require(self._client_options, self._options.prefix)
        for warning in warnings:
            _log.warning(str(warning))
        layout, prefix, sink = _layout_of(found), self._options.prefix, self._query.sink
        require_within(self._options.owned, layout.shards)
        shards = shards_of(self._options.owned, layout.shards)
        others = [shard for shard in range(layout.shards) if shard not in shards]

        def require_whole() -> None:
            if not self._options.accepts_loss:
                rebuild.refuse_cut(lambda: self._query.bounds_of_saved(shards), sink.marker)

        sink.read_progress()
        if self._options.is_rebuild or self._query.must_begin_anew():
            require_whole()
        pipeline = self._query.pipeline
        inputs = KafkaInputs(self._client_options, pipeline)
        folder = self._query.settle(
            layout,
            self._options.is_rebuild,
            log=JudgedLog(pipeline, inputs, accepts_loss=self._options.accepts_loss),
            require_whole=require_whole,
        )
        ends = partial(requests_ends, self._client_options, prefix, shards)
        authority = begin(sink, folder, found.incarnation, ends, ED25519, others)
        self._control = ControlWriter(prefix, self._client_options, authority.signer)
        broker = KafkaTicks(self._control, self._client_options)
        waiting = self._waiting(broker, shards)
        feeder = Feeder(self._control.write, self._control.serve, waiting, shards)
        self._feeder = FeederThread(feeder)
        ticks = TickWriter(
            broker,
            positions_at_start(sink.marker, shards),
            output_partitions(prefix, layout, shards),
            heard=waiting.heard,
            acknowledged=waiting.acknowledged,
        )
        self._ticks = TickThread(ticks)
        if others:
            delivered = _Delivered(feeder, ticks)
            log = OutboxLog(self._client_options, prefix, shards, others, delivered)
            self._outboxes = OutboxThread(log)
        self._decisions = DecisionWatch(
            KafkaDecisions(prefix, self._control, self._client_options), self.health
        )
        settings = self._settings(layout, found.incarnation, authority)
        self._query.prepare(settings, is_stopped=is_stopped)
        self._times.reach("checks")
        query = self._query.begin()
        self._times.reach("query")
        self._offsets.start(layout.shards, shards)
        self._own.start()
        self._ticks.start()
        self._feeder.start()
        if self._outboxes is not None:
            self._outboxes.start()
        self._decisions.start()
        self._watch_topics(shards, self._control)
        return query

    def _waiting(self, broker: KafkaTicks, shards: Sequence[int]) -> Waiting:
        """What the outbox has. Partitions in which nothing was ever written are not read."""
        topic = f"{self._options.prefix}.{OUTBOX}"
        ends = broker.ends([(topic, shard) for shard in shards], visible=False)
        used = [shard for (_, shard), newest in sorted(ends.items()) if newest >= 0]
        return waiting_in(newest_of_each(self._client_options, topic, used) if used else {})

    def _watch_topics(self, shards: Sequence[int], control: ControlWriter) -> None:
        interval_ms = self._options.config.engine.topic_watch_interval_ms
        if interval_ms:
            prefix, options = self._options.prefix, self._client_options
            cluster = KafkaCluster(prefix, shards, control, options)
            sink = self._query.sink
            sink.shown_ids = ShownIds(stored.read_topic_ids(sink.progress.id_pages))
            self._topics = TopicWatch(cluster, interval_ms / 1000, self.health, sink.shown_ids)
            self._topics.start()

    def _settings(self, layout: Layout, incarnation: str, authority: Authority) -> ShardSettings:
        config = self._options.config
        return ShardSettings(
            shard=-1,
            shards=layout.shards,
            reply_partitions=layout.reply_partitions,
            incarnation=incarnation,
            bounds=config.shard,
            families={
                Groups.SPACE: GroupSettings(config.group, self._strategies, config.transactions),
                Clusters.SPACE: BrokersSettings(config.brokers),
                Transactions.SPACE: TransactionsSettings(
                    config.transactions, config.group.new_groups_per_second_max
                ),
            },
            keys=authority.keys,
            verify=ED25519.verify,
            checks_invariants=config.engine.check_invariants,
        )

    def check(self) -> None:
        """Tell what fails beside the query. Raises CannotReach when a thread has ended without
        which the job does only a part of its work."""
        self._query.plan_other_batches()
        # Not with the batches: those that do not come are when somebody looks.
        with self._status.lock:
            if self._note_troubles():
                self._status.write()
        for thread in (self._ticks, self._feeder, self._outboxes, self._decisions):
            if thread is not None:
                thread.check()

    def _note_troubles(self) -> bool:
        """Whether there is anything new."""
        status = self._status.status
        before = status.watches_failing, status.offsets_failing
        status.watches_failing = self.health.now
        status.offsets_failing = self._offsets.failing
        return before != (status.watches_failing, status.offsets_failing)

    def note_end(self, reason: Exception | None) -> None:
        """See `PipelineQuery.note_end`."""
        self._query.note_end(reason)

    def close(self) -> None:
        """Write nothing more into the log, and say that the job has stopped."""
        if self._topics is not None:
            self._topics.stop()
        for thread in (self._ticks, self._outboxes, self._feeder):
            if thread is not None:
                thread.stop()
        if self._decisions is not None:
            self._decisions.stop()
        if self._control is not None:
            self._control.close()
        self._offsets.stop()
        self._own.stop()
        with self._status.lock:
            self._status.status.state = "stopped" if self.failure is None else "failed"
            self._status.write()

    def _batch_committed(self, batch: Batch, written: Written) -> None:
        """Tell the feeder, the ticks, the decisions and the status file."""
        statuses = [report.status for report in batch.reports]
        if self._feeder is not None:
            self._feeder.feeder.batch_committed(batch.outputs)
        if self._ticks is not None:
            self._ticks.writer.batch_committed(statuses, written)
        if self._decisions is not None:
            self._decisions.learn(statuses)
        with self._status.lock:
            self._tell(batch, self._query.records_max)

    def _tell(self, batch: Batch, records_max: int) -> None:
        status, marker = self._status.status, self._query.sink.marker
        now = time.time_ns() // 1_000_000
        status.last_batch_ms = now - self._committed_ms if self._committed_ms else 0
        self._committed_ms = now
        if not self._query.is_probing:
            self._tell_that_it_runs(status)
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

    def _tell_that_it_runs(self, status: JobStatus) -> None:
        if status.state == "starting":
            self._times.reach("first batch")
            status.start_s = self._times.phases
            _log.info(
                "started", **{f"{n}_s".replace(" ", "_"): s for n, s in status.start_s.items()}
            )
        # Not before: the first batch, brought by the tick at the start, compiles everything and
        # takes seconds; who waits for "running" is then answered at once.
        status.state = "running"
        self.has_begun.set()


def _layout_of(found: topics.Layout) -> Layout:
    return Layout(
        shards=found.shards,
        reply_partitions=found.responses,
        topic_ids=dict(found.topic_ids),
    )


class _Delivered:
    """What the driver does with the records of other job instances."""

    def __init__(self, feeder: Feeder, ticks: TickWriter) -> None:
        self.message, self.heard = feeder.add, ticks.learn_heard


def positions_at_start(marker: Marker | None, shards: Iterable[int]) -> dict[int, int]:
    """Newest request of each shard whose outputs are committed; -1: none."""
    known = marker.shards if marker else {}
    return {s: known[str(s)].offset if str(s) in known else -1 for s in shards}


def output_partitions(prefix: str, layout: Layout, shards: Sequence[int]) -> list[tuple[str, int]]:
    """Wherever a driver with these shards may have written outputs."""
    written = dict.fromkeys(OUTPUT_TOPICS, shards)
    written[RESPONSES] = range(layout.reply_partitions)
    return [(f"{prefix}.{t}", partition) for t, some in written.items() for partition in some]

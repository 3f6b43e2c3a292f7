"""The claims query: a coordination topic of others, folded beside the groups or in a job alone."""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from confluent_kafka import KafkaException

from coordlib.config import CoordinatorConfig
from coordlib.core.claims.fold import Coordination
from coordlib.core.claims.history import SPACE
from coordlib.core.engine.state import ShardSettings
from coordlib.core.wire.stored import Layout, Marker
from coordlib.core.wire.topics import claims_prefix
from coordlib.errors import CoordError, LogCut, StartRefused
from coordlib.job import failures
from coordlib.job.background.lag_sampler import Whose
from coordlib.job.background.loop import ClaimsStatus, HealthReport, StatusFile
from coordlib.job.background.offset_watch import OffsetWatch
from coordlib.job.background.topic_watch import OwnWatch
from coordlib.job.batch import Batch
from coordlib.job.checkpoint import CheckpointFolder
from coordlib.job.judged_log import JudgedLog, KafkaInputs
from coordlib.job.pipelines import claims
from coordlib.job.query import PipelineQuery, QueryOptions
from coordlib.job.rebuild import KafkaInput, Replay
from coordlib.job.sink import Written
from coordlib.job.start import refuse_other_topics
from coordlib.job.workers import require_executors
from coordlib.kafka import coordination
from coordlib.kafka import topics as kafka_topics
from coordlib.kafka.options import KafkaOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsOptions:
    """What the claims query reads, and where it keeps its state."""

    bootstrap_servers: str
    #: Of the groups; the topics of claims lie below it.
    prefix: str = "coord"
    #: Folder or URI of this query's checkpoint.
    checkpoint: str
    #: `claims.topic` must name the coordination topic.
    config: CoordinatorConfig
    kafka: KafkaOptions = field(default_factory=KafkaOptions)
    #: Begin a new checkpoint from the snapshots; refused where the folder holds one.
    is_rebuild: bool = False
    #: The same, where the folder is empty; else go on.
    rebuilds_if_empty: bool = False

    @property
    def topic(self) -> str:
        """The coordination topic."""
        return self.config.claims.topic

    @property
    def of_query(self) -> QueryOptions:
        """Those of the query: the engine's, but for the sizes of batches."""
        own = self.config.claims
        engine = msgspec.structs.replace(
            self.config.engine,
            trigger_interval_ms=own.trigger_interval_ms,
            max_offsets_per_trigger=own.max_offsets_per_trigger,
            mirror_offsets=(),  # Marshal's clients commit to Kafka themselves
        )
        return QueryOptions(
            bootstrap_servers=self.bootstrap_servers,
            checkpoint=self.checkpoint,
            engine=engine,
            kafka=self.kafka,
        )


_log = structlog.get_logger()
#: Name of the query among the failures of its job.
CLAIMS: Final = "claims"
LOOK_EVERY_S: Final = 0.5
#: How often the coordination topic is asked for the number of its partitions: others may add some.
LOOK_AT_TOPIC_S: Final = 5.0
#: What to do where the coordination topic has lost its end: the job writes nothing there (INV-66).
_CUT: Final = (
    "Claims are processed by offset, so that topic cannot be used further. Stop all consumers, "
    "delete it and create it again, and begin afresh: under a new prefix, or with new topics "
    "<prefix>.claims and an empty folder."
)
#: Beside the groups, of a new checkpoint: a batch is one task, from Kafka to the outputs. It takes
#: one of the slots that the groups' tasks need too, and nothing is shuffled.
ONE_TASK: Final = ("spark.sql.shuffle.partitions", "1")


class ClaimsQuery:
    """The query, which may be run again when it has failed.

    Args:
        status: is written with each batch.
        health: of the job: CLAIMS, and with that word before its name what fails beside it.
        is_alone: the job has no other query: the job's state is that of this one, and nobody else
            has looked at the cluster's executors.

    Raises:
        SetupError: no heartbeat interval belongs to the topic's name.
    """

    def __init__(
        self,
        spark: "SparkSession",
        options: ClaimsOptions,
        status: StatusFile,
        health: HealthReport,
        is_alone: bool = False,
    ) -> None:
        coordination.require_name(options.topic, "claims.topic")
        # Another session: settings that a query is started with must not meet those of the other.
        self._spark, self._options = spark.newSession(), options
        self._of_query = replace(options.of_query, is_low_priority=not is_alone)
        if not is_alone:
            self._spark.conf.set(*ONE_TASK)
        self._pipeline = claims(options.prefix, options.topic)
        self._status, self._health, self._is_alone = status, health, is_alone
        self._is_rebuild, self._is_cut = options.is_rebuild, False
        #: Batches of all its runs, and how many there were when the log was found cut.
        self._batches, self._cut_after = 0, -1
        #: When the newest batch was told.
        self._committed_ms = 0
        #: Of each shard that was in a batch.
        self._state_bytes: dict[int, int] = {}
        self._query: PipelineQuery | None = None
        #: When the coordination topic is looked at next; monotonic.
        self._look_at_s = 0.0
        #: The same, once it has its checkpoint, until it ends.
        self._settled: PipelineQuery | None = None
        self._offsets = OffsetWatch(
            self._of_query.client,
            claims_prefix(options.prefix),
            self._of_query.engine,
            health.of(CLAIMS),
            Whose(SPACE, SPACE),
        )
        self._own = OwnWatch(lambda: self._settled, health.of(CLAIMS), self._words)
        self._is_watched = False
        with status.lock:
            status.status.claims = ClaimsStatus(topic=options.topic, checkpoint=options.checkpoint)

    def run(self, stop: threading.Event) -> None:
        """Run until told to stop, or until it fails; a log that was cut is begun anew at once.

        Raises:
            CoordError: what ended it, if it is known; else what Spark has raised.
        """
        while (reason := self._life(stop)) is not None:
            is_cut_again = self._cut_after == self._batches
            self._is_cut = isinstance(reason, LogCut)
            self._cut_after = self._batches
            if not self._is_cut or is_cut_again:
                raise reason
            _log.warning("the coordination topic was cut under the query", error=str(reason))

    def _life(self, stop: threading.Event) -> Exception | None:
        """One run of the query; returns what ended it, None when it was told to stop."""
        self._show_state("starting")
        try:
            self._run(stop)
        except Exception as problem:  # noqa: BLE001  the caller raises it, in words
            self._show_state("failed")
            return self._reason(problem, stop)
        self._show_state("stopped")
        return None

    def close(self) -> None:
        """Write nothing more beside the batches."""
        self._offsets.stop()
        self._own.stop()

    def _words(self, trouble: str) -> str:
        """Beside the groups, --rebuild is their flag."""
        return trouble if self._is_alone else trouble.replace("--rebuild", "--rebuild-claims")

    def _run(self, stop: threading.Event) -> None:
        if self._is_alone:  # beside the groups, their query has looked
            require_executors(self._spark, self._options.checkpoint)
        query = self._query = PipelineQuery(
            self._spark, self._pipeline, self._of_query, self._batch_committed
        )
        try:
            self._start(query)
            while not stop.is_set():
                query.plan_other_batches()
                assert query.query is not None
                # Its stub wants whole seconds; fractions are documented.
                if query.query.awaitTermination(LOOK_EVERY_S):  # type: ignore[arg-type]
                    raise CoordError("The claims query was stopped from elsewhere.")
                if query.query.lastProgress is not None:
                    self._works()
                self._look_at_topic()
            query.note_end(None)
        finally:
            self._settled = None
            query.close()

    def _start(self, query: PipelineQuery) -> None:
        options = self._options
        client = self._of_query.client
        found, warnings = coordination.require(client, options.prefix, options.topic)
        for warning in warnings:
            _log.warning(str(warning))
        layout, settings = _layout_of(found), self._settings(found)
        query.sink.read_progress()
        refuse_other_topics(query.sink.layout, layout, self._pipeline.prefix)
        log = JudgedLog(self._pipeline, KafkaInputs(client, self._pipeline), hint=_CUT)
        log.settle(query.sink, layout)  # before a checkpoint is removed
        letter = next(iter(self._pipeline.inputs))
        replay = Replay.of(settings, KafkaInput(client, letter, options.topic, found.shards))
        query.settle(layout, self._must_rebuild(query, replay), replay, log)
        query.prepare(settings, replay)
        query.begin()
        self._is_rebuild = self._is_cut = False
        self._settled = query
        if not self._is_watched:
            self._is_watched = True
            self._offsets.start(found.shards)
            self._own.start()

    def _look_at_topic(self) -> None:
        """End where the coordination topic has grown. Raises StartRefused, NotAllowed."""
        layout, now_s = self._query.sink.layout if self._query else None, time.monotonic()
        if layout is None or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_AT_TOPIC_S
        client, options = self._of_query.client, self._options
        with suppress(KafkaException):  # the query itself waits for the broker
            coordination.require_count(client, options.prefix, options.topic, layout.shards)

    def _must_rebuild(self, query: PipelineQuery, replay: Replay) -> bool:
        """Whether a new checkpoint begins; one that cannot go on behind a cut is removed."""
        marker, folder = query.sink.marker, query.folder
        gone = replay.cut(marker.next_offsets.get(self._options.topic, {})) if marker else {}
        if gone or self._is_cut:
            _log.warning("a new checkpoint begins behind a cut of the log", gone=gone)
            self._clear(folder)
            return marker is not None
        is_empty = self._options.rebuilds_if_empty and folder.identity() is None
        return self._is_rebuild or (is_empty and marker is not None and not folder.has_batches())

    def _clear(self, folder: CheckpointFolder) -> None:
        """Remove the checkpoint of this very query: a path may be mistyped.

        Raises:
            StartRefused: the folder is the checkpoint of something else.
        """
        identity = folder.identity()
        if identity is None:
            return  # there is no checkpoint; whatever else lies there is not this query's
        if identity.prefix != self._pipeline.prefix:
            raise StartRefused(
                "The log was cut, and this checkpoint is not that of the claims.",
                f"{self._options.checkpoint}: a checkpoint of {identity.prefix}",
                "Name the query's own folder, or an empty one. Nothing was removed.",
            )
        folder.clear()

    def _settings(self, found: kafka_topics.Layout) -> ShardSettings:
        topic = self._options.topic
        return ShardSettings(
            shard=-1,
            shards=found.shards,
            reply_partitions=0,
            incarnation=found.incarnation,
            families={SPACE: Coordination(topic=topic, topic_id=found.topic_ids[topic])},
            checks_invariants=self._options.config.engine.check_invariants,
        )

    def _reason(self, problem: Exception, stop: threading.Event) -> Exception:
        """What ended it, in words if they are known; noted for the next run."""
        reason: Exception = problem
        if self._query is not None and self._query.failure is not None:
            reason = self._query.failure
        elif not isinstance(problem, CoordError):
            reason = failures.explain_claims(problem, self._options.checkpoint) or problem
        if self._query is not None:
            self._query.note_end(None if stop.is_set() else reason)
        return reason

    # -- what is told --------------------------------------------------------------------------

    def _works(self) -> None:
        self._health.works(CLAIMS)
        if self._shown is not None and self._shown.state == "starting":
            self._show_state("running")

    @property
    def _shown(self) -> ClaimsStatus | None:
        return self._status.status.claims

    def _show_state(self, state: str) -> None:
        with self._status.lock:
            if self._shown is not None:
                self._shown.state = state
                self._write()

    def _batch_committed(self, batch: Batch, _written: Written) -> None:
        self._health.works(CLAIMS)
        self._batches += 1
        with self._status.lock:
            shown = self._shown
            if shown is None or self._query is None:
                return
            now_ms = time.time_ns() // 1_000_000
            shown.last_batch_ms = now_ms - self._committed_ms if self._committed_ms else 0
            self._committed_ms = now_ms
            shown.state, shown.batch_id = "running", batch.number
            shown.batch_records_max = self._query.records_max
            shown.outputs += len(batch.outputs)
            for report in batch.reports:
                self._state_bytes[report.status.shard] = report.state_bytes
            shown.state_bytes = sum(self._state_bytes.values())
            _show_marker(shown, self._query.sink.marker)
            self._write()

    def _write(self) -> None:
        """The status; whoever has another query in the job reports its state and failures."""
        status = self._status.status
        if self._is_alone and status.claims is not None:
            status.state, status.watches_failing = status.claims.state, self._health.now
            status.batch_id = status.claims.batch_id
            status.checkpoint = self._options.checkpoint
        self._status.write()


def _show_marker(shown: ClaimsStatus, marker: Marker | None) -> None:
    if marker is not None:
        shown.next_offsets = marker.next_offsets.get(shown.topic, {})
        shown.judged_ms = max((p.previous_ms for p in marker.shards.values()), default=0)


def _layout_of(found: kafka_topics.Layout) -> Layout:
    return Layout(
        shards=found.shards,
        reply_partitions=0,
        topic_ids=dict(found.topic_ids),
        input=found.input,
    )

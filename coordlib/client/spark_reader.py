"""`SparkGroupReader`: a Structured Streaming query as a member of a server-assigned group.

A query of Spark reads a fixed set of partitions. So whenever this member's set changes, the query
is stopped between two batches, what its finished batches have read is committed, and a new one is
started on the new set from the committed offsets. Other members, Spark or not, notice nothing.

    told to let go      stop between batches -> Release with the offsets -> start on what is left
    given more          stop between batches -> commit -> start on all
    fenced, or put out  stop at once; nothing is committed, others may have the partitions by now
    the query failed    leave the group, then tell why

What is committed is what Spark's own progress says of finished batches, never more: delivery is at
least once over every hand-over, and nothing is lost. `spark_share` makes writes idempotent.
"""

import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from coordlib.client.assigned.member import AssignedMember
from coordlib.client.errors import MemberFenced
from coordlib.client.signals import Partitions, TopicPartition
from coordlib.client.spark_positions import (
    Otherwise,
    finished,
    spark_offsets,
    spark_partitions,
)
from coordlib.client.spark_share import Share
from coordlib.client.transport import Transport
from coordlib.client.wording import Timing
from coordlib.errors import CoordError, GroupError
from coordlib.kafka_options import KafkaOptions
from coordlib.queries import stop_between_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_log = structlog.get_logger()
#: Makes the query of one share from the Kafka source's rows; the reader starts it.
Start = Callable[["DataFrame", Share], "DataStreamWriter"]
_POLL_S: Final = 0.1
#: Partitions that come one after another are read by one query, not by one each.
_GATHER_S: Final = 0.3
_COMMITTED_TIMEOUT_S: Final = 60.0


@dataclass(slots=True)
class _Run:
    """One query and what it reads."""

    query: "StreamingQuery"
    share: Share
    #: What is committed of it by now.
    committed: dict[TopicPartition, int]


class SparkGroupReader(AbstractContextManager["SparkGroupReader"]):
    """A member of a server-assigned group that reads with Spark.

    Args:
        spark: the session in which queries run.
        group: the group's name.
        topics: by name; or see `pattern`.
        start: is given the rows of the Kafka source and the `Share` that they come from, and
            returns the query's writer, not started. Called for every new set of partitions.
        config: confluent-kafka's keys for coordlib's clients, at least `bootstrap.servers`.
        folder: where checkpoints of runs are kept; this reader's own, emptied as runs end.
        kafka: options of Spark's Kafka source, with its own spelling (`maxOffsetsPerTrigger`,
            `kafka.security.protocol`); by default `config` translated.
        otherwise: where a partition begins for which nothing is committed.
        pattern, exclude, strategy, capacity, timing, client, prefix: as for `AssignedMember`. The
            rebalance timeout bounds how long a batch may take when partitions are to be let go.
        commit_interval_s: how often finished batches are committed while nothing changes.

    Raises:
        SetupError: a name or a number that cannot be.
        CannotReach: no broker, or no coordinator's topics under this prefix.
    """

    def __init__(  # noqa: PLR0913  # all but four by keyword, most with a default
        self,
        spark: "SparkSession",
        group: str,
        topics: Sequence[str],
        start: Start,
        *,
        config: Mapping[str, Any],
        folder: str | Path,
        kafka: Mapping[str, str] | None = None,
        otherwise: Otherwise = "earliest",
        pattern: str | None = None,
        exclude: str | None = None,
        strategy: str | None = None,
        capacity: int = 1,
        timing: Timing | None = None,
        client: str | None = None,
        prefix: str = "coord",
        commit_interval_s: float = 5.0,
        transport: Transport | None = None,
    ) -> None:
        self._spark, self._start_query = spark, start
        self._source = _source_options(config) | dict(kafka or {})
        self._folder, self._otherwise = Path(folder), otherwise
        self._wanted = (tuple(topics), pattern, exclude)
        self._commit_interval_s = commit_interval_s
        self._timing = timing or Timing()
        self._member = AssignedMember(
            group,
            config,
            transport=transport,
            on_assigned=self._given,
            on_revoked=self._asked_back,
            on_lost=self._lost,
            client=client,
            prefix=prefix,
            timing=self._timing,
            strategy=strategy,
            capacity=capacity,
        )
        self._held: set[TopicPartition] = set()
        self._run: _Run | None = None
        self._runs = self._batches = 0
        #: When the newest change of the set came that no query reads yet; None: there is none.
        self._changed_s: float | None = None
        self._committed_s = 0.0
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"reader of {group}", daemon=True)
        self._failure: Exception | None = None

    # ---- what the user does -------------------------------------------------------------------

    def start(self) -> Self:
        """Join the group, and read what is assigned. Returns at once."""
        topics, pattern, exclude = self._wanted
        self._member.subscribe(topics, pattern, exclude)
        self._thread.start()
        return self

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the reader has ended; False: not within the time.

        Raises:
            CoordError: a query failed, or the group refused this member for good.
        """
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self, timeout_s: float = 120.0) -> None:
        """Stop between two batches, commit what is finished, and leave. Raises as above."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self.await_termination(timeout_s)
        else:
            self._member.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def member(self) -> AssignedMember:
        """For looking at: its id, generation, and what may be worked on."""
        return self._member

    @property
    def query(self) -> "StreamingQuery | None":
        """The query that runs now; None while there is nothing to read, or between two."""
        run = self._run
        return run.query if run is not None else None

    @property
    def runs(self) -> int:
        """How many queries were started so far."""
        return self._runs

    # ---- the reader's thread ------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self._member.poll(_POLL_S)
                self._turn()
        except Exception as problem:  # noqa: BLE001  # told by await_termination
            self._failure = problem
            _log.warning("the reader ends", group=self._member.identity.group, error=repr(problem))
        finally:
            self._end()

    def _turn(self) -> None:
        self._check_query()
        if self._run is not None and not self._member.may_work():
            self._stop_at_once("fenced")
            self._changed_s = time.monotonic()
        elif self._is_new_set_due() and self._member.may_work():
            self._restart()
        elif time.monotonic() - self._committed_s >= self._commit_interval_s:
            self._commit_finished()

    def _is_new_set_due(self) -> bool:
        return self._changed_s is not None and time.monotonic() - self._changed_s >= _GATHER_S

    def _check_query(self) -> None:
        """Raises CoordError when the query has ended by itself."""
        run = self._run
        if run is None or run.query.isActive:
            return
        self._commit_finished()
        problem = run.query.exception()
        self._forget_run()
        where = f"group {self._member.identity.group}, member {self._member.member_id}"
        raise CoordError(
            f"The query failed: {problem}" if problem else "The query was stopped by somebody.",
            where,
            "Others read its partitions from what is committed. Mend the query, then start again.",
        ) from problem

    def _end(self) -> None:
        """Let go, leave; whatever happened, no query of this reader runs on."""
        try:
            # Runs _asked_back, or _lost where the member may not act any more.
            self._member.close(self._patience_s())
        except Exception as problem:  # noqa: BLE001  # the first failure is the one to tell
            self._failure = self._failure or problem
        finally:
            if self._run is not None:
                self._stop_at_once("ended")

    # ---- callbacks, in the same thread --------------------------------------------------------

    def _given(self, partitions: Partitions) -> None:
        self._held.update(partitions)
        if partitions:
            self._changed_s = time.monotonic()

    def _asked_back(self, partitions: Partitions) -> None:
        """Nothing may be read of these when this returns; the commit goes with the Release."""
        run = self._run
        if run is not None and not run.share.fences.keys().isdisjoint(partitions):
            self._stop_between(run)
            rest = {p: at for p, at in self._uncommitted(run).items() if p not in set(partitions)}
            if rest:
                self._member.commit_async(rest)
            going = self._uncommitted(run, of=partitions)
            if going:
                self._member.commit_async(going)
            self._forget_run()
        self._held.difference_update(partitions)
        self._changed_s = time.monotonic()

    def _lost(self, partitions: Partitions) -> None:
        self._stop_at_once("lost")
        self._held.difference_update(partitions)
        self._changed_s = time.monotonic() if self._held else None

    # ---- queries ------------------------------------------------------------------------------

    def _restart(self) -> None:
        """One query for all that is held, from what is committed."""
        if (run := self._run) is not None:
            if set(run.share.fences) == self._held:
                self._changed_s = None
                return
            self._stop_between(run)
            self._commit_finished()
            self._forget_run()
        self._changed_s = None
        held = sorted(self._held)
        if held:
            self._begin(held)

    def _begin(self, held: list[TopicPartition]) -> None:
        fences = {each: self._member.fence_of(*each) for each in held}
        if None in fences.values() or not self._member.may_work():
            self._changed_s = time.monotonic()  # the picture is changing: look again
            return
        found = self._member.committed(held, _COMMITTED_TIMEOUT_S)
        at = {each: found[each].offset for each in held}
        share = Share(
            group=self._member.identity.group,
            member=self._member.member_id,
            generation=self._member.generation,
            fences={each: fence for each, fence in fences.items() if fence is not None},
            checkpoint=str(self._folder / f"{self._member.member_id}-{self._runs}"),
            batches_before=self._batches,
            may_work=self._member.may_work,
        )
        rows = (
            self._spark.readStream.format("kafka")
            .options(**self._source)
            .option("assign", spark_partitions(held))
            .option("startingOffsets", spark_offsets(at, self._otherwise))
            .load()
        )
        writer = self._start_query(rows, share).option("checkpointLocation", share.checkpoint)
        self._runs += 1
        self._run = _Run(writer.start(), share, {each: at[each] for each in held})
        _log.info("query started", group=share.group, partitions=len(held), run=self._runs)

    def _stop_between(self, run: _Run) -> None:
        stop_between_batches(run.query, self._patience_s())

    def _stop_at_once(self, why: str) -> None:
        """What a batch of it still writes is fenced by its tokens."""
        run = self._run
        if run is not None:
            _log.warning("query stopped at once", group=run.share.group, why=why)
            run.query.stop()
            self._forget_run()

    def _forget_run(self) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        newest = run.query.lastProgress
        # Counted on beyond every batch that may have begun, so that versions never fall.
        self._batches += (int(newest["batchId"]) if newest is not None else 0) + 2
        shutil.rmtree(run.share.checkpoint, ignore_errors=True)

    def _patience_s(self) -> float:
        """How long a batch may take to end before the member would be put out."""
        return self._timing.rebalance_timeout_ms / 1000 / 2

    # ---- commits ------------------------------------------------------------------------------

    def _uncommitted(
        self, run: _Run, of: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """What finished batches have read and the log was not told."""
        wanted = run.share.fences if of is None else of
        return {
            each: offset
            for each, offset in finished(run.query).items()
            if each in wanted and offset != run.committed.get(each)
        }

    def _commit_finished(self) -> None:
        self._committed_s = time.monotonic()
        run = self._run
        if run is None:
            return
        offsets = self._uncommitted(run)
        if not offsets:
            return
        try:
            failed = self._member.commit(offsets, _COMMITTED_TIMEOUT_S)
        except (MemberFenced, GroupError) as problem:
            _log.warning("not committed", group=run.share.group, error=str(problem))
            return
        refused = {TopicPartition(row.topic, row.partition) for row in failed}
        run.committed.update({p: at for p, at in offsets.items() if p not in refused})


def _source_options(config: Mapping[str, Any]) -> dict[str, str]:
    """coordlib's clients and Spark's source reach the same brokers."""
    values = {key: str(value) for key, value in config.items() if key != "bootstrap.servers"}
    servers = str(config["bootstrap.servers"])
    return {**KafkaOptions(values).spark(), "kafka.bootstrap.servers": servers}

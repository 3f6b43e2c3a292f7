"""The queries of one `SparkGroupReader`, one after another: starts, positions, commits, ends.

A query begins at committed offsets, checked against the log:

    committed           the query begins
    nothing             at the log's start; with `latest` at its end, which is committed first
    within the log      at that offset
    below its start     at its start: the records between them are deleted for every reader
    beyond its end      as if nothing were committed: the topic was deleted and created again
    of another topic    the same: Kafka's id of the topic tells, where it is known  # INV-130

Partitions that do not exist, or have no leader now, are left out and looked for again; the
coordinator demands them back when it finds that their topic is gone. The others are read meanwhile,
which one query over all of them could not do.

Commits are written without waiting, and looked at when answered.
"""

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import structlog
from confluent_kafka import KafkaException

from coordlib.client.groups.member import AssignedMember
from coordlib.client.groups.reading import COMMITS_MS, Start, TopicIds
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark.delta_writes import Share, Tables, Writes
from coordlib.client.spark.positions import (
    Otherwise,
    finished,
    spark_offsets,
    spark_partitions,
    unreachable,
)
from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin, reading, refusing
from coordlib.kafka.logs import Bounds, Place
from coordlib.kafka.options import KafkaOptions
from coordlib.spark_stopping import LOOK_EVERY_S, Gap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_log = structlog.get_logger()
#: The reader's thread waits for it, and releases nothing meanwhile.
_TIMEOUT_S: Final = 5.0
_LOOK_EVERY_S: Final = 5.0

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Begin:
    """The partitions that a query is to read."""

    #: The first offset of each partition.
    offsets: Offsets
    #: The log's bounds of each partition.
    committed: Offsets


class Beginnings:
    """Finds where the next query begins, and whether a query failed because of the log.

    Args:
        group: named in errors and logs.
        config: confluent-kafka's keys of the brokers that have the topics.
        otherwise: where partitions without a committed offset begin.
        is_strict: records that were deleted before they were read are an error, not a warning; a
            topic that is deleted as a whole is no error.
        ask: the committed offsets of these partitions, and perhaps of others before them.
        ids: of the topics that are read.
        note: takes the metadata of all that were answered.
        settle: commits where partitions begin; not answered here.
    """

    def __init__(  # noqa: PLR0913  # most by keyword
        self,
        group: str,
        config: Mapping[str, Any],
        otherwise: Otherwise,
        *,
        is_strict: bool,
        ask: Callable[[Sequence[TopicPartition]], "Future[sg.Answer]"],
        ids: TopicIds,
        note: Callable[[Iterable[str]], None],
        settle: Callable[[Offsets], None],
    ) -> None:
        self._group, self._config = group, dict(config)
        self._otherwise, self._is_strict = otherwise, is_strict
        self._ask, self._ids, self._note, self._settle = ask, ids, note, settle
        self._admin: Admin | None = None
        #: The committed offsets of these fences, asked for and perhaps answered.
        self._asked: tuple[Mapping[TopicPartition, int], Start] | None = None
        #: Those of the newest look that could not be read.
        self.absent: frozenset[TopicPartition] = frozenset()
        self._looked_s = 0.0

    def find(self, fences: Mapping[TopicPartition, int]) -> Begin | None:
        """Where these begin, without those that are `absent`; None: ask again, answers are due.

        Raises:
            CannotReach: broker or coordinator do not answer.
            CoordError: records are gone, and the reader is strict.
        """
        if self._asked is None or self._asked[0] != fences:
            places = tuple(sorted(fences))
            ids = self._ids.ask_later({each.topic for each in places})
            self._asked = fences, Start(places, self._ask(places), ids)
        if not self._asked[1].is_ready(self._ids):
            return None
        start, self._asked = self._asked[1], None
        answer = start.answer.result(0)
        if answer.error is not None:
            what = f"Committed offsets are not known: {answer.error}"
            raise CannotReach(what, f"group {self._group}") from answer.error
        self._note(row.metadata for row in answer.offsets)
        self._ids.take_in()
        committed = {place: at for place, at in start.begin(self._ids).items() if at >= 0}
        return self._within(fences, committed)

    def are_back(self, held: Iterable[TopicPartition]) -> bool:
        """Whether some of those held that were absent can be read now; looks now and then."""
        self.absent = self.absent.intersection(held)
        if not self.absent or time.monotonic() - self._looked_s < _LOOK_EVERY_S:
            return False
        try:
            back = self._bounds(self.absent).keys()
        except CannotReach as problem:
            _log.warning("absent partitions are not known", group=self._group, error=str(problem))
            return False
        self.absent -= back
        return bool(back)

    def explain(self, positions: Offsets) -> bool:
        """Whether a query that has read up to there failed because of the log: partitions, or their
        next records, are gone, or a topic is another one. Then another query may go on."""
        topics = {each.topic for each in positions}
        if self._ids.refused(topics) or self._ids.made_anew(topics):
            return True
        try:
            bounds = self._bounds(positions)
        except CannotReach:
            return False  # reported as the query's own failure
        if bounds.keys() != positions.keys():
            return True
        return not self._is_strict and any(
            not bounds[place].start <= at <= bounds[place].end for place, at in positions.items()
        )

    def _within(self, fences: Mapping[TopicPartition, int], committed: Offsets) -> Begin | None:
        bounds = self._bounds(fences)
        self.absent = frozenset(fences.keys() - bounds.keys())
        if self.absent:
            names = _named(sorted(self.absent))
            _log.warning("partitions that are not there", group=self._group, partitions=names)
        offsets = {place: self._first(place, committed, bounds[place]) for place in sorted(bounds)}
        known = {place: at for place, at in offsets.items() if at is not None}
        unsettled = offsets.keys() - known.keys()
        if unsettled and self._otherwise == "latest":
            # The next look finds them committed, before any record is read.
            self._settle({place: bounds[place].end for place in sorted(unsettled)})
            return None
        known |= {place: bounds[place].start for place in unsettled}
        return Begin(known, {place: at for place, at in committed.items() if place in known})

    def _first(self, place: TopicPartition, committed: Offsets, bounds: Bounds) -> int | None:
        """The first offset of a partition; None: no usable offset is committed."""
        at = committed.get(place)
        if at is None or bounds.start <= at <= bounds.end:
            return at
        begins = bounds.start if at < bounds.start else None
        bounds_now = {"committed": at, "log_start": bounds.start, "log_end": bounds.end}
        if self._is_strict:
            what = f"Records are gone before they were read: {_named([place])}, {bounds_now}."
            hint = "Commit where the group is to go on, or read with failOnDataLoss=false."
            raise CoordError(what, f"group {self._group}", hint)
        partition = _named([place])
        _log.warning(
            "committed outside the log", group=self._group, partition=partition, **bounds_now
        )
        return begins

    def _bounds(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """The log's bounds of the readable partitions. Raises CannotReach."""
        self._looked_s = time.monotonic()
        if self._admin is None:
            self._admin = open_admin(self._config)
        asked = [Place(*each) for each in sorted(places)]
        try:
            found = log_bounds(
                self._admin, asked, _TIMEOUT_S, on_denied=refusing(self._config, reading)
            )
        except (KafkaException, TimeoutError) as problem:
            what = "The broker does not tell where logs begin and end"
            raise unreachable(self._config, problem, what) from problem
        return {TopicPartition(*at): bounds for at, bounds in found.items() if bounds is not None}


def _named(places: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{each.topic}-{each.partition}" for each in places)


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
        #: The newest offset of each partition that was written to the log, and not refused so far.
        self._committed = dict(begin.committed)
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
        return {
            each: offset
            for each, offset in finished(self.query).items()
            if each in self.share.fences and offset != self._committed.get(each)
        }

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition."""
        read = finished(self.query)
        return {each: read.get(each, at) for each, at in self._begin.offsets.items()}

    def note_committed(self, offsets: dict[TopicPartition, int]) -> None:
        self._committed.update(offsets)

    def refused(self, offsets: dict[TopicPartition, int]) -> None:
        """Write these again, unless a newer position was written meanwhile."""
        for each, offset in offsets.items():
            if self._committed.get(each) == offset:
                del self._committed[each]

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


def source_options(config: Mapping[str, Any]) -> dict[str, str]:
    """Options by which Spark's source reaches the same brokers as coordlib. Raises SetupError."""
    own = ("bootstrap.servers", "group.id", "client.id", "auto.offset.reset")
    values = {key: str(value) for key, value in config.items() if key not in own}
    if not (servers := config.get("bootstrap.servers")):
        hint = 'For example config={"bootstrap.servers": "localhost:9092"}.'
        raise SetupError("A reader needs to know its brokers.", "bootstrap.servers", hint)
    return {**KafkaOptions(values).spark(), "kafka.bootstrap.servers": str(servers)}


def is_true(options: Mapping[str, str], name: str) -> bool:
    """Whether an option of Spark's is set; Spark does not look at the case of names."""
    return any(
        key.lower() == name.lower() and value.lower() == "true" for key, value in options.items()
    )


class Commits:
    """Commits that were written to the log and have no answer yet.

    Args:
        group: named in errors and logs.
        tables: commits offsets, with the tables that the group has written to.
        writes: commits the batches of runs in the place of this; None: this does.
    """

    def __init__(
        self,
        group: str,
        tables: Tables,
        writes: Writes | None = None,
    ) -> None:
        self._group, self._tables, self._writes = group, tables, writes
        self._open: list[tuple[Run | None, Offsets, Future[sg.Answer]]] = []

    def say(self, run: Run | None, offsets: Offsets) -> None:
        """Commit positions of `run`; None: they are the beginnings of partitions.

        Those of topics that were made anew are left out: what was read may be of either topic.
        """
        if not offsets or (run is not None and self._writes is not None):
            return
        anew = self._tables.ids.made_anew({each.topic for each in offsets}, COMMITS_MS)
        if good := {each: at for each, at in offsets.items() if each.topic not in anew}:
            if run is not None:
                run.note_committed(good)
            self._open.append((run, good, self._tables.commit(good)))

    def are_others(self, run: Run) -> bool:
        """Whether others decide about a run's partitions, as it has found out by writing."""
        return self._writes is not None and self._writes.has_ended(run.share)

    def hear(self, now: Run | None) -> bool:
        """Take the answers that have come; return whether all beginnings among them were accepted.

        The refused offsets of a run are written again with its next commit.

        Args:
            now: the run that reads.
        """
        if self._writes is not None:
            self._writes.hear(None if now is None else now.share)
        answered = [each for each in self._open if each[2].done()]
        self._open = [each for each in self._open if not each[2].done()]
        is_well = True
        for run, offsets, future in answered:
            answer = future.result(0)
            refused = offsets
            if answer.error is None:
                rows = {TopicPartition(row.topic, row.partition) for row in answer.failed}
                refused = {each: at for each, at in offsets.items() if each in rows}
            if refused:
                why = answer.error or ", ".join(sorted({row.error for row in answer.failed}))
                _log.warning("not committed", group=self._group, error=str(why))
                if run is not None:
                    run.refused(refused)
                is_well = is_well and run is not None
        return is_well

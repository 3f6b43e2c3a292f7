"""`group_batches`: a loop over batches that Spark reads, as a member of a server-assigned group.

    for batch in group_batches(spark, "billing", ["orders"], config, max_records=500_000):
        batch.rows.selectExpr(…).write.format("delta").mode("append").save(…)
        batch.commit()                     # or: batch.write_once(rows, "/lake/orders")

Spark's own Kafka source reads each batch, as a batch: there is no streaming query to stop and no
checkpoint, and the group's committed offsets are the only position. The member has a thread of its
own, which polls it, answers demands, and plans a full batch while the one before is written.

    a demand              waits for the batch in flight, if that reads the partition, for half the
                          rebalance timeout; then the batch is fenced, and the partition released
    given more            the next batch reads it
    lost, or put out      the batch in flight is fenced; the member joins again by itself
    refused for good      the loop raises the reason
    write_once has raised all held partitions begin again at what is committed  # INV-100
    a topic is another    its partitions begin anew, and a batch that reads it is fenced  # INV-130

Delivery is at least once; with `write_once` each record is in the table once.  # INV-159
"""

import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog
from confluent_kafka import OFFSET_END

from coordlib.client.groups.member import AssignedMember, topics_of
from coordlib.client.groups.reading import TopicIds
from coordlib.client.groups.settings import ASSIGNED_KIND, Settings, read_settings
from coordlib.client.kit.config import refuse_auto_commit
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.client.kit.fence import MemberFenced
from coordlib.client.kit.process import Closing
from coordlib.client.kit.transport import Transport
from coordlib.client.spark.batch import Batch, Range, share_out
from coordlib.client.spark.delta import SparkTable
from coordlib.client.spark.delta_writes import Tables, Writes
from coordlib.client.spark.group_offsets import (
    Beginnings,
    Commits,
    CommittedPositions,
    Offsets,
    batch_options,
)
from coordlib.client.spark.positions import spark_offsets, spark_partitions
from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.kafka.logs import Bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = structlog.get_logger()
_POLL_S: Final = 0.1
_LOOK_EVERY_S: Final = 0.1
_AGAIN_S: Final = 1.0
_LEAVE_S: Final = 10.0
#: When the log names the topics that do not exist, while nothing is assigned.
_NOTHING_S: Final = 10.0
_WRITE_BEFORE: Final = "Write before you commit."
_READ_AGAIN: Final = "Its records are read again: ask for the next batch."
_IN_ORDER: Final = "Commit each batch before you ask for the next one."
_BEGINS_ANEW: Final = "The batch is not committed. The topic is read from its beginning or end."


class _Plan(NamedTuple):
    """A batch to come."""

    ranges: Mapping[TopicPartition, Range]
    rows: "DataFrame"


class GroupLoop:
    """The member of one loop, its positions and its batches.

    `take`, `commit`, `finish` and `rewind` are for the program's thread, `turn` for the member's.
    """

    def __init__(
        self,
        spark: "SparkSession",
        settings: Settings,
        source: Mapping[str, str],
        records_max: int | None,
        transport: Transport | None,
    ) -> None:
        self.spark, self._source, self._records_max = spark, dict(source), records_max
        #: How long a batch may go on after some of its partitions were demanded.
        self._batch_timeout_s = settings.timing.rebalance_timeout_ms / 2_000
        group = self._group = settings.group
        self.member = AssignedMember(
            group,
            settings.common,
            transport=transport,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
            client=settings.client,
            prefix=settings.prefix,
            timing=settings.timing,
            strategy=settings.strategy,
            capacity=settings.capacity,
        )
        self.tables = Tables(self.member, TopicIds.of(self.member))
        self.writes = Writes(self.member, self.tables)
        self.member.commit_checker.opener = partial(SparkTable, spark)
        self._commits = Commits(group, self.tables)
        self._beginnings = Beginnings(
            group,
            settings.common,
            "latest" if settings.start_offset == OFFSET_END else "earliest",
            is_strict=source["failOnDataLoss"] == "true",
            ask=self.tables.committed,
            ids=self.tables.ids,
            note=self.tables.noted,
            settle=lambda ends: self._commits.send(None, ends),
            is_committed=source.get("kafka.isolation.level") == "read_committed",
        )
        #: Guards all below.
        self._changed = threading.Condition(threading.RLock())
        self._held: set[TopicPartition] = set()
        #: The next offset to plan of each held partition that was begun, and its fencing token.
        self._positions: Offsets = {}
        self._fences: dict[TopicPartition, int] = {}
        #: Ends of the newest batches that the program has committed.
        self._done: Offsets = {}
        self._committed = CommittedPositions({})
        #: The batch that was handed out, until it is committed or ends otherwise.
        self._in_flight: Batch | None = None
        #: The same, also where it is fenced by now: the program may still be at work on it.
        self._busy: Batch | None = None
        self._ahead: _Plan | None = None
        self._number = 0
        #: The number of the newest batch that has read a partition.
        self._read_in: dict[TopicPartition, int] = {}
        #: How often partitions were begun again; whether some still wait for it.
        self._rewinds, self._is_rewound = 0, False
        self._has_warned = False
        self._failure: Exception | None = None
        self._stopping = threading.Event()
        self._settled_s = self._again_s = self._planned_s = 0.0
        self._joined_s = time.monotonic()
        self._topics: tuple[str, ...] = ()
        self._thread = threading.Thread(target=self._work, name=f"batches of {group}", daemon=True)

    # ---- the program's thread -------------------------------------------------------------------

    def join(self, topics: Sequence[str]) -> None:
        """Join the group, without a thread: for programs that call `turn` themselves."""
        self._topics, self._joined_s = tuple(topics), time.monotonic()
        self.member.subscribe(topics)

    def start(self, topics: Sequence[str]) -> None:
        """Join the group, in a thread."""
        self.join(topics)
        self._thread.start()

    @property
    def is_started(self) -> bool:
        return bool(self._topics)

    def take(self) -> Batch | None:
        """The next batch; None: there is nothing to read at the moment.

        Raises:
            GroupError: the group refused this member for good.
            CoordError: the member has failed, or records are gone before they were read.
        """
        with self._changed:
            self._raise_failure()
            self._leave_behind()
            planned, self._ahead = self._ahead, None
        try:
            planned = planned or self._plan()
        except CoordError as problem:
            self._fail(problem)
            raise
        if planned is None:
            return None
        with self._changed:
            self._raise_failure()
            return self._hand_out(planned)

    def wait(self, for_s: float = _LOOK_EVERY_S) -> None:
        """Until something has changed, at most so long."""
        with self._changed:
            self._changed.wait(for_s)

    def commit(self, batch: Batch) -> None:
        """See `Batch.commit`."""
        with self._changed:
            if self._busy is batch and self._in_flight is not batch:
                self._busy = None  # it is fenced, which is raised now
                self._changed.notify_all()
        batch.require()
        self._commits.send(self._committed, batch.ends)
        with self._changed:
            if self._in_flight is not batch:
                batch.require()  # fenced meanwhile: the group may have refused it
            self._end_well(batch, CoordError("It is committed.", batch.where, _WRITE_BEFORE))

    def finish(self, batch: Batch, why: CoordError) -> None:
        """The table has the batch, and so its ends are committed. `why` it is not written again."""
        with self._changed:
            if self._in_flight is batch:
                self._committed.note(batch.ends)
            self._end_well(batch, why)

    def _end_well(self, batch: Batch, why: CoordError) -> None:
        if self._in_flight is batch:
            self._done.update(batch.ends)
            self._in_flight = None
        if self._busy is batch:
            self._busy = None
        batch.end(why, is_committed=True)
        self._changed.notify_all()

    def rewind(self, batch: Batch) -> None:
        """See `Batch.write_once`: all held partitions begin again at what is committed."""
        with self._changed:
            if self._busy is batch:
                self._busy = None
                self._changed.notify_all()
            if batch.is_committed or self._in_flight not in (batch, None):
                return  # what is in flight now was begun behind it
            batch.end(CoordError("This batch was not written.", batch.where, _READ_AGAIN))
            self._begin_again()

    def _begin_again(self) -> None:
        """Begin all held partitions again at what is committed.

        Nothing is handed out before: a later batch would pass over one that is not written. What
        is in doubt is decided when the group has answered where they begin.
        """
        with self._changed:
            if self._in_flight is not None:
                self._in_flight.end(MemberFenced(self._in_flight.where, None))
                self._in_flight = None
            self._is_rewound = True
            self._forget(set(self._positions) | set(self._done))
            self._changed.notify_all()

    def end(self) -> None:
        """Leave the group at once; what was not committed is read again by others."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        if self._thread.ident is None:
            self._leave()
        elif self._thread is not threading.current_thread():
            self._thread.join(_LEAVE_S + _AGAIN_S)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _leave_behind(self) -> None:
        """The next batch is asked for: the one in flight is not committed."""
        batch, self._in_flight, self._busy = self._in_flight, None, None
        self._changed.notify_all()
        if batch is None:
            return
        batch.end(CoordError("A later batch was asked for.", batch.where, _IN_ORDER))
        if not self._has_warned:
            self._has_warned = True
            what = "a batch was not committed before the next; later commits cover what both read"
            _log.warning(what, where=batch.where)

    def _hand_out(self, planned: _Plan) -> Batch | None:
        is_now = all(self._positions.get(p) == at.begin for p, at in planned.ranges.items())
        if not is_now or self._is_rewound or not self.member.may_work():
            return None
        self._number += 1
        fences = {each: self._fences[each] for each in planned.ranges}
        batch = Batch(self, self._number, planned.ranges, fences, planned.rows)
        self._positions.update(batch.ends)
        self._read_in.update(dict.fromkeys(planned.ranges, self._number))
        self._in_flight = self._busy = batch
        return batch

    # ---- planning, in both threads --------------------------------------------------------------

    def _plan(self) -> _Plan | None:
        """Raises CoordError: records are gone before they were read, and that is an error."""
        with self._changed:
            if self._is_rewound or not self._positions:
                return None
            places = tuple(self._positions)
        try:
            bounds = self._beginnings.bounds(places)
        except CannotReach as problem:
            _log.warning("nothing is planned", group=self._group, error=str(problem))
            return None
        with self._changed:
            ranges = self._ranges(bounds)
        return _Plan(ranges, self._rows(ranges)) if ranges else None

    def _ranges(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, Range]:
        behind: dict[TopicPartition, int] = {}
        for place, within in bounds.items():
            if (at := self._positions.get(place)) is None:
                continue
            first = self._beginnings.first(place, at, within)
            if first is None:  # another topic, or a log that was cut at its end
                self._forget([place])
                continue
            self._positions[place] = first
            if within.end > first:
                behind[place] = within.end - first
        sizes = share_out(behind, self._records_max, self._read_in)
        return {
            each: Range(self._positions[each], self._positions[each] + size)
            for each, size in sorted(sizes.items())
        }

    def _rows(self, ranges: Mapping[TopicPartition, Range]) -> "DataFrame":
        return (
            self.spark.read.format("kafka")
            .options(**self._source)
            .option("assign", spark_partitions(ranges))
            .option("startingOffsets", spark_offsets({p: at.begin for p, at in ranges.items()}))
            .option("endingOffsets", spark_offsets({p: at.end for p, at in ranges.items()}))
            .load()
        )

    # ---- the member's thread --------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while not self._stopping.is_set():
                self.turn()
        except Exception as problem:  # noqa: BLE001  # raised by `take`
            _log.warning("the loop ends", group=self._group, error=repr(problem))
            self._fail(problem)
        finally:
            self._leave()

    def turn(self, timeout_s: float = _POLL_S) -> None:
        """Do what is due; wait for something to do up to `timeout_s`.

        Raises CoordError: the group refused this member for good, or records are gone.
        """
        self.member.poll(timeout_s)
        if self.writes.hear(None):
            self._begin_again()
        if not self._commits.take_answers():
            self._settled_s = time.monotonic() + _AGAIN_S
        self._check_topics()
        if time.monotonic() >= self._settled_s:
            self._begin()
        self._commit_again()
        self._plan_ahead()
        self._note_what_is_absent()

    def _begin(self) -> None:
        """Find where held partitions begin that were not begun."""
        with self._changed:
            missing = self._held - self._positions.keys()
            rewinds = self._rewinds
        if missing <= self._beginnings.absent and not self._beginnings.are_back(missing):
            self._is_rewound = False
            return
        found = {each: self.member.fence_of(*each) for each in sorted(missing)}
        fences = {each: fence for each, fence in found.items() if fence is not None}
        if len(fences) < len(found):
            return  # a callback is due
        try:
            begin = self._beginnings.find(fences)
        except CannotReach as problem:
            _log.warning("partitions do not begin yet", group=self._group, error=str(problem))
            self._settled_s = time.monotonic() + _AGAIN_S
            return
        with self._changed:
            if begin is None or rewinds != self._rewinds:
                return
            self._committed.note(begin.committed)
            self._positions |= begin.offsets
            self._fences |= {each: fences[each] for each in begin.offsets}
            self._is_rewound = False
            self._changed.notify_all()

    def _check_topics(self) -> None:
        """Begin a topic anew that was deleted and made anew: its offsets are of another log."""
        with self._changed:
            topics = {each.topic for each in self._positions}
        self.tables.ids.look(topics)
        if anew := self.tables.ids.refused(topics):
            with self._changed:
                places = {each for each in self._positions if each.topic in anew}
                if self._in_flight is not None and self._in_flight.reads_any(places):
                    what = f"A topic was deleted and created again: {', '.join(sorted(anew))}."
                    self._in_flight.end(CoordError(what, self._in_flight.where, _BEGINS_ANEW))
                    places |= self._in_flight.ranges.keys()
                    self._in_flight = None
                self._forget(places)

    def _commit_again(self) -> None:
        """Write commits again that were refused for the moment."""
        if time.monotonic() < self._again_s:
            return
        with self._changed:
            busy = self._in_flight.ranges if self._in_flight is not None else {}
            done = {p: at for p, at in self._done.items() if p in self._positions and p not in busy}
        if offsets := self._committed.uncommitted(done):
            self._again_s = time.monotonic() + _AGAIN_S
            self._commits.send(self._committed, offsets)

    def _plan_ahead(self) -> None:
        """Plan the next batch while one is written, if it is full: to wait would not add to it."""
        now_s = time.monotonic()
        with self._changed:
            is_due = self._in_flight is not None and self._ahead is None
        if self._records_max is None or not is_due or now_s < self._planned_s + _AGAIN_S:
            return
        self._planned_s = now_s
        planned = self._plan()
        if planned is not None and _records_of(planned.ranges) >= self._records_max:
            with self._changed:
                self._ahead = planned

    def _note_what_is_absent(self) -> None:
        if self._held or time.monotonic() < self._joined_s + _NOTHING_S:
            return
        self._joined_s = float("inf")
        names = [each for each in self._topics if not each.startswith("^")]
        there = self.member.transport.partition_counts(names) if names else {}
        absent = sorted(set(names) - there.keys())
        what = "nothing is assigned yet; topics that do not exist are waited for"
        _log.warning(what, group=self._group, topics=self._topics, absent=absent)

    def _fail(self, problem: Exception) -> None:
        with self._changed:
            self._failure = self._failure or problem
            self._stopping.set()
            self._changed.notify_all()

    def _leave(self) -> None:
        """Release and leave; runs `_revoked`, or `_lost` where the member may not act any more."""
        with self._changed:
            self._stopping.set()
            self._end_batch(self._failure)
        try:
            self.member.close(_LEAVE_S)
        except Exception as problem:  # noqa: BLE001  # the first failure is the one to raise
            self._fail(problem)

    # ---- callbacks, in the same thread ----------------------------------------------------------

    def _assigned(self, partitions: Partitions) -> None:
        with self._changed:
            self._held.update(partitions)

    def _revoked(self, partitions: Partitions) -> None:
        """Plan nothing more of these before it returns; the Release carries their commit."""
        with self._changed:
            self._held.difference_update(partitions)
            self._ahead = None
            for each in partitions:
                self._positions.pop(each, None)
            batch = self._busy
        until = time.monotonic() + self._batch_timeout_s
        if batch is not None and batch.reads_any(partitions):
            while self._is_awaited(batch) and time.monotonic() < until:
                self.wait()
        with self._changed:
            if batch is not None and self._in_flight is batch and batch.reads_any(partitions):
                _log.warning("a batch took too long, and is read again", where=batch.where)
                self._end_batch()
            done = {each: self._done[each] for each in partitions if each in self._done}
        self._commits.send(self._committed, self._committed.uncommitted(done))
        with self._changed:
            self._forget(partitions)

    def _lost(self, partitions: Partitions) -> None:
        with self._changed:
            self._held.difference_update(partitions)
            self._end_batch()
            self._forget(partitions)

    def _is_awaited(self, batch: Batch) -> bool:
        with self._changed:
            is_busy = self._busy is batch and not self._stopping.is_set()
            return is_busy and self.member.may_work()

    def _end_batch(self, why: Exception | None = None) -> None:
        """Fence the batch in flight; the partitions of it that are kept are begun again."""
        batch, self._in_flight = self._in_flight, None
        if batch is not None:
            fenced = MemberFenced(batch.where, self.member.stopped_by())
            fenced.__cause__ = why
            batch.end(fenced)
            self._forget(batch.ranges)
        self._changed.notify_all()

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        self._rewinds += 1
        self._ahead = None
        self._committed.forget(partitions)
        for kept in (self._positions, self._fences, self._done, self._read_in):
            for each in partitions:
                kept.pop(each, None)


def _records_of(ranges: Mapping[TopicPartition, Range]) -> int:
    return sum(at.end - at.begin for at in ranges.values())


class GroupBatches(Closing, Iterator[Batch]):
    """The batches of one loop; see `group_batches`."""

    def __init__(self, loop: GroupLoop, topics: Sequence[str]) -> None:
        self._loop, self._topics, self._is_closed = loop, topics, False
        # Nothing that it holds names this object: it is called as soon as the program drops it.
        self._end = weakref.finalize(self, loop.end)

    def __iter__(self) -> Iterator[Batch]:
        """One that leaves the group when a `for` drops it, whatever else names this object."""
        try:
            with suppress(StopIteration):
                while True:
                    yield next(self)
        finally:
            self.close()

    def __next__(self) -> Batch:
        """Wait for the next batch. Raises StopIteration after `close`; else as `GroupLoop.take`.

        An exception, Ctrl-C included, leaves the group: a batch may be lost on its way.
        """
        try:
            if not self._is_closed and not self._loop.is_started:
                self._loop.start(self._topics)
            while not self._is_closed:
                if (batch := self._loop.take()) is not None:
                    return batch
                self._loop.wait()
        except BaseException:
            self.close()
            raise
        raise StopIteration

    def close(self) -> None:
        """Leave the group at once. What was not committed is read again by others."""
        self._is_closed = True
        self._end()

    @property
    def member(self) -> AssignedMember:
        """The member, for monitoring: its id, generation, and partitions."""
        return self._loop.member


def group_batches(
    spark: "SparkSession",
    group: str,
    topics: Sequence[str],
    config: Mapping[str, Any],
    *,
    max_records: int | None = 500_000,
    kafka: Mapping[str, str] | None = None,
    transport: Transport | None = None,
) -> GroupBatches:
    """Batches of the partitions that the group gives this member, for a `for` loop.

    The member joins with the first batch that is asked for. A loop that is left by `break`, by an
    exception, by `del` or at the end of the program leaves the group at once; so do `close` and a
    `with` block. What was not committed is read again. One thread takes the batches.

    Args:
        spark: the session that reads them.
        group: the group's name.
        topics: by name, existing or not; one that begins with `^` is an expression that a name
            must begin with.
        config: confluent-kafka's keys, at least `bootstrap.servers`; also `session.timeout.ms`,
            `max.poll.interval.ms` (the rebalance timeout: how long a batch may go on after some of
            its partitions were demanded is half of it), `group.remote.assignor`, `group.capacity`,
            `client.id`, `coord.prefix`, and `auto.offset.reset`: where a partition without a
            committed offset begins, by default `earliest`.
        max_records: of a batch, by its offsets; None: all that there is.
        kafka: options of Spark's Kafka source in its own spelling (`includeHeaders`,
            `kafka.isolation.level`); they win over `config` translated. Records that retention
            deleted before they were read are a warning; with `failOnDataLoss` true they are an
            error.
        transport: shared among members of one program; by default one of its own.

    Raises:
        SetupError: a name, a number or an option is not allowed.
        CannotReach: no broker, or no coordinator's topics under this prefix.
    """
    wanted = topics_of(topics)
    if not wanted:
        hint = "Name topics. A list from somewhere else may have been empty."
        raise SetupError("A loop over no topics would wait for ever.", repr(topics), hint)
    if max_records is not None and (isinstance(max_records, bool) or max_records < 1):
        raise SetupError("max_records is 1 or more, or None.", repr(max_records))
    own = {"group.id": group, "group.protocol": ASSIGNED_KIND}
    given = dict(config)
    refuse_auto_commit(given)
    settings = read_settings({"auto.offset.reset": "earliest", **given, **own})
    if settings.auto_offset_reset == "error":
        hint = "Choose earliest, or latest."
        raise SetupError("A batch needs an offset to begin at.", "auto.offset.reset=error", hint)
    source = batch_options(settings.common, kafka or {})
    return GroupBatches(GroupLoop(spark, settings, source, max_records, transport), wanted)

"""The archive: what the engine wrote to Kafka, kept in Delta, each record exactly once.

It reads `events`, `groups`, `committed` and `lag`, and where there are claims `claims.events` and
`claims.lag`, a batch after the other, and makes at most one commit per table and batch. Every
commit carries up to which Kafka offsets its table is complete; that decides where the next batch
begins, and nothing else does. So nothing doubles when a batch is repeated, nor when an archive
starts into tables that exist, or finds topics that are new. Kafka is always first and the tables
follow, one after the other in a fixed order: they differ by one batch at most.  # INV-39

Records that Kafka deletes before they are read are lost. Their place is taken by an event of the
type `HistoryLost`, and the archive goes on behind them. Where a topic has lost its end, its new
records stand at offsets that were read: nothing is read until somebody accepts that those are
lost. Then there is such an event, too; a start that ends between two tables writes it once more.
# INV-152

Commits of a table are numbered, and the number is Delta's txnVersion under one txnAppId: of two
archives that write at once, one fails or is skipped, and stops when it sees the other's commit. An
id drawn once per checkpoint, and kept in it, tells whose commit it is.

A record that is none of ours is skipped: logged where it lies, counted in the commit's metadata.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its usual name

from coordlib.core.wire.topics import ARCHIVED, CLAIMS_EVENTS, CLAIMS_LAG
from coordlib.errors import StartRefused
from coordlib.history import parse
from coordlib.history.delta_append import checkpoint_id, keep_id
from coordlib.history.delta_table import ArchivedTable
from coordlib.history.plan import (
    ArchiveOptions,
    Backlog,
    Hole,
    NewestRead,
    Plan,
    Positions,
    Source,
    merged,
    plan,
    times_of,
    unreported,
)
from coordlib.history.tables import EVENTS, LAG, SNAPSHOTS, TABLES
from coordlib.history.topics_read import OF_SNAPSHOTS, ArchivedTopics, digest_column
from coordlib.kafka.logs import Lost, Place, Read, Why, named
from coordlib.kafka.plans import REPLACEABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL: Final = "archive"
BAD_RECORDS_SHOWN: Final = 5

#: Of a batch up to which Spark interprets its expressions: to write Java code for them, and to
#: compile it, takes longer than to run it.
INTERPRETED_MAX: Final = 5_000
#: Where these are not set, a commit computes the table's state in 50 partitions, and once more
#: beside that where the machine's time zone is not UTC.
DELTA_CONF: Final = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
}

_PARSERS: Final = {
    "events": parse.parse_events,
    "groups": parse.parse_groups,
    "committed": parse.parse_committed,
    "lag": parse.parse_lag,
    CLAIMS_EVENTS: parse.parse_events,
    CLAIMS_LAG: parse.parse_lag,
}
_TABLE_OF: Final = {
    "events": EVENTS,
    "groups": SNAPSHOTS,
    "committed": SNAPSHOTS,
    "lag": LAG,
    CLAIMS_EVENTS: EVENTS,
    CLAIMS_LAG: LAG,
}

_log = structlog.get_logger("coordlib.archive")


class Archive:
    """Brings topics into tables, batch by batch. What fails is raised; the next turn begins anew.

    Raises:
        StartRefused: the checkpoint is not an archive's.
    """

    def __init__(self, spark: "SparkSession", options: ArchiveOptions) -> None:
        self._spark, self._options = spark.newSession(), options
        for name, value in DELTA_CONF.items():
            self._spark.conf.set(name, value)
        choose_codegen(self._spark, 0)
        self._identity = checkpoint_id(spark, options.checkpoint)
        servers = options.bootstrap_servers
        self._client = {**options.kafka.librdkafka(), "bootstrap.servers": servers}
        self._source = {**options.kafka.spark(), "kafka.bootstrap.servers": servers}
        self._opened: tuple[ArchivedTopics, ArchiveBatch] | None = None
        self._number = 0
        self._accepts_loss = options.accepts_loss

    def run(self, stop: threading.Event) -> None:
        """One batch after the other, until told to stop, between two of them. Raises as `turn`."""
        while not stop.is_set():
            began = time.monotonic()
            if self.turn().records == 0:
                stop.wait(max(0.0, self._options.interval_seconds + began - time.monotonic()))

    def catch_up(self) -> None:
        """Bring in all that is there now. Raises as `turn`."""
        while self.turn().records:
            pass

    def turn(self) -> Backlog:
        """Bring in what there is, at most one batch of it; returns what was left for later.

        Raises:
            StartRefused: another archive writes these tables, or they are not an archive's; the
                topics are not there, or not those of before, or one of them has lost its end.
            CoordError: Kafka or the tables are not there.
            Exception: whatever Spark, Delta and Kafka raise. Trying again is always allowed.
        """
        keep_id(self._spark, self._options.checkpoint, self._identity)
        with _at_work(self._spark):
            opened, self._opened = self._opened, None
            if opened is None or not opened[0].are_same():
                topics = ArchivedTopics(self._client, self._options.prefix)
                batch = ArchiveBatch(self._spark, self._options, self._identity, topics.source)
                opened = topics, batch
            left = self._turn(*opened)
        self._opened, self._accepts_loss = opened, False
        return left

    def _turn(self, topics: ArchivedTopics, batch: "ArchiveBatch") -> Backlog:
        began, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        records_max, known = self._options.max_offsets_per_trigger, batch.known
        bounds, cut = topics.compared(known)
        serious = [each for each in cut if each.place.topic not in REPLACEABLE]
        refuse(serious, self._options.prefix, self._accepts_loss)
        new = plan(batch.next, bounds, records_max, batch.begun, cut)
        same = {place: read for place, read in known.items() if place not in {c.place for c in cut}}
        if not new.ranges and not unreported(new.holes, batch.reported):
            return Backlog()
        choose_codegen(self._spark, new.records)
        if new.ranges:
            rows = topics.read(self._spark, self._source, new.ranges)
        else:
            rows = self._spark.createDataFrame([], _RECORDS)
        counts, newest_ms = batch(rows, self._number, new, lambda: topics.require_same(same))
        behind_ms = (now_ms - newest_ms[place] for place in new.cut if place in newest_ms)
        left = Backlog(new.left, max(0, *behind_ms, 0))
        self._number += 1
        spent = round(time.monotonic() - began, 2)
        behind = {"backlog_records": left.records, "backlog_ms": left.ms}
        _log.info("archived", batch=self._number, seconds=spent, **counts, **behind)
        return left


def refuse(cut: Sequence[Lost], prefix: str, accepts_loss: bool) -> None:
    """Raises StartRefused where a topic has lost its end, and nobody has accepted that."""
    if cut and not accepts_loss:
        raise StartRefused(
            "A topic has lost its end since the archive has read it.",
            f"prefix {prefix}: {named(cut)}",
            "What is in the tables stays. To go on there, start with --accept-loss: what was "
            "written since at offsets that had been read is left out, and HistoryLost events "
            "name the places.",
        )
    if accepts_loss and not cut:
        hint = "take it away: it accepts whatever is lost before a later start"
        _log.error("--accept-loss is given, and no topic has lost its end", hint=hint)


def choose_codegen(spark: "SparkSession", records: int) -> None:
    """Whether Spark writes Java code for what this session runs next."""
    is_worth_it = records > INTERPRETED_MAX
    spark.conf.set("spark.sql.codegen.wholeStage", "true" if is_worth_it else "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if is_worth_it else "NO_CODEGEN")


@contextmanager
def _at_work(spark: "SparkSession") -> Iterator[None]:
    """What this thread runs meanwhile is in the FAIR pool `archive`, with this session's settings:
    Delta takes those of the thread's active session."""
    context, jvm = spark.sparkContext, spark._jvm
    assert jvm is not None
    sessions = spark._get_j_spark_session_class(jvm)
    pool, before = context.getLocalProperty("spark.scheduler.pool"), sessions.getActiveSession()
    context.setLocalProperty("spark.scheduler.pool", POOL)
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        context.setLocalProperty("spark.scheduler.pool", pool or "default")
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


_RECORDS: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
)


class ArchiveBatch:
    """The tables, and how a batch of Kafka's records comes into them."""

    def __init__(
        self, spark: "SparkSession", options: ArchiveOptions, identity: str, source: Source
    ) -> None:
        self._spark, self._options, self._identity = spark, options, identity
        self._tables = {table: ArchivedTable(spark, table, options, source) for table in TABLES}
        for each in self._tables.values():  # none of them is refused
            each.make_ready()

    @property
    def next(self) -> Positions:
        """Where the tables stand."""
        return reduce(merged, (table.next for table in self._tables.values()))

    @property
    def known(self) -> dict[Place, Read]:
        """The same, with the newest records that were read."""
        return {
            Place(topic, int(partition)): _read(at, table.read.get(topic, {}).get(partition))
            for table in self._tables.values()
            for topic, positions in table.next.items()
            for partition, at in positions.items()
        }

    @property
    def begun(self) -> Positions:
        """Where the newest batch ends that any of the tables has."""
        return reduce(merged, (table.newest.until for table in self._tables.values()))

    @property
    def reported(self) -> Positions:
        """Up to where lost history has its lines."""
        return self._tables[EVENTS].newest.reported

    def __call__(
        self,
        rows: DataFrame,
        number: int,
        what: Plan | None = None,
        require_same: Callable[[], None] | None = None,
    ) -> tuple[dict[str, int], dict[Place, int]]:
        """Write one batch.

        Args:
            rows: Kafka's columns; evaluated once.
            number: for the commits' metadata.
            what: the plan that they were read by; None: they are all there is, and those that a
                table has already are dropped.
            require_same: raises where they may be of other topics; called when all were read.

        Returns:
            How many records each table got, and of each partition with records the time of the
            newest one, in epoch milliseconds.
        """
        skipped = len(self._options.prefix) + 1
        # One partition: a batch is small, and nothing has to be shuffled for groups and counts.
        read = rows.select(*_KEPT).coalesce(1)
        short = read.withColumn("topic", F.expr(f"substring(topic, {skipped + 1})")).persist()
        try:
            done = self.next if what is None else {}
            # To plan a topic's part costs more than to read a hundred records of it.
            planned: set[str] = set()
            if what is not None:
                cut_topics = {each.topic for each in what.holes if each.why is not Why.REMOVED}
                planned = {each.topic for each in what.ranges} | cut_topics
            topics = planned or set(_PARSERS)
            new = {topic: _new(topic, short, done.get(topic, {})) for topic in sorted(topics)}
            counted = _count(new)
            if require_same is not None:
                require_same()
            what = what or Plan(until=_ends(counted))
            counts = {table: self._write(table, new, counted, what, number) for table in TABLES}
        finally:
            short.unpersist()
        return counts, {Place(row.topic, row.partition): row.newest_ms for row in counted}

    def _write(
        self,
        table: str,
        new: Mapping[str, DataFrame],
        counted: Sequence[Any],
        what: Plan,
        number: int,
    ) -> int:
        """Append one table's part; returns how many records went in."""
        mine = [row for row in counted if _TABLE_OF[row.topic] == table]
        good, bad = sum(row.good for row in mine), sum(row.bad for row in mine)
        if bad:
            self._tell_bad(new, sorted({row.topic for row in mine if row.bad}), bad)
        ends = {topic: at for topic, at in what.until.items() if _TABLE_OF[topic] == table}
        known = self._tables[table]
        holes = unreported(what.holes, known.newest.reported) if table == EVENTS else ()
        cut = [
            each
            for each in what.holes
            if each.why is not Why.REMOVED and _TABLE_OF[each.topic] == table
        ]
        known.note_read(ends, _newest_of(mine), cut)
        if not good and not holes and not cut:
            return 0
        least_ms, as_of_ms = (
            times_of(known.newest.as_of_ms, mine) if table == SNAPSHOTS else ({}, {})
        )
        rows = {topic: each.where("row IS NOT NULL") for topic, each in new.items()}
        parts = [*_rows_of(table, rows, least_ms)]
        if holes:
            parts.append(self._lines_of(holes))
        frame = reduce(DataFrame.unionByName, parts)
        before = known.newest
        commit = before.following(
            self._identity, known.next, bad, what.until, holes, as_of_ms, known.read
        )
        known.append(frame, commit, number)
        return int(good)

    def _lines_of(self, holes: Sequence[Hole]) -> DataFrame:
        """An event for each; the topic with its prefix."""
        for hole in holes:
            _log.error("history is lost", **hole._asdict())
        now_ms = time.time_ns() // 1_000_000
        return parse.lost_rows(self._spark, self._options.prefix, holes, now_ms)

    def _tell_bad(self, rows: Mapping[str, DataFrame], topics: list[str], count: int) -> None:
        first = [
            f"{self._options.prefix}.{topic}-{row.partition}@{row.offset}"
            for topic in topics
            for row in rows[topic]
            .where("row IS NULL")
            .select("partition", "offset")
            .orderBy("partition", "offset")
            .limit(BAD_RECORDS_SHOWN)
            .collect()
        ]
        _log.warning("skipped records that the engine did not write", count=count, first=first)


_KEPT: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
assert set(_PARSERS) == set(ARCHIVED)


def _new(topic: str, rows: DataFrame, done: Mapping[str, int]) -> DataFrame:
    """This topic's records that its table has not got, each with its `row`."""
    wanted = F.col("topic") == topic
    for partition, offset in sorted(done.items()):
        is_done = (F.col("partition") == int(partition)) & (F.col("offset") < offset)
        wanted = wanted & ~is_done
    return _PARSERS[topic](rows.where(wanted))


def _rows_of(
    table: str, good: Mapping[str, DataFrame], least_ms: Mapping[int, int]
) -> Iterator[DataFrame]:
    """What a table gets of the good records of each topic that has any; the parts together.

    `least_ms`: of snapshots (`parse.snapshot_rows`).
    """
    if table == SNAPSHOTS:
        any_of_them = next(iter(good.values()))
        none = {topic: _new(topic, any_of_them.where("false"), {}) for topic in OF_SNAPSHOTS}
        groups, committed = (good.get(topic, none[topic]) for topic in OF_SNAPSHOTS)
        yield parse.snapshot_rows(groups, committed, least_ms)
        return
    for topic, frame in good.items():
        if _TABLE_OF[topic] == table:
            yield frame.select("row.*") if table == EVENTS else parse.lag_rows(frame)


def _count(new: Mapping[str, DataFrame]) -> list[Any]:
    """Per topic and partition: good and bad records, the offset after the last, the newest time;
    the oldest and newest times of the good ones, None where there are none; the newest record."""
    good_at = F.when(F.col("row").isNotNull(), F.col("timestamp"))
    counts = (
        frame.groupBy("topic", "partition")
        .agg(
            F.count("row").alias("good"),
            F.count(F.when(F.col("row").isNull(), 1)).alias("bad"),
            (F.max("offset") + 1).alias("end"),
            F.unix_millis(F.max("timestamp")).alias("newest_ms"),
            F.unix_millis(F.min(good_at)).alias("first_ms"),
            F.unix_millis(F.max(good_at)).alias("last_ms"),
            F.max_by(F.struct("offset", "timestamp", "key", "value"), "offset").alias("newest"),
        )
        .withColumn("digest", digest_column("newest.key", "newest.value"))
        .withColumn("at_ms", F.unix_millis("newest.timestamp"))
        .drop("newest")
        for frame in new.values()
    )
    return reduce(DataFrame.unionAll, counts).collect() if new else []


def _newest_of(counted: Sequence[Any]) -> dict[str, dict[str, NewestRead]]:
    found: dict[str, dict[str, NewestRead]] = {}
    for row in counted:
        record = (row.end - 1, row.at_ms, row.digest)
        found.setdefault(row.topic, {})[str(row.partition)] = record
    return found


def _read(at: int, newest: NewestRead | None) -> Read:
    return Read(at) if newest is None else Read(at, newest[0], newest)


def _ends(counted: Sequence[Any]) -> Positions:
    ends: Positions = {}
    for row in counted:
        ends.setdefault(row.topic, {})[str(row.partition)] = row.end
    return ends

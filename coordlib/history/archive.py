"""The archive query: what the engine wrote to Kafka, kept in Delta, each record exactly once.

It reads `events`, `groups`, `committed` and `lag` in one query and makes at most one commit per
table and trigger. Every commit carries in its user metadata up to which Kafka offsets the table is
complete; records below are dropped. So nothing doubles when Spark repeats a batch, nor when a new
checkpoint reads the topics from their beginning into tables that exist. Kafka is always first and
the tables follow, one after the other in a fixed order: they differ by one batch at most.  # INV-39

Commits of a table are numbered, and the number is Delta's txnVersion under one txnAppId: of two
archives that write at once, one fails or is skipped, and stops when it sees the other's commit. (A
batch id would not do as number: a new checkpoint counts its batches from 0 again.) An id drawn
once per checkpoint, and kept in it, tells whose commit it is.

A record that is none of ours is skipped: logged where it lies, counted in the commit's metadata.
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import structlog
from pyspark.sql import functions as F  # noqa: N812  # its usual name

from coordlib.errors import StartRefused
from coordlib.history import parse
from coordlib.history.delta_table import ArchivedTable
from coordlib.history.files import hadoop_file, read_text
from coordlib.history.tables import EVENTS, LAG, SNAPSHOTS, TABLES, path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ID_FILE: Final = "coord-archive-id"
POOL: Final = "archive"
BAD_RECORDS_SHOWN: Final = 5

_PARSERS: Final = {
    "events": parse.parse_events,
    "groups": parse.parse_groups,
    "committed": parse.parse_committed,
    "lag": parse.parse_lag,
}
_TABLE_OF: Final = {"events": EVENTS, "groups": SNAPSHOTS, "committed": SNAPSHOTS, "lag": LAG}

_log = structlog.get_logger("coordlib.archive")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """What the archive reads and where it writes."""

    bootstrap_servers: str
    prefix: str = "coord"
    #: Folder or URI of the Delta tables.
    tables: str
    #: Folder or URI of the query's checkpoint.
    checkpoint: str
    #: Options of Spark's Kafka source, keys with `kafka.`: KafkaOptions.spark().
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    interval_seconds: float = 30.0
    #: Records per trigger: bounds the work after the archive was away.
    max_offsets_per_trigger: int = 200_000


def start_archive(spark: "SparkSession", options: ArchiveOptions) -> "StreamingQuery":
    """Start the archive beside whatever else runs in this session, in the FAIR pool `archive`.

    Raises:
        StartRefused: the tables were not written by an archive, or the checkpoint is not one's.
    """
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "1")
    identity = checkpoint_id(spark, options.checkpoint)
    batch = ArchiveBatch(spark, options, identity)
    source = (
        spark.readStream.format("kafka")
        .options(**options.kafka)
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(f"{options.prefix}.{topic}" for topic in _PARSERS))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
        .load()
    )
    context = spark.sparkContext
    pool = context.getLocalProperty("spark.scheduler.pool")
    context.setLocalProperty("spark.scheduler.pool", POOL)  # inherited by the query's thread
    try:
        return (
            source.writeStream.queryName(f"{options.prefix}-archive")
            .option("checkpointLocation", options.checkpoint)
            .trigger(processingTime=f"{round(options.interval_seconds * 1000)} milliseconds")
            .foreachBatch(batch)
            .start()
        )
    finally:
        context.setLocalProperty("spark.scheduler.pool", pool or "default")


class ArchiveBatch:
    """The foreachBatch function: one Kafka micro-batch into the tables."""

    def __init__(self, spark: "SparkSession", options: ArchiveOptions, identity: str) -> None:
        self._options, self._identity = options, identity
        self._tables = {
            table: ArchivedTable(spark, table, path_of(options.tables, table)) for table in TABLES
        }

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        began = time.monotonic()
        skipped = len(self._options.prefix) + 1
        # One partition: a batch is small, and nothing has to be shuffled for groups and counts.
        short = rows.coalesce(1).withColumn("topic", F.expr(f"substring(topic, {skipped + 1})"))
        new = {topic: self._new(topic, short).persist() for topic in _PARSERS}
        try:
            counted = _count(new)
            counts = {table: self._write(table, new, counted, batch_id) for table in TABLES}
        finally:
            for frame in new.values():
                frame.unpersist()
        spent = round(time.monotonic() - began, 2)
        _log.info("archived", batch=batch_id, seconds=spent, **counts)

    def _new(self, topic: str, rows: "DataFrame") -> "DataFrame":
        """This topic's records that its table has not got, each with its `row`."""
        done = self._tables[_TABLE_OF[topic]].newest.next.get(topic, {})
        wanted = F.col("topic") == topic
        for partition, offset in sorted(done.items()):
            is_done = (F.col("partition") == int(partition)) & (F.col("offset") < offset)
            wanted = wanted & ~is_done
        return _PARSERS[topic](rows.where(wanted))

    def _write(
        self, table: str, new: Mapping[str, "DataFrame"], counted: list[Any], batch_id: int
    ) -> int:
        """Append one table's part; returns how many records went in."""
        mine = [row for row in counted if _TABLE_OF[row.topic] == table]
        good, bad = sum(row.good for row in mine), sum(row.bad for row in mine)
        if bad:
            self._tell_bad(new, sorted({row.topic for row in mine if row.bad}), bad)
        if good:
            rows = {topic: frame.where("row IS NOT NULL") for topic, frame in new.items()}
            frame = _rows_of(table, rows)
            commit = self._tables[table].newest.following(mine, bad, self._identity)
            self._tables[table].append(frame, commit, f"{self._options.prefix}-archive", batch_id)
        return int(good)

    def _tell_bad(self, rows: Mapping[str, "DataFrame"], topics: list[str], count: int) -> None:
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


def _rows_of(table: str, good: Mapping[str, "DataFrame"]) -> "DataFrame":
    """What a table gets of the good records of each topic."""
    if table == EVENTS:
        return good["events"].select("row.*")
    if table == LAG:
        return parse.lag_rows(good["lag"])
    return parse.snapshot_rows(good["groups"], good["committed"])


def _count(new: Mapping[str, "DataFrame"]) -> list[Any]:
    """Per topic and partition: good and bad records, and the offset after the last."""
    counts = (
        frame.groupBy("topic", "partition").agg(
            F.count("row").alias("good"),
            F.count(F.when(F.col("row").isNull(), 1)).alias("bad"),
            (F.max("offset") + 1).alias("end"),
        )
        for frame in new.values()
    )
    return reduce(lambda left, right: left.unionAll(right), counts).collect()


def checkpoint_id(spark: "SparkSession", checkpoint: str) -> str:
    """The id of an archive checkpoint, drawn when it is first used.

    Raises:
        StartRefused: the folder is the checkpoint of another query.
    """
    known = read_text(spark, f"{checkpoint}/{ID_FILE}")
    if known is not None:
        return known.strip()
    files, path = hadoop_file(spark, f"{checkpoint}/{ID_FILE}")
    if files.exists(hadoop_file(spark, f"{checkpoint}/offsets")[1]):
        raise StartRefused(
            "This checkpoint was not made by the archive",
            f"{checkpoint} has no {ID_FILE}",
            "Name another folder; an empty one is filled from the topics, without duplicates.",
        )
    drawn = uuid.uuid4().hex
    stream = files.create(path, False)
    stream.write(bytearray(drawn.encode()))
    stream.close()
    return drawn

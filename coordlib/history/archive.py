"""The archive query: what the engine wrote to Kafka, kept in Delta, each record exactly once.

It reads `events`, `groups` and `committed` in one query and makes at most one commit per table and
trigger. Every commit carries in its user metadata up to which Kafka offsets the table is complete;
records below are dropped. So nothing doubles when Spark repeats a batch, nor when a new checkpoint
reads the topics from their beginning into tables that exist. Besides, Delta itself skips a batch
it has seen (txnAppId, txnVersion), under an id drawn once per checkpoint and kept in it, because
another checkpoint counts its batches from 0 again.

A record that is none of ours is skipped: logged where it lies, counted in the commit's metadata.
"""

import json
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
from coordlib.history.tables import (
    EVENTS,
    PARTITIONED_BY,
    PROPERTIES,
    SNAPSHOTS,
    TABLES,
    path_of,
    schema_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ID_FILE: Final = "coord-archive-id"
POOL: Final = "archive"
HISTORY_READ: Final = 100  # commits searched for ours: others (OPTIMIZE, VACUUM) may lie between
BAD_RECORDS_SHOWN: Final = 5

_PARSERS: Final = {
    "events": parse.parse_events,
    "groups": parse.parse_groups,
    "committed": parse.parse_committed,
}
_TABLE_OF: Final = {"events": EVENTS, "groups": SNAPSHOTS, "committed": SNAPSHOTS}

Positions = dict[str, dict[str, int]]
"""Topic without prefix -> partition (as text, for JSON) -> next offset to read."""

_log = structlog.get_logger("coordlib.archive")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """What the archive reads and where it writes."""

    bootstrap_servers: str
    prefix: str = "coord"
    #: Folder or URI of the two Delta tables.
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
    """The foreachBatch function: one Kafka micro-batch into the two tables."""

    def __init__(self, spark: "SparkSession", options: ArchiveOptions, identity: str) -> None:
        self._options, self._identity = options, identity
        self._paths = {table: path_of(options.tables, table) for table in TABLES}
        for table in TABLES:
            _create_table(spark, table, self._paths[table])
        self._written = {table: _last_commit(spark, self._paths[table]) for table in TABLES}

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        began = time.monotonic()
        skipped = len(self._options.prefix) + 1
        short = rows.withColumn("topic", F.expr(f"substring(topic, {skipped + 1})"))
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
        done = self._written[_TABLE_OF[topic]].next.get(topic, {})
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
            self._append(table, rows, self._written[table].advanced(mine, bad), batch_id)
        return int(good)

    def _append(
        self, table: str, rows: Mapping[str, "DataFrame"], commit: "_Commit", batch_id: int
    ) -> None:
        frame = (
            rows["events"].select("row.*")
            if table == EVENTS
            else parse.snapshot_rows(rows["groups"], rows["committed"])
        )
        (
            frame.coalesce(1)
            .write.format("delta")
            .mode("append")
            .option("txnAppId", f"{self._options.prefix}-archive-{self._identity}")
            .option("txnVersion", batch_id)
            .option("userMetadata", commit.to_json(self._identity, batch_id))
            .partitionBy(*PARTITIONED_BY[table])
            .save(self._paths[table])
        )
        self._written[table] = commit

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


@dataclass(frozen=True, slots=True)
class _Commit:
    """What a table's newest commit of ours says: complete up to where, skipped how many."""

    next: Positions
    skipped: int = 0

    def advanced(self, counted: list[Any], bad: int) -> "_Commit":
        positions = {topic: dict(partitions) for topic, partitions in self.next.items()}
        for row in counted:
            positions.setdefault(row.topic, {})[str(row.partition)] = row.end
        return _Commit(positions, self.skipped + bad)

    def to_json(self, identity: str, batch_id: int) -> str:
        return json.dumps(
            {
                "coord_archive": identity,
                "batch": batch_id,
                "next": self.next,
                "skipped": self.skipped,
            },
            sort_keys=True,
        )


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
    jvm: Any = spark._jvm
    folder = jvm.org.apache.hadoop.fs.Path(checkpoint)
    files = folder.getFileSystem(spark._jsc.hadoopConfiguration())
    path = jvm.org.apache.hadoop.fs.Path(folder, ID_FILE)
    if files.exists(path):
        stream = files.open(path)
        try:
            return str(bytes(stream.readAllBytes()).decode().strip())
        finally:
            stream.close()
    if files.exists(jvm.org.apache.hadoop.fs.Path(folder, "offsets")):
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


def _create_table(spark: "SparkSession", table: str, path: str) -> None:
    from delta.tables import DeltaTable

    if DeltaTable.isDeltaTable(spark, path):
        return
    writer = spark.createDataFrame([], schema_of(table)).write.format("delta")
    writer = writer.options(**PROPERTIES).partitionBy(*PARTITIONED_BY[table])
    writer.option("userMetadata", _Commit({}).to_json("", -1)).mode("append").save(path)


def _last_commit(spark: "SparkSession", path: str) -> _Commit:
    """What the newest commit of an archive says.

    Raises:
        StartRefused: none of the newest commits is an archive's.
    """
    from delta.tables import DeltaTable

    history = DeltaTable.forPath(spark, path).history(HISTORY_READ).select("userMetadata")
    for (text,) in history.collect():
        try:
            found = json.loads(text or "{}")
            if "coord_archive" in found:
                return _Commit(found["next"], found["skipped"])
        except (ValueError, AttributeError, KeyError):  # somebody else's commit
            continue
    raise StartRefused(
        "It cannot be told how far this table is complete",
        f"none of the last {HISTORY_READ} commits of {path} was made by an archive",
        "Continuing could double rows: name a fresh folder for the tables, and keep this one.",
    )

"""Kafka rows of the output topics to rows of the tables, as Spark expressions.

Everything is tolerant: unknown fields are ignored, and a record of another layout (another program
wrote into the topics) gives no row. Nothing here can fail on a row's content, or
one bad record would stop the archive for ever: no cast that raises, no time beyond what a
timestamp can hold.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # its usual name

from coordlib.core.wire.transactions import TRANSACTION
from coordlib.history.plan import Hole
from coordlib.history.tables import COLUMNS, DEAD, EVENTS, HISTORY_LOST, LAG, SNAPSHOTS
from coordlib.kafka.logs import Why

#: `<incarnation>-<letter><shard>-<offset>-<ordinal>`, read from the right: the incarnation may
#: contain dashes itself.
EVENT_ID: Final = r"^(.+)-([a-z])(\d+)-(\d+)-(\d+)$"
TIME_MAX_MS: Final = 253_402_300_799_999  # the end of the year 9999
DAY_MS: Final = 86_400_000

_REMOVED: Final = "Kafka deleted these records before the archive had read them"
_EVENT: Final = (
    "event_id STRING, time_ms BIGINT, `group` STRING, protocol STRING, type STRING, "
    "generation INT, member STRING, cause STRING, reason STRING, detail STRING, "
    "kind STRING, space STRING"
)
_MEMBER: Final = (
    "client STRING, instance STRING, session_timeout_ms BIGINT, rebalance_timeout_ms BIGINT, "
    "joined_ms BIGINT"
)
_GROUP: Final = (
    "state STRING, generation INT, protocol STRING, leader STRING, "
    f"members MAP<STRING, STRUCT<{_MEMBER}>>"
)
_COMMITTED: Final = (
    "offset BIGINT, metadata STRING, commit_ms BIGINT, generation INT, member STRING"
)
#: Columns of `lag` that a sample gives for all of its lines.
_SAMPLE: Final = ("time", "date", "group_id", "kind", "space")
#: Of a line of `lag`: the columns that it has by the same name.
_LINE: Final = tuple(name for name in COLUMNS[LAG] if name not in _SAMPLE)
_LAG: Final = (
    "time_ms BIGINT, `group` STRING, kind STRING, space STRING, lines ARRAY<STRUCT<"
    + ", ".join(f"{name}: {COLUMNS[LAG][name]}" for name in _LINE)
    + ">>"
)


def parse_events(rows: DataFrame) -> DataFrame:
    """Records of the events topic, each with the column `row` (null: no history event)."""
    event = F.from_json(F.col("value").cast("string"), _EVENT)
    parsed = rows.withColumn("e", event)
    shard = F.regexp_extract("e.event_id", EVENT_ID, 3).try_cast("int")
    log_offset = F.regexp_extract("e.event_id", EVENT_ID, 4).try_cast("bigint")
    columns = {
        "event_id": F.col("e.event_id"),
        "time": F.timestamp_millis("e.time_ms"),
        "date": F.date_add(F.lit("1970-01-01").cast("date"), _days("e.time_ms")),
        "shard": shard,
        "log_offset": log_offset,
        "group_id": F.col("e.group"),
        "member_id": F.col("e.member"),
        "transactional_id": F.when(F.col("e.space") == TRANSACTION, F.col("e.group")),
    }
    is_event = (
        F.col("e.time_ms").between(0, TIME_MAX_MS)
        & F.col("e.group").isNotNull()
        & F.col("e.type").isNotNull()
        & F.col("e.generation").isNotNull()
        & shard.isNotNull()
        & log_offset.isNotNull()
    )
    row = F.struct(*(columns.get(name, F.col(f"e.{name}")).alias(name) for name in COLUMNS[EVENTS]))
    return parsed.withColumn("row", F.when(is_event, row)).drop("e")


def _days(time_ms: str) -> Column:
    return F.floor(F.col(time_ms) / DAY_MS).cast("int")


def lost_rows(spark: SparkSession, prefix: str, holes: Iterable[Hole], now_ms: int) -> DataFrame:
    """An event for each hole; it bears the time at which the hole was found."""
    time = datetime.fromtimestamp(now_ms / 1000, UTC)
    rows = [
        {
            "event_id": _id_of(prefix, hole, now_ms),
            "time": time,
            "date": time.date(),
            "shard": hole.partition,
            "group_id": "",
            "type": HISTORY_LOST,
            "generation": -1,
            "member_id": "",
            "reason": _REMOVED if hole.why is Why.REMOVED else str(hole.why),
            "detail": json.dumps(
                {
                    "topic": f"{prefix}.{hole.topic}",
                    "partition": hole.partition,
                    "from_offset": hole.first,
                    "to_offset": hole.end,
                }
            ),
        }
        for hole in holes
    ]
    columns = COLUMNS[EVENTS]
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    return spark.createDataFrame([tuple(row.get(name) for name in columns) for row in rows], schema)


def _id_of(prefix: str, hole: Hole, now_ms: int) -> str:
    place = f"{prefix}.{hole.topic}-{hole.partition}-{hole.first}"
    # Of one place the end may be lost more than once.
    return f"lost-{place}" if hole.why is Why.REMOVED else f"cut-{place}-{now_ms}"


def parse_groups(rows: DataFrame) -> DataFrame:
    """Records of the groups topic: `row` is a group's state, with `state` Dead for a tombstone."""
    group = F.from_json(F.col("value").cast("string"), _GROUP)
    parsed = rows.withColumn("g", group)
    is_deleted = F.col("value").isNull()
    row = F.struct(
        F.col("key").cast("string").alias("group_id"),
        F.when(is_deleted, DEAD).otherwise(F.col("g.state")).alias("state"),
        F.col("g.generation").alias("generation"),
        F.col("g.protocol").alias("protocol"),
        F.col("g.leader").alias("leader"),
        F.when(is_deleted, "{}").otherwise(F.to_json("g.members")).alias("members"),
    )
    is_group = F.col("key").isNotNull() & (is_deleted | F.col("g.state").isNotNull())
    return parsed.withColumn("row", F.when(is_group, row)).drop("g")


def parse_committed(rows: DataFrame) -> DataFrame:
    """Records of the committed topic: `row` is one partition's offset, null if deleted."""
    key = F.from_json(F.col("key").cast("string"), "ARRAY<STRING>")
    value = F.from_json(F.col("value").cast("string"), _COMMITTED)
    parsed = rows.withColumn("k", key).withColumn("c", value)
    partition = F.get("k", F.lit(2)).try_cast("int")
    row = F.struct(
        F.get("k", F.lit(0)).alias("group_id"),
        F.get("k", F.lit(1)).alias("topic"),
        partition.alias("partition"),
        *(F.col(f"c.{name}").alias(name) for name in ("offset", "metadata", "commit_ms")),
        *(F.col(f"c.{name}").alias(name) for name in ("generation", "member")),
        F.col("offset").alias("log_offset"),
    )
    is_offset = (
        F.get("k", F.lit(0)).isNotNull()
        & F.get("k", F.lit(1)).isNotNull()
        & partition.isNotNull()
        & (F.col("value").isNull() | F.col("c.offset").isNotNull())
    )
    return parsed.withColumn("row", F.when(is_offset, row)).drop("k", "c")


def parse_lag(rows: DataFrame) -> DataFrame:
    """Records of the lag topic: `row` is a group's sample, with its lines."""
    parsed = rows.withColumn("s", F.from_json(F.col("value").cast("string"), _LAG))
    row = F.struct(
        F.timestamp_millis("s.time_ms").alias("time"),
        F.date_add(F.lit("1970-01-01").cast("date"), _days("s.time_ms")).alias("date"),
        F.col("s.group").alias("group_id"),
        F.col("s.kind").alias("kind"),
        F.col("s.space").alias("space"),
        F.col("s.lines").alias("lines"),
    )
    is_sample = (
        F.col("s.time_ms").between(0, TIME_MAX_MS)
        & F.col("s.group").isNotNull()
        & F.col("s.lines").isNotNull()
    )
    return parsed.withColumn("row", F.when(is_sample, row)).drop("s")


def lag_rows(samples: DataFrame) -> DataFrame:
    """One row per line of the samples; lines without a partition are left out."""
    of_all = (f"row.{name}" for name in _SAMPLE)
    lines = samples.select(*of_all, F.explode("row.lines").alias("line"))
    rows = lines.select(*_SAMPLE, *(f"line.{name}" for name in _LINE))
    return rows.where("topic IS NOT NULL AND partition IS NOT NULL").select(*COLUMNS[LAG])


def snapshot_rows(
    groups: DataFrame, committed: DataFrame, least_ms: Mapping[int, int] | None = None
) -> DataFrame:
    """One row per group that occurs in either, with its newest state and its newest offsets.

    Args:
        least_ms: of shards whose rows must have at least this time, epoch ms: their records' times
            are those of drivers' clocks, and may be older than what stands before them in the log.
    """
    states = (
        groups.groupBy(F.col("row.group_id").alias("group_id"))
        .agg(F.max_by("row", "offset").alias("g"), F.max("timestamp").alias("state_time"),
             F.first("partition").alias("state_shard"))
        .select("group_id", "state_time", "state_shard", "g.state", "g.generation", "g.protocol",
                "g.leader", "g.members")
    )  # fmt: skip
    newest = committed.groupBy("row.group_id", "row.topic", "row.partition").agg(
        F.max_by("row", "offset").alias("c"),
        F.max("timestamp").alias("time"),
        F.first(committed["partition"]).alias("shard"),
    )
    items = newest.groupBy("group_id").agg(
        F.max("time").alias("offsets_time"),
        F.first("shard").alias("offsets_shard"),
        F.sort_array(F.collect_list(F.col("c").dropFields("group_id"))).alias("items"),
    )
    partitions = F.transform("items", lambda item: F.struct(item["topic"], item["partition"]))
    offsets = items.select(
        "group_id",
        "offsets_time",
        "offsets_shard",
        F.to_json("items", {"ignoreNullFields": "false"}).alias("offsets"),
        F.sha2(F.to_json(partitions), 256).alias("places"),
    )
    joined = states.join(offsets, "group_id", how="full")
    times = [F.col("state_time"), F.col("offsets_time")]
    if least_ms:
        pairs = ((F.lit(shard), F.lit(at_ms)) for shard, at_ms in least_ms.items())
        known = F.create_map(*(each for pair in pairs for each in pair))
        times.append(F.timestamp_millis(known[F.coalesce("state_shard", "offsets_shard")]))
    as_of_time = F.greatest(*times)
    return joined.withColumn("as_of_time", as_of_time).select(*COLUMNS[SNAPSHOTS])

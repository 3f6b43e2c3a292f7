"""The input topics as one streaming frame: one Kafka source, read uncommitted.

Uncommitted, because an open transaction of a foreign writer would stall every group of the shard
for as long as it stays open.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from coordlib.config import EngineConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: How long a task waits for a broker; Spark's default is spark.network.timeout, which is about
#: executors here.
BROKER_TIMEOUT_MS: Final = 120_000


def read_inputs(
    spark: "SparkSession",
    inputs: Mapping[str, str],
    options: Mapping[str, str],
    engine: EngineConfig,
    starting_offsets: Mapping[str, Mapping[str, int]] | None,
    records_max: int,
    partitions: Sequence[int],
) -> "DataFrame":
    """Columns shard, topic (an input's letter), offset, timestamp_ms, is_log_append, value.

    Args:
        inputs: topics by letter.
        options: `kafka.*` options of the source, with `kafka.bootstrap.servers`.
        engine: how long a fetch may wait at its end.
        starting_offsets: topic -> partition -> next offset, of a new checkpoint; None: earliest.
        records_max: how many records a batch may have (`batch_size.py`).
        partitions: those of each topic that are read: shards, and none that was added to a topic.
    """
    from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

    letters = F.create_map(*(F.lit(x) for letter, topic in inputs.items() for x in (topic, letter)))
    start = json.dumps(starting_offsets) if starting_offsets else "earliest"
    return (
        spark.readStream.format("kafka")
        .option("kafka.fetch.max.wait.ms", engine.fetch_wait_ms)
        .option("kafkaConsumer.pollTimeoutMs", BROKER_TIMEOUT_MS)
        .options(**options)
        .options(**chosen(inputs, partitions))
        .option("startingOffsets", start)
        .option("maxOffsetsPerTrigger", records_max)
        .option("failOnDataLoss", "true")
        .load()
        .select(
            F.col("partition").alias("shard"),
            letters[F.col("topic")].alias("topic"),
            F.col("offset"),
            F.unix_millis(F.col("timestamp")).alias("timestamp_ms"),
            (F.col("timestampType") == 1).alias("is_log_append"),
            F.col("value"),
        )
    )


def chosen(inputs: Mapping[str, str], partitions: Sequence[int]) -> dict[str, str]:
    """The option that says what is read: named partitions, as a subscription takes up whatever is
    added to a topic, which is of no shard.  # INV-115"""
    return {"assign": json.dumps({topic: list(partitions) for topic in inputs.values()})}

"""Write a topic into a Delta table exactly once: the table's commits decide about the offsets.

    python examples/exactly_once_by_delta.py localhost:9092 orders tables/orders --group lake-once

Start it several times, and kill some with `kill -9`, also behind a commit of the table: each record
is in the table once. The offsets of a batch wait in the group until it is known whether the table
has the batch; the next owner of the partitions looks into the table, and begins behind it.
"""

import argparse
import signal
import threading
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from coordlib.client.spark.delta_writes import Share
from coordlib.client.spark.reader import SparkGroupReader
from coordlib.local.jars import ensure_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LOOK_S = 1.0
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def session() -> SparkSession:
    """Spark on this machine, with the jars of Kafka and Delta (coordlib/conf/jars.xml)."""
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, ensure_jars().spark)))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", CATALOG)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )


def main() -> None:
    """Read and write until SIGTERM or Ctrl-C, then leave the group."""
    parser = argparse.ArgumentParser(description="Write a topic into a Delta table, once.")
    parser.add_argument("bootstrap_servers", help="HOST:PORT of Kafka and of the coordinator")
    parser.add_argument("topic")
    parser.add_argument("table", help="folder of the Delta table; it is made if it is not there")
    parser.add_argument("--group", default="lake-once")
    parser.add_argument("--checkpoints", default="checkpoints", help="a folder of this process")
    given = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    spark = session()

    def start(rows: "DataFrame", share: Share) -> "DataStreamWriter":
        """The query for one set of partitions."""
        names = ", ".join(f"{each.topic}-{each.partition}" for each in sorted(share.fences))
        print(f"a query begins with {names or 'nothing'}", flush=True)

        def write(batch: "DataFrame", number: int) -> None:
            wanted = batch.selectExpr("CAST(value AS STRING) AS value", "timestamp")
            share.write_once(batch, wanted, given.table)
            print(f"batch {number} is written, and its offsets with it", flush=True)

        return rows.writeStream.foreachBatch(write)

    with SparkGroupReader(
        spark,
        given.group,
        [given.topic],
        start,
        config={"bootstrap.servers": given.bootstrap_servers},
        kafka={"maxOffsetsPerTrigger": "100000"},
        folder=given.checkpoints,
        commits="with-writes",
    ) as reader:
        while not stop.is_set() and not reader.await_termination(LOOK_S):
            pass
    spark.stop()
    print("left the group", flush=True)


if __name__ == "__main__":
    main()

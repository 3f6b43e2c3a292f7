"""A Spark query that is a member of a server-assigned group, and writes into a Delta table.

    python examples/spark_query.py localhost:9092 orders tables/orders --group lake

Start it several times, also beside `assigned_consumer.py` in the same group: each query reads the
partitions that are its own. When partitions come or go the query is stopped, and another begins
with the new ones at the offsets of the batches that have ended. The table refuses a late batch of a
query that was replaced. (`exactly_once_by_delta.py` lets the table decide about the offsets, too.)
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
    parser = argparse.ArgumentParser(description="A Spark query in a server-assigned group.")
    parser.add_argument("bootstrap_servers", help="HOST:PORT of Kafka and of the coordinator")
    parser.add_argument("topic")
    parser.add_argument("table", help="folder of the Delta table; it is made if it is not there")
    parser.add_argument("--group", default="lake")
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
        wanted = rows.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
        # From here on the table refuses writes of the former owners of these partitions.
        share.claim(spark.createDataFrame([], wanted.schema), given.table)

        def write(batch: "DataFrame", number: int) -> None:
            share.write(batch, given.table, number)
            print(f"batch {number} is written", flush=True)

        return wanted.writeStream.foreachBatch(write)

    with SparkGroupReader(
        spark,
        given.group,
        [given.topic],
        start,
        config={"bootstrap.servers": given.bootstrap_servers},
        kafka={"maxOffsetsPerTrigger": "100000"},
        folder=given.checkpoints,
    ) as reader:
        while not stop.is_set() and not reader.await_termination(LOOK_S):
            pass
    spark.stop()
    print("left the group", flush=True)


if __name__ == "__main__":
    main()

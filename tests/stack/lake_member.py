"""A Spark query that writes a topic into a Delta table, each record once, in a process of its own.

    python -m tests.stack.lake_member --bootstrap B --group G --topic T --table P --folder F \\
        --name a

It stands still at the point that the file `F/a.hold` names, once it has come there and said so in
the file `F/a.held`:

    accepted    the offsets wait for the table, which has the batch's files, and not the batch
    written     the table has the batch, and nobody was told
    said        the word is on its way

Ends on SIGTERM, or when whoever started it is gone.
"""

import argparse
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coordlib.client.kit.requests import Timing
from coordlib.client.spark.delta import StagedBatch
from coordlib.client.spark.delta_writes import Share, Writes
from coordlib.client.spark.reader import SparkGroupReader
from tests.stack.spark_member import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TIMING = Timing(session_timeout_ms=6_000, heartbeat_interval_ms=1_000, rebalance_timeout_ms=60_000)

DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
}


class Held:
    """Stands still where it was asked to."""

    def __init__(self, folder: Path, name: str) -> None:
        self._hold, self._held = folder / f"{name}.hold", folder / f"{name}.held"

    def at(self, point: str) -> None:
        if not self._hold.exists() or self._hold.read_text() != point:
            return
        self._held.write_text(point)
        while self._hold.exists():
            time.sleep(0.02)


def hold_at_points(held: Held) -> None:
    """Before and after the table's commit, and after the word."""
    commit, say = StagedBatch.commit, Writes._say

    def slow_commit(self: StagedBatch, token: int) -> bool:
        held.at("accepted")
        is_written = commit(self, token)
        held.at("written")
        return is_written

    def slow_say(self: Writes, share: Any, key: str, result: Any) -> None:
        say(self, share, key, result)
        held.at("said")

    StagedBatch.commit = slow_commit  # type: ignore[method-assign]
    Writes._say = slow_say  # type: ignore[method-assign]


def start_into(table: str) -> Any:
    """A reader's `start`: the values of records, with where they come from."""

    def start(rows: "DataFrame", share: Share) -> "DataStreamWriter":
        def each(batch: "DataFrame", _number: int) -> None:
            wanted = batch.selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
            share.write_once(batch, wanted, table)

        return rows.writeStream.foreachBatch(each)

    return start


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "topic", "table", "folder", "name"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    stop, parent, folder = threading.Event(), os.getppid(), Path(given.folder)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    hold_at_points(Held(folder, given.name))
    own = folder / given.name
    own.mkdir()
    with SparkGroupReader(
        session(own, DELTA),
        given.group,
        [given.topic],
        start_into(given.table),
        config={"bootstrap.servers": given.bootstrap},
        folder=own,
        kafka={"maxOffsetsPerTrigger": "200"},
        timing=TIMING,
        client=given.name,
        commits="with-writes",
    ) as reader:
        while not reader.await_termination(0.2):
            if stop.is_set() or os.getppid() != parent:
                return


if __name__ == "__main__":
    main()

"""A Spark query that writes a topic into a Delta table, each record once, in a process of its own.

It stands still where a switch (`tests.kit.program`) is on, and tells so:

    accepted    the offsets wait for the table, which has the batch's files, and not the batch
    written     the table has the batch, and nobody was told
    said        the word is on its way
"""

import sys
from typing import TYPE_CHECKING, Any, Final

from coordlib.client.kit.requests import Timing
from coordlib.client.spark.delta import StagedBatch
from coordlib.client.spark.delta_writes import Share, Writes
from coordlib.client.spark.reader import SparkGroupReader
from tests.kit.program import Program
from tests.stack.spark_member import LOOK_EVERY_S, session

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


class LakeMember(Program):
    """Reads and writes until it is asked to end."""

    def run(self) -> int:
        self._hold_at_points()
        own = self.folder / self.name
        own.mkdir()
        with SparkGroupReader(
            session(own, DELTA),
            self.given["group"],
            [self.given["topic"]],
            start_into(self.given["table"]),
            config={"bootstrap.servers": self.given["bootstrap"]},
            folder=own,
            kafka={"maxOffsetsPerTrigger": "200"},
            timing=TIMING,
            client=self.name,
            commits="with-writes",
        ) as reader:
            while not self.is_over and not reader.await_termination(LOOK_EVERY_S):
                pass
        return 0

    def _hold_at_points(self) -> None:
        """Before and after the table's commit, and after the word."""
        commit, say = StagedBatch.commit, Writes._say

        def slow_commit(batch: StagedBatch, token: int) -> bool:
            self.wait_while_on("accepted", "accepted")
            is_written = commit(batch, token)
            self.wait_while_on("written", "written")
            return is_written

        def slow_say(writes: Writes, share: Any, key: str, result: Any) -> None:
            say(writes, share, key, result)
            self.wait_while_on("said", "said")

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


if __name__ == "__main__":
    sys.exit(LakeMember.main())

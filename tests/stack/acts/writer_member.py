"""A writer of the act `transactions`: a Spark query that writes the copy into a Delta table.

Started by the demo as the other members are; its configuration has `table` and `hold` beside a
consumer's keys. While the file `hold` is there, it stops when the table has a batch of which nobody
was told, where the demo kills it with its JVM.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coordlib.client.spark.delta_writes import Share
from coordlib.demo.member import run
from coordlib.demo.spark_member import Query, read
from tests.stack.acts.copy_witness import COMMITTED, CopyWitnessFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: What is written: the number of each record, and its place in the copy.
COLUMNS: Final = (
    "CAST(get_json_object(CAST(value AS STRING), '$.number') AS INT) AS number",
    "partition",
    "offset",
)
_DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # For a table of a few thousand rows: by default each look is work for tens of tasks.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
}
#: Else Spark reads what was aborted, and what is not decided yet.
_KAFKA: Final = {"kafka.isolation.level": "read_committed"}
_HOLD_S: Final = 0.02


class Writing(Query):
    """Writes each batch once, and what it comes to."""

    def __init__(self, witness: CopyWitnessFile, table: str, hold: Path) -> None:
        super().__init__(witness)
        self._units, self._table, self._hold = witness, table, hold
        self._unit = -1

    def start(self, rows: "DataFrame", share: Share) -> "DataStreamWriter":
        assert share.writes is not None
        share.writes.on_written = self._written
        return super().start(rows, share)

    def take(self, batch: "DataFrame", share: Share) -> None:
        self._unit += 1
        self._units.unit(self._unit, "began")
        rows = batch.persist().selectExpr(*COLUMNS)
        try:
            for number, partition, offset in sorted(rows.collect(), key=lambda row: row[1:]):
                self.witness.record(partition, offset, number)
            self._units.unit(self._unit, "written")
            share.write_once(batch, rows, self._table)
        finally:
            batch.unpersist()
        self._units.unit(self._unit, COMMITTED)

    def _written(self) -> None:
        """The table has the batch; its offsets still wait for somebody's word."""
        self._units.unit(self._unit, "accepted")
        while self._hold.exists():
            time.sleep(_HOLD_S)


def _write(
    config: dict[str, Any], topic: str, witness: CopyWitnessFile, is_over: Callable[[], bool]
) -> None:
    writing = Writing(witness, config.pop("table"), Path(config.pop("hold")))
    read(writing, config, topic, is_over, _DELTA, kafka=_KAFKA, commits="with-writes")


if __name__ == "__main__":
    sys.exit(run(_write, CopyWitnessFile))

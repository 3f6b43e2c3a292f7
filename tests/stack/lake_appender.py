"""A Spark query that appends a topic to a Delta table, each batch a transaction of its own.

Its `table` is that of the configuration. The witness has the lines of `tests.stack.copier`: the
table is one list, `table-0`. It goes on whatever fails, with another reader if it must.
"""

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coordlib.client.groups.settings import read_settings
from coordlib.client.kit.process import boottime_ns
from coordlib.client.spark.delta_writes import Share
from coordlib.client.spark.reader import SparkGroupReader
from tests.kit.program import Program
from tests.stack.copier import PAUSE_S
from tests.stack.lake_member import DELTA
from tests.stack.spark_member import LOOK_EVERY_S, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TOPIC: Final = "table"


class Appender(Program):
    """Appends until it is asked to end."""

    def __init__(self, name: str, folder: Path, given: dict[str, Any]) -> None:
        super().__init__(name, folder, given)
        self._table = given["config"].pop("table")
        self._settings = read_settings(given["config"])
        #: No two processes name a transaction alike.
        self._token, self._count = f"{self._settings.client}-{secrets.token_hex(3)}", 0

    def run(self) -> int:
        spark = session(self.folder / self.name, DELTA)
        self.tell("ready")
        while not self.is_over:
            try:
                self._read(spark)
            except Exception as problem:  # noqa: BLE001  # it goes on whatever fails
                self.tell("trouble", text=str(problem))
                self.stopped.wait(PAUSE_S)
        return 0

    def _read(self, spark: "SparkSession") -> None:
        """With one reader, as long as it can."""
        settings = self._settings
        with SparkGroupReader(
            spark,
            settings.group,
            self.given["topics"].split(","),
            self._start,
            config=settings.common,
            folder=self.folder / self.name / "runs",
            timing=settings.timing,
            client=settings.client,
            commits="with-writes",
        ) as reader:
            while not self.is_over and not reader.await_termination(LOOK_EVERY_S):
                pass

    def _start(self, rows: "DataFrame", share: Share) -> "DataStreamWriter":
        return rows.writeStream.foreachBatch(lambda batch, _number: self._append(batch, share))

    def _append(self, batch: "DataFrame", share: Share) -> None:
        self._count += 1
        name, now_ns = f"{self._token}.{self._count}", boottime_ns()
        rows = batch.persist().selectExpr(
            f"concat_ws('.', '{name}', partition, offset) AS value",
            *("topic", "partition", "offset", f"CAST({now_ns} AS BIGINT) AS sent_ns"),
        )
        try:
            found = sorted(rows.collect(), key=lambda row: (row["partition"], row["offset"]))
            self.tell("begin", transaction=name)
            for row in found:
                key = f"{row['topic']}-{row['partition']}@{row['offset']}"
                told = {"topic": TOPIC, "partition": 0, "value": row["value"], "key": key}
                self.tell("sent", transaction=name, **told)
            ends = {(row["topic"], row["partition"]): row["offset"] + 1 for row in found}
            offsets = [[*place, end] for place, end in ends.items()]
            self.tell("offsets", transaction=name, group=share.group, offsets=offsets)
            self.tell("ended", transaction=name, outcome="unknown")
            share.write_once(batch, rows, self._table)
        finally:
            batch.unpersist()
        self.tell("ended", transaction=name, outcome="ok")


if __name__ == "__main__":
    sys.exit(Appender.main())

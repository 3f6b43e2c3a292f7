"""A Spark query that appends a topic to a Delta table, each batch a transaction of its own.

    python -m tests.stack.lake_appender --config '{…}' --topics records --witness FILE

Its `table` is that of the configuration. The witness has the lines of `tests.stack.appender`: the
table is one list, `table-0`. It goes on whatever fails, with another reader if it must, until
SIGTERM.
"""

import argparse
import json
import os
import secrets
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from coordlib.client.groups.settings import read_settings
from coordlib.client.kit.process import boottime_ns
from coordlib.client.spark.delta_writes import Share
from coordlib.client.spark.reader import SparkGroupReader
from tests.stack.appender import PAUSE_S, arguments
from tests.stack.lake_member import DELTA
from tests.stack.spark_member import LOOK_EVERY_S, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TOPIC: Final = "table"


class Appender:
    """Appends until it is stopped."""

    def __init__(self, given: argparse.Namespace) -> None:
        config: dict[str, Any] = given.config
        self._topics, self._table = given.topics.split(","), config.pop("table")
        self._settings = read_settings(config)
        self._folder = given.witness.with_suffix("")
        self._witness = given.witness.open("a", buffering=1)  # by the line
        self._parent, self._stop = os.getppid(), threading.Event()
        #: No two processes name a transaction alike.
        self._token, self._count = f"{self._settings.client}-{secrets.token_hex(3)}", 0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        spark = session(self._folder, DELTA)
        self._tell("ready")
        while not self._is_over:
            try:
                self._read(spark)
            except Exception as problem:  # noqa: BLE001  # it goes on whatever fails
                self._tell("trouble", text=str(problem))
                self._stop.wait(PAUSE_S)
        return 0

    @property
    def _is_over(self) -> bool:
        return self._stop.is_set() or os.getppid() != self._parent

    def _read(self, spark: "SparkSession") -> None:
        """With one reader, as long as it can."""
        settings = self._settings
        with SparkGroupReader(
            spark,
            settings.group,
            self._topics,
            self._start,
            config=settings.common,
            folder=self._folder / "runs",
            timing=settings.timing,
            client=settings.client,
            commits="with-writes",
        ) as reader:
            while not self._is_over and not reader.await_termination(LOOK_EVERY_S):
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
            self._tell("begin", transaction=name)
            for row in found:
                key = f"{row['topic']}-{row['partition']}@{row['offset']}"
                told = {"topic": TOPIC, "partition": 0, "value": row["value"], "key": key}
                self._tell("sent", transaction=name, **told)
            ends = {(row["topic"], row["partition"]): row["offset"] + 1 for row in found}
            offsets = [[*place, end] for place, end in ends.items()]
            self._tell("offsets", transaction=name, group=share.group, offsets=offsets)
            self._tell("ended", transaction=name, outcome="unknown")
            share.write_once(batch, rows, self._table)
        finally:
            batch.unpersist()
        self._tell("ended", transaction=name, outcome="ok")

    def _tell(self, what: str, **fields: Any) -> None:
        line = {"what": what, "at_ns": boottime_ns(), **fields}
        self._witness.write(json.dumps(line) + "\n")


def main() -> int:
    return Appender(arguments()).run()


if __name__ == "__main__":
    sys.exit(main())

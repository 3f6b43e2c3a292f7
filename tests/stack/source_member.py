"""A query of `format("coord")` in a process of its own, and what happens to it.

    python -m tests.stack.source_member --config '{…}' --topics orders --witness FILE

Takes what `tests.stack.member` takes. A query that fails is started again from its checkpoint, as a
supervisor would. Its witness:

    ready                                           Spark is up
    planner   pid                                   the process that has the member
    record    topic partition offset fence          a batch did its work on it
    failed    text                                  the query failed, and is started again
    closed                                          left as it was asked to; exit code 0
"""

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from coordlib.client.kit.process import boottime_ns
from coordlib.client.spark.source import register
from coordlib.spark_reasons import reason_of
from coordlib.spark_stopping import stop_between_batches
from tests.stack.spark_member import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PLANNER = "python_streaming_source_runner"
LOOK_EVERY_S = 0.2


class Program:
    """Read until told to stop."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._config: dict[str, Any] = given.config
        self._topics, self._folder = given.topics, given.witness.with_suffix("")
        self._witness = given.witness.open("a", buffering=1)  # by the line
        self._parent, self._stop = os.getppid(), threading.Event()
        self._planner = 0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        spark = session(self._folder)
        register(spark)
        self._note("ready")
        query = self._start(spark)
        while not self._stop.wait(LOOK_EVERY_S) and os.getppid() == self._parent:
            self._look_for_planner()
            if not query.isActive:
                self._note("failed", text=reason_of(query.exception() or RuntimeError("stopped")))
                query = self._start(spark)
        stop_between_batches(query)
        spark.stop()
        self._note("closed")
        return 0

    def _start(self, spark: "SparkSession") -> "StreamingQuery":
        names = ("group.id", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms")
        options = {name: self._config[name] for name in names if name in self._config}
        rows = spark.readStream.format("coord").options(
            **options,
            **{"kafka.bootstrap.servers": self._config["bootstrap.servers"]},
            subscribe=self._topics,
            startingOffsets="earliest",
            includeFence="true",
        )
        writer = rows.load().writeStream.foreachBatch(self._work)
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def _work(self, batch: "DataFrame", _number: int) -> None:
        for row in batch.select("topic", "partition", "offset", "fence").collect():
            self._note("record", **row.asDict())

    def _look_for_planner(self) -> None:
        for process in psutil.Process().children(recursive=True):
            try:
                is_planner = PLANNER in " ".join(process.cmdline())
            except psutil.Error:
                continue
            if is_planner and process.pid != self._planner:
                self._planner = process.pid
                self._note("planner", pid=process.pid)

    def _note(self, what: str, **fields: Any) -> None:
        line = {"what": what, "at_ns": boottime_ns(), **fields}
        self._witness.write(json.dumps(line) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="as of a consumer")
    parser.add_argument("--topics", required=True, help="parted by commas")
    parser.add_argument("--witness", type=Path, required=True)
    parser.add_argument("--hold", type=Path, help="not used")
    parser.add_argument("--work", type=Path, help="not used")
    return Program(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())

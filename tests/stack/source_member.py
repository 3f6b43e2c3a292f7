"""A query of `format("coord")` in a process of its own, and what happens to it.

Takes what `tests.stack.member` takes. A query that fails is started again from its checkpoint, as a
supervisor would. Its witness (`tests.kit.program`):

    ready                                           Spark is up
    planner   pid                                   the process that has the member
    record    topic partition offset fence          a batch did its work on it
    failed    text                                  the query failed, and is started again
    closed                                          left as it was asked to; exit code 0
"""

import sys
from typing import TYPE_CHECKING, Any

import psutil

from coordlib.client.spark.source import register
from coordlib.spark_reasons import reason_of
from coordlib.spark_stopping import stop_between_batches
from tests.kit.program import Program
from tests.stack.spark_member import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PLANNER = "python_streaming_source_runner"
LOOK_EVERY_S = 0.2


class SourceMember(Program):
    """Reads until it is asked to end."""

    def run(self) -> int:
        self._planner, self._folder = 0, self.folder / self.name
        spark = session(self._folder)
        register(spark)
        self.tell("ready")
        query = self._start(spark)
        while not self.stopped.wait(LOOK_EVERY_S) and not self.is_over:
            self._look_for_planner()
            if not query.isActive:
                self.tell("failed", text=reason_of(query.exception() or RuntimeError("stopped")))
                query = self._start(spark)
        stop_between_batches(query)
        spark.stop()
        self.tell("closed")
        return 0

    def _start(self, spark: "SparkSession") -> "StreamingQuery":
        config: dict[str, Any] = self.given["config"]
        names = ("group.id", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms")
        options = {name: config[name] for name in names if name in config}
        rows = spark.readStream.format("coord").options(
            **options,
            **{"kafka.bootstrap.servers": config["bootstrap.servers"]},
            subscribe=self.given["topics"],
            startingOffsets="earliest",
            includeFence="true",
        )
        writer = rows.load().writeStream.foreachBatch(self._work)
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def _work(self, batch: "DataFrame", _number: int) -> None:
        for row in batch.select("topic", "partition", "offset", "fence").collect():
            self.tell("record", **row.asDict())

    def _look_for_planner(self) -> None:
        for process in psutil.Process().children(recursive=True):
            try:
                is_planner = PLANNER in " ".join(process.cmdline())
            except psutil.Error:
                continue
            if is_planner and process.pid != self._planner:
                self._planner = process.pid
                self.tell("planner", pid=process.pid)


if __name__ == "__main__":
    sys.exit(SourceMember.main())

"""A member of the demo's second group that is a Spark query: see `member`, which is a consumer.

It records each reading inside foreachBatch, so the file may have readings of a batch that does not
end; Spark's own progress tells which batches have ended.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from coordlib.client.groups.settings import read_settings
from coordlib.client.kit.fence import MemberFenced
from coordlib.client.spark.delta_writes import Share
from coordlib.client.spark.positions import end_offsets
from coordlib.client.spark.reader import SparkGroupReader
from coordlib.demo.member import run
from coordlib.demo.witness import WitnessFile
from coordlib.installation import conf_file
from coordlib.local.jars import ensure_jars
from coordlib.local.progress import silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: Long: a member that is killed between two hand-overs leaves records that must be read again.
COMMIT_INTERVAL_S: Final = 30.0
LOOK_EVERY_S: Final = 0.2


class Query:
    """Records the readings of each run's query, and which of its batches have ended."""

    def __init__(self, witness: WitnessFile) -> None:
        self.witness = witness
        self._run = -1
        self._owned: list[int] = []

    def start(self, rows: "DataFrame", share: Share) -> "DataStreamWriter":
        """For SparkGroupReader: a run on this share begins."""
        if self._owned:
            self.witness.revoked(self._owned)
        fences = {each.partition: fence for each, fence in share.fences.items()}
        self._run, self._owned = self._run + 1, sorted(fences)
        self.witness.assigned_by_fence(share.generation, fences)
        self.witness.began(self._run)
        return rows.writeStream.foreachBatch(lambda batch, _number: self.take(batch, share))

    def take(self, batch: "DataFrame", share: Share) -> None:
        """One batch of this share."""
        found = batch.selectExpr("partition", "offset", "CAST(value AS STRING)").collect()
        for partition, offset, value in sorted(found, key=lambda row: tuple(row[:2])):
            if not share.may_work():
                raise MemberFenced(f"group {share.group}, member {share.member}", None)
            self.witness.record(partition, offset, int(json.loads(value)["number"]))

    def listen(self, spark: "SparkSession") -> None:
        """Register for Spark's reports of finished batches."""
        from pyspark.sql.streaming.listener import StreamingQueryListener

        query, runs = self, dict[str, int]()

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # before its first batch
                runs[str(event.runId)] = query._run

            def onQueryProgress(self, event: Any) -> None:  # noqa: N802
                offsets = {each.partition: at for each, at in end_offsets(event.progress).items()}
                query.witness.finished(runs[str(event.progress.runId)], offsets)

            def onQueryIdle(self, event: Any) -> None:  # noqa: N802
                """Nothing was read since."""

            def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
                """Nothing to do: the reader notices it itself."""

        spark.streams.addListener(Listener())


def _consume(
    config: dict[str, Any], topic: str, witness: WitnessFile, is_over: Callable[[], bool]
) -> None:
    read(Query(witness), config, topic, is_over)


def read(
    query: Query,
    config: Mapping[str, Any],
    topic: str,
    is_over: Callable[[], bool],
    session_options: Mapping[str, str] = MappingProxyType({}),
    **reader_options: Any,
) -> None:
    """Read a topic with queries until it is over.

    Args:
        config: of a CoordinatedConsumer.
        session_options: of Spark, beside the usual ones.
        reader_options: of SparkGroupReader, beside the usual ones.
    """
    settings = read_settings(config)
    with tempfile.TemporaryDirectory(dir=query.witness.path.parent, prefix="spark-") as folder:
        spark = _session(Path(folder), str(settings.client), session_options)
        query.listen(spark)
        reader = SparkGroupReader(
            spark,
            settings.group,
            [topic],
            query.start,
            config=settings.common,
            folder=Path(folder) / "runs",
            timing=settings.timing,
            client=settings.client,
            prefix=settings.prefix,
            commit_interval_s=COMMIT_INTERVAL_S,
            **reader_options,
        )
        with reader:
            while not is_over() and not reader.await_termination(LOOK_EVERY_S):
                pass
        spark.stop()  # the last finished batch is reported until then


def _session(folder: Path, name: str, more: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    options = {
        "spark.jars": ",".join(str(jar) for jar in ensure_jars(silent).spark),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 "  # it lives for a minute
        "-XX:ReservedCodeCacheSize=240m -Dlog4j2.configurationFile="
        + conf_file("log4j2.properties").as_uri(),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing."
            "FileSystemBasedCheckpointFileManager"
        ),
        **more,
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in options.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    sys.exit(run(_consume, WitnessFile))

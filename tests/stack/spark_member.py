"""A Spark query as one member of a group, in a process of its own, and what happens to it.

Takes what `tests.stack.member` takes, and writes such a witness (`tests.kit.program`):

    ready                                           Spark is up
    query     member generation partitions          a query was started on these
    record    topic partition offset fence generation     a batch did its work on it
    finished  offsets                               Spark told of the end of a batch: next to read
    failed    code text                             the reader ended by itself; exit code 1
    closed                                          left as it was asked to; exit code 0
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from coordlib.client.groups.settings import read_settings
from coordlib.client.spark.delta_writes import Share
from coordlib.client.spark.positions import end_offsets
from coordlib.client.spark.reader import SparkGroupReader
from coordlib.local import class_archive
from coordlib.local.jars import ensure_jars
from coordlib.local.submission import COORDINATE, Submission
from tests.kit.program import Program

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LOOK_EVERY_S = 0.2

#: How the JVM of a laptop's job starts. The rest are Spark's defaults, as other programs have them.
OF_THE_JVM = (
    "spark.driver.extraClassPath",
    "spark.driver.extraJavaOptions",
    class_archive.QUIET_PROPERTY,
)


class SparkMember(Program):
    """Reads with Spark until it is asked to end."""

    def run(self) -> int:
        self._folder = self.folder / self.name
        spark = session(self._folder)
        spark.streams.addListener(_listener(self.tell))
        self.tell("ready")
        try:
            self._read(spark)
        except Exception as problem:  # noqa: BLE001  # the witness must have it
            return self.failed(problem)
        finally:
            spark.stop()
        self.tell("closed")
        return 0

    def _read(self, spark: "SparkSession") -> None:
        settings = read_settings(self.given["config"])
        with SparkGroupReader(
            spark,
            settings.group,
            self.given["topics"].split(","),
            self._start,
            config=settings.common,
            folder=self._folder,
            timing=settings.timing,
            client=settings.client,
            commit_interval_s=1.0,
        ) as reader:
            while not self.is_over and not reader.await_termination(LOOK_EVERY_S):
                pass

    def _start(self, rows: "DataFrame", share: Share) -> "DataStreamWriter":
        told = {"member": share.member, "generation": share.generation}
        self.tell("query", **told, partitions=[tuple(each) for each in share.partitions])

        def each(batch: "DataFrame", _number: int) -> None:
            for row in batch.select("topic", "partition", "offset").collect():
                if not share.may_work():
                    return
                fence = share.fences[row["topic"], row["partition"]]  # type: ignore[index]
                self.tell("record", **row.asDict(), fence=fence, generation=share.generation)

        return rows.writeStream.foreachBatch(each)


def _listener(tell: Any) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """`query` was told."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            ends = end_offsets(event.progress)
            tell("finished", offsets=[(*each, at) for each, at in ends.items()])

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Nothing was read."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            """The next `query` tells."""

    return Listener()


def laptop_properties() -> dict[str, str]:
    """Spark's properties of a laptop's job, whose JVM starts with loaded classes if set-up has made
    the archive of them, and starts no process for each file that it makes."""
    jars = ensure_jars().spark
    made = class_archive.quiet_jar(), class_archive.options(jars)
    return Submission.parse([COORDINATE]).local_properties(jars, *made)


def session(folder: Path, more: Mapping[str, str] = MappingProxyType({})) -> "SparkSession":
    """Spark on one core, with all that it writes in a folder; `more` are its settings, too."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    options = {
        **{name: value for name, value in laptop_properties().items() if name in OF_THE_JVM},
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **more,
    }
    builder = SparkSession.builder.master("local[1]").appName("coordlib member")
    for key, value in options.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    sys.exit(SparkMember.main())

"""Jobs on a standalone cluster of this machine, and how long its answers are away."""

import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from coordlib.local.processes import LOOPBACK
from coordlib.local.stack import Stack
from tests.stack.chaos.scene import Scene
from tests.stack.wire import Wire
from tests.tools.standalone import Standalone

#: An environment of 100 MB is packed, fetched and unpacked by each executor first.
READY_TIMEOUT_S: Final = 400.0
PATIENCE_S: Final = 600.0
ASK_EVERY_S: Final = 0.1
#: C1 starts faster. With it alone the JVM reserves too little for compiled code.
C1: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
#: What is for small machines, and for a driver that only this one reaches.
SETTINGS: Final = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": f"{C1} -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def flags(cluster: Standalone) -> list[str]:
    """For spark-submit.sh."""
    options = f"{C1} -XX:+UseSerialGC -Xss4m"
    return ["--master", cluster.master, "--driver-java-options", options, *confs(SETTINGS)]


def confs(settings: Mapping[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]


class ClusterScene(Scene):
    """A scene whose jobs run on a cluster."""

    def __init__(self, stack: Stack, folder: Path, cluster: Standalone) -> None:
        super().__init__(stack, folder)
        self.cluster = cluster
        self.spark_args = flags(cluster)
        self.ready_timeout_s = READY_TIMEOUT_S
        self.patience_s = PATIENCE_S


class Probe:
    """Asks one question after the other, and measures how long each answer takes."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.took_s: list[float] = []

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask for as long as this is open; at its end the last question has been answered."""
        is_over = threading.Event()
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                while not is_over.wait(ASK_EVERY_S):
                    began_s = time.monotonic()
                    self._wire.answer(self._wire.send("OffsetFetch", "probe"), PATIENCE_S)
                    self.took_s.append(time.monotonic() - began_s)
            except BaseException as problem:
                failed.append(problem)
                raise

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(PATIENCE_S)
        assert not failed, failed[0]

    def median_s(self) -> float:
        """Of all answers since the last call."""
        median = statistics.median(self.took_s)
        self.took_s.clear()
        return median

    def longest_s(self) -> float:
        """The longest answer since the last call."""
        longest = max(self.took_s)
        self.took_s.clear()
        return longest

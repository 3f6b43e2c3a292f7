"""What the engine does while it is under load: its pace and lag, and what its processes cost."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import psutil

from coordlib.core.wire.stored import Marker
from coordlib.local.processes import belonging_to
from coordlib.local.stack import Stack
from tests.tools.bench.figures import percentile, spread

MIB: Final = 1024 * 1024
#: Modules from which Spark's Python workers are forked: the job's, and Spark's own.
DAEMONS: Final = ("coordlib.job.warm_daemon", "pyspark.daemon")
#: The lag grows when its last third is this much above its first.
GROWTH_MAX: Final = 1.5
GROWTH_SLACK_S: Final = 0.3


@dataclass(slots=True)
class Pace:
    """Batches as their progress markers tell of them."""

    batch_s: list[float] = field(default_factory=list)
    #: How old the newest judged request of each shard was when its outputs could be read; the
    #: oldest shard counts.
    lag_s: list[float] = field(default_factory=list)
    #: Sum over the shards of the next request to be judged.
    judged: int = -1
    _written_s: float | None = None

    def saw(self, marker: Marker, written_s: float, requests: str) -> None:
        """A marker, with the time at which it was written."""
        if self._written_s is not None:
            self.batch_s.append(written_s - self._written_s)
        self._written_s = written_s
        self.judged = sum(marker.next_offsets.get(requests, {}).values())
        newest_s = max((each.previous_ms for each in marker.shards.values()), default=0) / 1000
        self.lag_s.append(written_s - newest_s)

    def begin(self) -> None:
        """Forget what was before; the position stays."""
        self.batch_s, self.lag_s, self._written_s = [], [], None

    def lag_grew(self) -> bool:
        third = len(self.lag_s) // 3
        if third == 0:
            return True  # so few batches: it hardly moves
        early, late = self.lag_s[:third], self.lag_s[-third:]
        return percentile(late, 0.5) > GROWTH_MAX * percentile(early, 0.5) + GROWTH_SLACK_S

    def figures(self) -> dict[str, object]:
        return {
            "batches": len(self.batch_s),
            "batch_s": spread(self.batch_s, 0.5, 0.99),
            "lag_s": spread(self.lag_s, 0.5, 0.99),
        }


class Costs:
    """CPU and memory by role, from `begin` to `figures`. Without a stack only the generator's."""

    def __init__(self, stack: Stack | None) -> None:
        self._stack = stack
        self._began_s, self._before = 0.0, dict[str, float]()

    def begin(self) -> None:
        self._began_s, self._before = time.monotonic(), _cpu(self._processes())

    def figures(self) -> dict[str, object]:
        """Cores used (1.0: one core all the time) and resident memory."""
        processes = self._processes()
        spent_s = time.monotonic() - self._began_s
        cores = {
            role: round((cpu_s - self._before.get(role, 0.0)) / spent_s, 2)
            for role, cpu_s in _cpu(processes).items()
        }
        memory = {
            role: round(sum(_read(lambda each: each.memory_info().rss, found)) / MIB)
            for role, found in processes.items()
        }
        return {"cores": cores, "memory_mib": memory}

    def _processes(self) -> dict[str, list[psutil.Process]]:
        found = {"generator": [psutil.Process()]}
        if self._stack is None:
            return found
        status = self._stack.status()
        for program in belonging_to(self._stack.home):
            with contextlib.suppress(psutil.NoSuchProcess):  # an idle Python worker ends
                role = _role(program.pid, status.broker_pid, status.job_pid)
                found.setdefault(role, []).append(psutil.Process(program.pid))
        return found


def _role(pid: int, broker: int | None, driver: int | None) -> str:
    if pid == broker:
        return "broker"
    if pid == driver:
        return "driver"
    words = psutil.Process(pid).cmdline()
    if any(daemon in word for word in words for daemon in DAEMONS):
        return "python_workers"
    return "spark_jvm" if words and words[0].endswith("java") else "launcher"


def _cpu(processes: dict[str, list[psutil.Process]]) -> dict[str, float]:
    return {
        role: sum(_read(lambda each: sum(each.cpu_times()[:2]), found))
        for role, found in processes.items()
    }


def _read(
    gauge: Callable[[psutil.Process], float], processes: list[psutil.Process]
) -> Iterator[float]:
    """Of those that still run."""
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield gauge(each)

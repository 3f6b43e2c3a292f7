"""Figures: percentiles, the line about the machine, and JSON lines."""

import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

CPUINFO = Path("/proc/cpuinfo")

T = TypeVar("T")


class Took(NamedTuple):
    """What one piece of work took."""

    cpu_ms: float
    wall_ms: float


def timed(work: Callable[[], T]) -> tuple[T, Took]:
    """Do it, and say what it took."""
    wall, processor = time.perf_counter(), time.process_time()
    answer = work()
    cpu_ms = (time.process_time() - processor) * 1_000
    wall_ms = (time.perf_counter() - wall) * 1_000
    return answer, Took(round(cpu_ms, 2), round(wall_ms, 2))


def summary(took: Sequence[Took]) -> dict[str, float]:
    """Of the same work done several times: the processor's, and the median of what passed."""
    cpu_ms = [each.cpu_ms for each in took]
    return {
        "best": min(cpu_ms),
        "median": percentile(cpu_ms, 0.5),
        "worst": max(cpu_ms),
        "median_wall": percentile([each.wall_ms for each in took], 0.5),
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by `share` of all (nearest rank): one that was seen.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values, no percentile")
    rank = max(1, math.ceil(share * len(values)))
    return sorted(values)[rank - 1]


def spread(values: Sequence[float], *shares: float) -> dict[str, float | None]:
    """`{"p50": …, "p99": …}`, milliseconds precise when the values are seconds; null for none."""
    return {
        f"p{share * 100:g}": round(percentile(values, share), 3) if values else None
        for share in shares
    }


def tell(bench: str, what: str, **fields: Any) -> None:
    """One JSON line on stdout."""
    print(json.dumps({"bench": bench, "what": what, **fields}), file=sys.stdout, flush=True)


def tell_machine(bench: str) -> None:
    """The line that begins every run."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    tell(
        bench,
        "machine",
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        memory_gb=round(memory / 2**30, 1),
        load_1m=round(os.getloadavg()[0], 2),
        system=platform.system(),
        python=platform.python_version(),
    )


def _cpu_model() -> str:
    if CPUINFO.exists():
        for line in CPUINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()

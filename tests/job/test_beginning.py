"""What a driver finds before its first query."""

from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.config import EngineConfig
from coordlib.job.beginning import Memory

GIB = 1 << 30
SIZES = {"0": 0, "1g": GIB, "512m": GIB // 2, "3g": 3 * GIB}


def session(settings: dict[str, str], heap_bytes: int) -> Any:
    """As much of Spark as has sizes."""
    runtime = SimpleNamespace(maxMemory=lambda: heap_bytes)
    jvm = SimpleNamespace(
        java=SimpleNamespace(
            lang=SimpleNamespace(Runtime=SimpleNamespace(getRuntime=lambda: runtime))
        )
    )
    utils = SimpleNamespace(byteStringAsBytes=SIZES.__getitem__)
    network = SimpleNamespace(util=SimpleNamespace(JavaUtils=utils))
    jvm.org = SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(network=network)))
    conf = SimpleNamespace(get=settings.get)
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf, _jvm=jvm))


@pytest.mark.parametrize(
    ("setting", "heap_gib", "collected_bytes"),
    [
        ("512m", 8, GIB // 2),
        ("3g", 4, 2 * GIB),
        (None, 8, GIB),  # Spark's default, whatever the heap has
        ("0", 8, 4 * GIB),
    ],
)
def test_a_batch_is_planned_for_what_the_driver_collects(
    setting: str | None, heap_gib: int, collected_bytes: int
) -> None:
    """Without a limit Spark fails no job for its results, and the heap is the bound."""
    settings = {} if setting is None else {"spark.driver.maxResultSize": setting}

    found = Memory.of(session(settings, heap_gib * GIB), EngineConfig())

    assert found.collected_bytes == collected_bytes
    assert found.worker_bytes == EngineConfig().worker_memory_bytes

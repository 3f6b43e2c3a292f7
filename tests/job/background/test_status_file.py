"""What the job tells of itself between its batches."""

import json
import threading
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from coordlib.job.batch import assemble
from coordlib.job.main import coordinate
from coordlib.job.main.coordinator import Coordinator, CoordinatorOptions
from coordlib.job.process import StartTimes, StopAsked


def test_troubles_are_told_also_when_no_batch_comes(tmp_path: Path) -> None:
    """The broker is away: there are no batches, and that is when somebody looks at the status.
    How long batches take is not disturbed by it."""
    path = tmp_path / "job.json"
    no_spark: Any = None
    options = CoordinatorOptions(
        bootstrap_servers="127.0.0.1:1", checkpoint=str(tmp_path / "c"), status_file=path
    )
    coordinator = Coordinator(no_spark, options)
    coordinator.health.failed("topics", "all are down")
    coordinator._offsets._of_mirror.failed("billing", "has members")

    coordinator.check()

    told = json.loads(path.read_bytes())
    assert told["watches_failing"]["topics"]["error"] == "all are down"
    assert told["offsets_failing"]["billing"]["error"] == "has members"
    assert told["last_batch_ms"] == 0
    written = path.stat().st_mtime_ns
    coordinator.check()
    assert path.stat().st_mtime_ns == written, "nothing new"
    coordinator.health.works("topics")
    coordinator.check()
    assert json.loads(path.read_bytes())["watches_failing"] == {}


def test_a_job_does_not_run_before_its_query_has_begun(tmp_path: Path) -> None:
    """Records that are judged one by one are batches, too: nothing else was answered meanwhile."""
    path, no_spark, written = tmp_path / "job.json", cast("Any", None), cast("Any", None)
    options = CoordinatorOptions(
        bootstrap_servers="127.0.0.1:1", checkpoint=str(tmp_path / "c"), status_file=path
    )
    coordinator = Coordinator(no_spark, options)
    told = []
    for is_probing in (True, False):
        coordinator._query.is_probing = is_probing
        coordinator._batch_committed(assemble(0, []), written)
        told.append((json.loads(path.read_bytes())["state"], coordinator.has_begun.is_set()))

    assert told == [("starting", False), ("running", True)]


def test_a_start_that_is_stopped_ends_as_a_job_that_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said "failed", and a supervisor started it again at once."""
    path, stop_flag, asked = tmp_path / "job.json", threading.Event(), []

    def start(_: Coordinator, is_stopped: Callable[[], bool]) -> None:
        asked.append(is_stopped())
        raise StopAsked

    monkeypatch.setattr(coordinate, "_session", lambda _: MagicMock())
    monkeypatch.setattr(Coordinator, "start", start)
    options = CoordinatorOptions(
        bootstrap_servers="127.0.0.1:1", checkpoint=str(tmp_path / "c"), status_file=path
    )
    stop_flag.set()
    coordinate._run(Namespace(), options, stop_flag, StartTimes())

    assert asked == [True]
    assert json.loads(path.read_bytes())["state"] == "stopped"

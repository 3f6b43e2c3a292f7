"""What the job tells of itself between its batches."""

import json
from pathlib import Path
from typing import Any

from coordlib.job.main.query import Coordinator, CoordinatorOptions


def test_troubles_are_told_also_when_no_batch_comes(tmp_path: Path) -> None:
    """The broker is away: there are no batches, and that is when somebody looks at the status.
    How long batches take is not disturbed by it."""
    path = tmp_path / "job.json"
    no_spark: Any = None
    options = CoordinatorOptions(
        bootstrap_servers="127.0.0.1:1", checkpoint=str(tmp_path / "c"), status_file=path
    )
    coordinator = Coordinator(no_spark, options)
    coordinator.troubles.failed("topics", "all are down")
    coordinator._offsets._of_mirror.failed("billing", "has members")

    coordinator.check()

    told = json.loads(path.read_bytes())
    assert told["watches_failing"]["topics"]["error"] == "all are down"
    assert told["offsets_failing"]["billing"]["error"] == "has members"
    assert told["last_batch_ms"] == 0
    written = path.stat().st_mtime_ns
    coordinator.check()
    assert path.stat().st_mtime_ns == written, "nothing new"
    coordinator.troubles.works("topics")
    coordinator.check()
    assert json.loads(path.read_bytes())["watches_failing"] == {}

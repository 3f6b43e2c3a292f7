"""When a streaming query is stopped."""

from types import SimpleNamespace
from typing import Any

import pytest

from coordlib import spark_stopping as stopping
from coordlib.spark_stopping import Gap, stop_between_batches


class BusyQuery:
    """One whose batches follow each other without a moment between them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.look_s = 0.0, 0.01
        self.isActive, self.batch = True, 0
        self.status = {"isTriggerActive": True}
        #: When a batch ends; in order.
        self.ends_s: list[float] = []
        self.stopped_s: float | None = None
        clock = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._sleep)
        monkeypatch.setattr(stopping, "time", clock)

    def _sleep(self, for_s: float) -> None:
        self.now_s += max(for_s, self.look_s)

    @property
    def lastProgress(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        ended = [at for at in self.ends_s if at <= self.now_s]
        return {"batchId": 7, "timestamp": f"after {len(ended)}"}

    def stop(self) -> None:
        self.isActive, self.stopped_s = False, self.now_s


def test_a_query_under_full_load_is_stopped_when_a_batch_has_just_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two triggers is less than a millisecond: waiting for that took the whole minute, and
    then the batch was cut in its middle all the same."""
    query: Any = BusyQuery(monkeypatch)
    query.ends_s = [2.0, 4.0]

    stop_between_batches(query, timeout_s=60)

    assert query.stopped_s == pytest.approx(2.0, abs=0.02)


def test_a_look_that_comes_late_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is busy: by the time of the look the next batch may be writing."""
    query: Any = BusyQuery(monkeypatch)
    query.ends_s, query.look_s = [0.2, 0.9], 0.5

    stop_between_batches(query, timeout_s=3)

    assert query.stopped_s == 3.0


def test_a_query_that_waits_is_stopped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    query: Any = BusyQuery(monkeypatch)
    query.status["isTriggerActive"] = False

    stop_between_batches(query)

    assert query.stopped_s == 0


def test_a_query_that_has_ended_has_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    query: Any = BusyQuery(monkeypatch)
    query.stop()

    assert Gap(query).is_here

"""An EndTxn that the job sent twice, and whose first request arrives in the next transaction."""

import math

import pytest

from coordlib.job import sink
from tests.tools.simulation import drawing, run
from tests.tools.simulation.world import World

KIND = "end-comes-late"


def test_it_ends_no_other_transaction() -> None:
    """INV-99: the sink has another epoch by then, so the broker refuses it."""
    world = World(drawing.draw(0, (KIND, KIND)))

    assert run.run_in(world).violation is None
    assert world.cluster.late_refused > 0


def test_without_another_producer_a_batch_is_written_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """One half of the batch is committed, its driver starts again and writes all of it."""
    monkeypatch.setattr(sink, "DOUBTFUL_AFTER_MS", math.inf)
    world = World(drawing.draw(0, (KIND, KIND)))

    violation = run.run_in(world).violation

    assert violation is not None
    # Which of the two is seen first depends on what the half has: answers, or positions of shards.
    assert violation.startswith(("INV-17", "INV-36"))
    assert world.cluster.late_refused == 0

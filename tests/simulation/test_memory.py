"""A job whose batches write more than it has memory for."""

import pytest

from coordlib.job import start
from tests.tools.simulation import drawing, run
from tests.tools.simulation.situations import OF_MEMORY, count_sometimes
from tests.tools.simulation.world import World

SHORT = "memory-short"


def test_a_job_with_little_memory_plans_less_and_goes_on() -> None:
    """INV-131: whatever has ended it, its next starts come through, and the groups settle."""
    found = dict.fromkeys(OF_MEMORY, 0)
    for seed in (0, 1, 2):
        world = World(drawing.draw(seed, (SHORT, SHORT)))
        assert run.run_in(world).violation is None
        counts = count_sometimes(world)
        found = {name: times + counts[name] for name, times in found.items()}

    assert all(found.values()), found


def test_a_job_that_runs_the_same_batch_again_never_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the world is for: each start ended with the batch of the one before."""
    monkeypatch.setattr(start, "ended_with", lambda *_: None)
    world = World(drawing.draw(0, (SHORT, SHORT)))

    assert run.run_in(world).violation is not None

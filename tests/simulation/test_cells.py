"""Jobs with ranges of shards, in the simulation: each shard is judged once, whoever has it."""

import pytest

from coordlib.core.wire import cells
from tests.tools.simulation import cells_beside
from tests.tools.simulation.cells import CellsWorld

SEEDS = range(3)


def test_each_shard_is_judged_once_through_kills_moves_and_overlaps() -> None:
    """Operators start jobs over ranges that overlap, kill them, rebuild them elsewhere, and drivers
    die at any point of a batch, or sleep and come back.  # INV-103"""
    worlds = [CellsWorld(seed) for seed in SEEDS]

    assert [world.run() for world in worlds] == [[] for _ in SEEDS]
    assert sum(copier.committed for world in worlds for copier in world.copiers) > 50
    for what in ("fenced", "refused", "died", "pause", "rebuild"):
        assert sum(world.count[what] for world in worlds), f"no {what}: they would show nothing"


def test_what_nobody_carries_from_cell_to_cell_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail, too: drivers that read no other cell's outbox."""
    monkeypatch.setattr(cells_beside, "tell", lambda *_: None)

    assert any("a message waits" in each for each in CellsWorld(SEEDS[0]).run())


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(len(SEEDS), 100))
def test_so_in_many_worlds(seed: int) -> None:
    """The same, by more luck."""
    assert CellsWorld(seed).run() == []


def test_jobs_that_do_not_see_each_other_write_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: these fence nobody but drivers of the very same range."""
    monkeypatch.setattr(cells, "is_shared", lambda *_: False)

    assert any(CellsWorld(seed).run() for seed in SEEDS)

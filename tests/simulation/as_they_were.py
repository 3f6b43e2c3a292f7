"""What some seeds have beside the groups, which leaves everything else of all seeds as it was."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from tests.tools.simulation import drawing
from tests.tools.simulation.plan import Plan


def drawn(
    monkeypatch: pytest.MonkeyPatch, without: str, kinds: Collection[str], **nobody: int
) -> list[Plan]:
    """The plans of 400 seeds, each of which is as it was but for this.

    Args:
        without: the function of `drawing` that draws it.
        kinds: the kinds of faults that came with it.
        nobody: how many there are of it, where it is not.
    """
    # A world has these only where it has nothing else beside the groups.
    for name in ("_with_logs", "_with_memory"):
        monkeypatch.setattr(drawing, name, lambda drawn: drawn)
    with_them = [drawing.draw(seed) for seed in range(400)]
    monkeypatch.setattr(drawing, without, lambda drawn: drawn)
    for seed, one in enumerate(with_them):
        others = tuple(fault for fault in one.faults if fault.kind not in kinds)
        assert replace(one, faults=others, **nobody) == drawing.draw(seed)  # type: ignore[arg-type]
    return with_them

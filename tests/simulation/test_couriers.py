"""Couriers in simulated worlds: drawn apart, struck at every point, and held against the job."""

from dataclasses import replace
from typing import Any

import pytest

from tests.tools.simulation import plan
from tests.tools.simulation.kinds import COURIER_KINDS
from tests.tools.simulation.transactions.courier_faults import FAULTS

#: As little as there can be beside the couriers.
SMALL: dict[str, Any] = {"members": 2, "partitions": 1, "messages": 5, "length_ms": 40_000}
I = "Simulat0"  # noqa: E741  # as the header has it


# -- worlds ----------------------------------------------------------------------------------------


def test_some_seeds_have_couriers_and_the_others_are_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known bugs of groups, stores and copiers are found by the seeds that their headers name."""
    with_them = [plan.draw(seed) for seed in range(400)]
    named = [plan.draw(seed, kind=plan.CLASSIC) for seed in range(400)]
    monkeypatch.setattr(plan, "_with_couriers", lambda drawn: drawn)
    without = [plan.draw(seed) for seed in range(400)]

    assert 0.05 < sum(each.couriers > 0 for each in with_them) / 400 < 0.2
    for one, other in zip(with_them, without, strict=True):
        others = tuple(fault for fault in one.faults if fault.kind not in COURIER_KINDS)
        assert replace(one, couriers=0, faults=others) == other
    assert not any(each.couriers and (each.copiers or each.brokers) for each in with_them)
    assert not any(each.couriers for each in named)


def test_faults_of_couriers_bring_couriers() -> None:
    """`--fault courier-killed` draws from that kind only."""
    drawn = plan.draw(5, ("courier-killed", "courier-killed"))

    assert drawn.couriers in (1, 2)
    assert {fault.kind for fault in drawn.faults} == {"courier-killed"}
    assert FAULTS.keys() == COURIER_KINDS.keys()

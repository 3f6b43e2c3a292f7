"""Requests that retention removes before they are read, and logs that lose their ends."""

import pytest

from coordlib.client.kit.reading import Proofs
from tests.tools.simulation import plan, run
from tests.tools.simulation.sometimes import count_sometimes
from tests.tools.simulation.world import World

REMOVED, CUT = "requests-removed", "log-cut"


@pytest.mark.parametrize("seed", [7, 10])
def test_members_whose_requests_were_removed_ask_again(seed: int) -> None:
    """INV-104: a plain start names them, an operator accepts, and the group settles."""
    world = World(plan.draw(seed, (REMOVED, REMOVED)))

    assert run.run_in(world).violation is None
    assert count_sometimes(world)["requests removed before they were read"] > 0


@pytest.mark.parametrize("seed", [2, 7])
def test_a_log_that_is_cut_is_left_behind(seed: int) -> None:
    """INV-104, INV-105: shorter, or grown again before the job looked; members join anew."""
    world = World(plan.draw(seed, (CUT, CUT)))

    assert run.run_in(world).violation is None
    found = count_sometimes(world)
    assert found["log cut and grown again"] > 0
    assert found["log shorter than what was judged"] > 0
    assert found["member stopped by a cut of its log"] > 0


def test_without_a_word_of_what_is_lost_a_join_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Proofs, "lost", lambda *_: [])
    world = World(plan.draw(7, (REMOVED, REMOVED)))

    violation = run.run_in(world).violation
    assert violation is not None
    assert violation.startswith("INV-28")

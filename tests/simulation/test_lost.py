"""Requests that retention removes before they are read, and logs that lose their ends."""

import pytest

from coordlib.client.kit.reading import Proofs
from coordlib.client.kit.requests import Step
from tests.tools.simulation import drawing, run
from tests.tools.simulation.situations import count_sometimes
from tests.tools.simulation.world import World

REMOVED, CUT = "requests-removed", "log-cut"


@pytest.mark.parametrize("seed", [7, 10])
def test_members_whose_requests_were_removed_ask_again(seed: int) -> None:
    """INV-104: a plain start names them, an operator accepts, and the group settles."""
    world = World(drawing.draw(seed, (REMOVED, REMOVED)))

    assert run.run_in(world).violation is None
    assert count_sometimes(world)["requests removed before they were read"] > 0


@pytest.mark.parametrize("seed", [2, 7])
def test_a_log_that_is_cut_is_left_behind(seed: int) -> None:
    """INV-104, INV-105: shorter, or grown again before the job looked; members join anew."""
    world = World(drawing.draw(seed, (CUT, CUT)))

    assert run.run_in(world).violation is None
    found = count_sometimes(world)
    assert found["log cut and grown again"] > 0
    assert found["log shorter than what was judged"] > 0
    assert found["member stopped by a cut of its log"] > 0


@pytest.mark.parametrize("seed", [4, 7])
def test_who_waits_for_a_join_that_was_cut_asks_again(seed: int) -> None:
    """INV-145: it writes nothing while it waits, so it cannot find out by itself."""
    world = World(drawing.draw(seed, (CUT, CUT)))

    assert run.run_in(world).violation is None
    assert count_sometimes(world)["join asked again that was cut from its log"] > 0


@pytest.mark.parametrize("asks_again", [True, False])
def test_without_a_word_of_what_is_lost_a_join_is_asked_again_in_time(
    monkeypatch: pytest.MonkeyPatch, asks_again: bool
) -> None:
    """INV-145: of a log that has lost unread requests alone, no start knows. Who never asks again
    waits for ever."""
    monkeypatch.setattr(Proofs, "lost", lambda *_: [])
    if not asks_again:
        monkeypatch.setattr(Step, "due_ms", lambda step, _: step.again_ms)
    world = World(drawing.draw(7, (REMOVED, REMOVED)))

    violation = run.run_in(world).violation
    if asks_again:
        assert violation is None
        assert count_sometimes(world)["join asked again for want of an answer"] > 0
    else:
        assert violation is not None
        assert violation.startswith("INV-28")

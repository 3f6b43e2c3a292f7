"""How slots of claims are named as their last sign grows old."""

import pytest

from coordlib.cli.claims.view import state_of
from tests.core.claims.test_vectors import KEY, Topic, heartbeat

HI_S = 60  # of `__marshal`


@pytest.mark.parametrize(
    ("age_s", "state"),
    [
        (HI_S - 1, "live"),
        (HI_S, "aging"),
        (2 * HI_S - 1, "aging"),
        (2 * HI_S, "stale"),
        (2 * HI_S + 1, "stale"),
    ],
)
def test_a_claim_is_fresh_then_unknown_then_stale(age_s: int, state: str) -> None:
    """Seed 003, with its bounds; nobody may claim it before the last of them."""
    topic = Topic()
    topic.say(heartbeat(1, "cl", 0))

    topic.at(1 + age_s)

    assert topic.world.clock_ms - topic.slot().heard_ms == age_s * 1_000
    assert state_of(topic.world, "gr", topic.world.slots[KEY]) == state
    assert (topic.owner() is None) == (state == "stale")

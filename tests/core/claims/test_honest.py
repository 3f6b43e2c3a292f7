"""Consumers that keep their fence: one owner at any true time, and late readers that agree."""

import pytest

from coordlib.core.claims.slots import Slots
from tests.tools.claims.honest import Broken, Honest

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_owner_and_late_readers_that_agree(seed: int) -> None:
    """INV-45, INV-49, INV-62: sleep, deafness, slow producers, restarts, two jumps of the clock."""
    world = Honest(seed)
    world.run()

    assert len(world.log) > 100
    assert all(world.reached.values())


def test_seed_55_a_hidden_owner_that_never_sent_a_sign() -> None:
    """INV-62. A late reader believed an attempt that others had ignored, and took that of the true
    owner for ignored; both died before a sign, and the next owner's signs were refused for good.
    """
    world = Honest(55)
    world.run()

    assert world.tentative > 0, "it is not sure, and says so"


def test_seed_57_a_reclaim_that_a_late_reader_cannot_judge() -> None:
    """INV-62. A restarted process's bare heartbeat names no epoch: who knew nothing refused it, and
    believed the next attempt, which all others ignored."""
    Honest(57).run()


@pytest.mark.parametrize(("cap_ms", "seed"), [(60_000, 52), (10**9, 7)])
def test_a_clock_that_is_not_clipped_gives_two_owners(
    cap_ms: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A world that finds nothing may be blind: CAP = HI, and no CAP at all."""
    usual = Slots.__init__

    def unclipped(self: Slots, *place: object, **how: object) -> None:
        usual(self, *place, **how)  # type: ignore[arg-type]
        self.cap_ms = cap_ms

    monkeypatch.setattr(Slots, "__init__", unclipped)

    with pytest.raises(Broken, match="INV-45"):
        Honest(seed).run()

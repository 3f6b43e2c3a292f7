"""The slot that is free the longest makes room, whatever happened on the way."""

from random import Random

import pytest

from coordlib import limits
from coordlib.core.claims.slots import Judgement, Key, Verdict
from coordlib.core.claims.world import World
from tests.tools.claims import logs
from tests.tools.claims.driving import START_MS, message, record

SLOTS_MAX = 4


def longest_free(world: World) -> Key | None:
    """By looking at every slot."""
    free = [
        (world.free_since_ms(slot), key)
        for key, slot in world.slots.items()
        if not world.is_live(slot)
    ]
    return min(free)[1] if free else None


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_one_that_a_look_at_all_would_find(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-43. A heap with old entries, and a state that was read back, choose alike."""
    monkeypatch.setattr(limits, "SLOTS_MAX", SLOTS_MAX)
    world, dice, dropped = World("__marshal", 0, 1), Random(seed), 0
    for each in logs.crowded(seed, 400):
        if dice.random() < 0.05:
            world = World.restore(world.snapshot(), "__marshal", 0, 1)
        world.advance(each.offset, each.timestamp_ms)
        is_full, expected = len(world.slots) >= SLOTS_MAX, longest_free(world)
        before = dict(world.slots)
        judgement = world.decide(each.value)

        assert len(world.slots) <= SLOTS_MAX
        if judgement.dropped is not None:
            dropped += 1
            assert is_full
            assert judgement.dropped == expected
        if judgement.error == "FULL":
            assert is_full
            assert expected is None
            assert world.slots == before
    assert dropped > 20


def test_what_waits_is_thrown_away_when_most_of_it_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Claims that are won and released by turns must not fill the memory of a full partition."""
    monkeypatch.setattr(limits, "SLOTS_MAX", 2)
    world = World("__marshal", 0, 1)
    say = Sayer(world)
    say("ClaimingPartition", partition=0)
    say("ClaimingPartition", partition=1)
    assert say("ClaimingPartition", partition=2).error == "FULL"
    for _ in range(50):
        won = say("ReleasingPartition", instance=f"0123abcd-{world.slots['g', 't', 0].epoch}")
        assert won.verdict == Verdict.RELEASED
        say("ClaimingPartition")

    assert world.room.size <= 8
    say("ReleasingPartition", instance=f"0123abcd-{world.slots['g', 't', 0].epoch}")
    assert say("ClaimingPartition", partition=2).dropped == ("g", "t", 0)


@pytest.mark.parametrize(
    ("clock_ms", "verdict"), [(59_999, Verdict.REFUSED), (60_000, Verdict.PAUSED)]
)
def test_pauses_that_have_ended_make_room(
    clock_ms: int, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that is paused already may be paused again, full or not."""
    monkeypatch.setattr(limits, "PAUSES_MAX", 2)
    say = Sayer(World("__marshal", 0, 1))
    for group in "ab":
        say("ReleaseGroup", group=group, time_s=0, expire_s=60)
    assert say("ReleaseGroup", group="a", time_s=0, expire_s=60).verdict == Verdict.PAUSED
    for step_ms in (24_000, 24_000, clock_ms - 48_000):
        say("Heartbeat", step_ms, version=1, instance="i")

    assert say("ReleaseGroup", group="c", time_s=0, expire_s=60).verdict == verdict
    assert len(say.world.pauses) <= 2


class Sayer:
    """Messages to one world."""

    def __init__(self, world: World) -> None:
        self.world, self._now_ms = world, START_MS

    def __call__(self, kind: str, after_ms: int = 0, **fields: object) -> Judgement:
        self._now_ms += after_ms
        made = message(kind, self._now_ms, fields)
        return self.world.judge(record(self.world.offset + 1, self._now_ms, made))

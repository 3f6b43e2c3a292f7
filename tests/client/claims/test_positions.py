"""Positions on demand: a flush writes them, and lag and load are told of what is claimed."""

import contextlib

from coordlib.errors import CannotReach
from tests.client.claims.world import HI_MS, World, t


def test_a_flush_writes_the_position_before_a_sign_is_due() -> None:
    """TestFlush: a program that ends a piece of work wants it to be known now."""
    world = World({"t": 1})
    world.log.put("t", 0, 4)
    user = world.enter("a")
    world.run(1_000)
    assert user.offsets(0) == [0, 1, 2, 3]
    world.run(100)
    assert world.position(0) != 4, "a sign was due anyway: the test says nothing"

    with contextlib.suppress(CannotReach):  # time stands still: the answer comes with the next run
        user.consumer.flush(timeout=0)
    world.run(100)
    assert world.position(0) == 4
    signs = world.kinds().count("Heartbeat")

    with contextlib.suppress(CannotReach):
        user.consumer.flush(timeout=0)
    world.run(100)
    assert world.kinds().count("Heartbeat") == signs, "nothing has moved since"


def test_lag_and_load_are_of_what_is_claimed() -> None:
    """TestCurrentLag: what waits in claimed partitions, and in no others."""
    world = World({"t": 2})
    user = world.enter("a", greedy_claims=True)
    user.commits = False
    world.run(HI_MS // 10)
    world.log.put("t", 0, 3)
    world.log.put("t", 1, 4)

    assert user.claims == t(0, 1)
    assert user.consumer.current_load() == 2
    assert user.consumer.current_lag() == 7
    found = user.consumer.partition_offsets()
    assert [(found[place].earliest, found[place].latest) for place in t(0, 1)] == [(0, 3), (0, 4)]

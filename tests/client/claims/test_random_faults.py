"""Consumers under random faults: one owner at a time, and in the end everything was processed."""

from random import Random

import pytest

from tests.client.claims.world import HI_MS, World

SWITCHES = ("is_cut", "is_deaf", "is_stopped", "is_unacknowledged")


@pytest.mark.parametrize("seed", range(6))
def test_one_owner_at_any_time_and_nothing_is_left_out(seed: int) -> None:
    """`World.check` compares what each may work on, in every step, stopped processes included."""
    luck = Random(seed)
    world = World({"t": 3}, now_ms=seed * 1_000)
    for number in range(4):
        world.enter(f"c{number}", maximum_claims=luck.choice([0, 2]))
    gone = []
    for number in range(40):
        world.log.put("t", luck.randrange(3), luck.randint(0, 20))
        world.run(luck.choice([200, 900, 2_500]))
        user = luck.choice(world.users)
        if luck.random() < 0.15:
            user.die()
            world.users.remove(user)
            gone.append(user)
            world.enter(f"n{number}")
        else:
            switch = luck.choice(SWITCHES)
            setattr(user.transport, switch, not getattr(user.transport, switch))
    for user in world.users:
        for switch in SWITCHES:
            setattr(user.transport, switch, False)
    world.run(8 * HI_MS)

    for place, log in world.log.messages.items():
        read = {at for user in (*world.users, *gone) for p, at, _ in user.read if p == place}
        assert read == set(range(len(log)))
        assert world.position(place.partition) == len(log)


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
def test_a_step_of_the_brokers_clock_gives_nobody_a_second_owner(ahead_ms: int) -> None:
    """It is clipped to CAP, which is less than the margin between fence and expiry."""
    world = World({"t": 2})
    world.enter("a", maximum_claims=1)
    world.enter("b", maximum_claims=1)
    world.enter("c")
    world.run(2 * HI_MS)
    owners = {user.client: user.claims for user in world.users}
    world.log.broker_ahead_ms = ahead_ms
    world.run(4 * HI_MS)

    assert {user.client: user.claims for user in world.users} == owners

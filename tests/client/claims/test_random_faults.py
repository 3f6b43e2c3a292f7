"""Consumers under random faults: one owner at a time, and in the end everything was processed."""

from collections import Counter
from random import Random

import pytest

from coordlib.client.kit.events import TopicPartition
from tests.client.claims.world import GROUP, HI_MS, World, t

SWITCHES = ("is_cut", "is_deaf", "is_stopped", "is_unacknowledged")


@pytest.mark.parametrize("seed", range(6))
def test_one_owner_at_any_time_and_nothing_is_left_out(seed: int) -> None:
    """INV-51: `World.check` compares what each may work on in every step, stopped or not."""
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


class Course:
    """A topic is deleted and made anew now and then, and brokers lag behind that."""

    def __init__(self, seed: int, met: Counter[str]) -> None:
        self.luck, self.met = Random(seed), met
        self.world = World({"t": 2}, now_ms=seed * 1_000)
        for number in range(3):
            self.world.enter(f"c{number}", maximum_claims=self.luck.choice([0, 1]))
        #: What was read since the topic is the one that it is.
        self.read: dict[TopicPartition, set[int]] = {place: set() for place in t(0, 1)}
        self.lagging_ms = 0

    def collect(self) -> None:
        for user in self.world.users:
            for place, at, _ in user.read:
                self.read[place].add(at)
            user.read.clear()

    def happen(self, number: int) -> None:
        world, luck = self.world, self.luck
        user, dice = luck.choice(world.users), luck.random()
        if dice < 0.1:
            self.make_anew()
        elif dice < 0.2:
            world.close(user, release=luck.random() < 0.5)
            world.enter(f"n{number}")
        elif dice < 0.6:
            switch = luck.choice(SWITCHES)
            setattr(user.transport, switch, not getattr(user.transport, switch))
        for each in world.users:
            each.transport.lags = world.log.now_ms < self.lagging_ms and luck.random() < 0.5
            self.met["asked a broker that lags"] += each.transport.lags

    def make_anew(self) -> None:
        log, luck = self.world.log, self.luck
        self.met["made anew under a claim"] += any(each.claims for each in self.world.users)
        log.make_anew("t")
        self.read = {place: set() for place in self.read}
        self.lagging_ms = log.now_ms + luck.choice([0, HI_MS // 4, 3 * HI_MS])

    def play(self) -> None:
        for number in range(60):
            self.world.log.put("t", self.luck.randrange(2), self.luck.randint(0, 20))
            self.world.run(self.luck.choice([200, 900, 2_500]))
            self.collect()
            self.happen(number)
        for user in self.world.users:
            for switch in (*SWITCHES, "lags"):
                setattr(user.transport, switch, False)
        self.world.run(12 * HI_MS)
        self.collect()


def test_of_a_topic_that_is_made_anew_nothing_is_skipped() -> None:
    """INV-146, INV-149: whatever else fails, and whoever lags."""
    met: Counter[str] = Counter()
    for seed in range(8):
        course = Course(seed, met)
        course.play()
        log = course.world.log
        for place, messages in log.messages.items():
            assert course.read[place] >= set(range(len(messages))), f"{place}, seed {seed}"
            slot = log.world("t").slots[GROUP, *place]
            assert (slot.position, slot.topic_id) == (len(messages), log.id_of("t"))

    assert min(met["made anew under a claim"], met["asked a broker that lags"]) > 10, met

"""INV-85: how often a leader makes its group rebalance because topics changed."""

import pytest

from coordlib.client.groups.settings import INTERVAL, read_settings
from coordlib.client.kit.requests import Timing
from coordlib.core.wire import api
from coordlib.errors import SetupError
from tests.client.world import User, World

REST_MS = 10_000
BUSY = Timing(
    session_timeout_ms=8_000,
    rebalance_timeout_ms=12_000,
    heartbeat_interval_ms=2_000,
    metadata_refresh_ms=500,
    rebalance_interval_ms=REST_MS,
)


def restless(wanted: list[str], members: int = 2) -> tuple[World, list[User]]:
    """Topics that change all the time, and members that look all the time."""
    world = World({"t-0": 1})
    users = world.join(*"abc"[:members], topics=wanted, timing=BUSY)
    world.run(2 * REST_MS)
    return world, users


def rejoins(world: World) -> int:
    return sum(isinstance(each, api.JoinGroup) for each in world.requests)


def test_a_leader_gathers_changes_of_partitions() -> None:
    """A topic that is grown one partition at a time made a rebalance of everybody each time."""
    world, users = restless(["t-0"])
    before, generation = rejoins(world), world.generations
    for _ in range(120):
        world.log.topics["t-0"] += 1
        world.run(500)
    rebalances = world.generations - generation

    assert 4 <= rebalances <= 60_000 // REST_MS + 1
    assert rejoins(world) - before <= 2 * rebalances + 1
    world.run(2 * REST_MS)
    assert sum(len(user.owns) for user in users) == world.log.topics["t-0"]


def test_a_leader_gathers_topics_that_its_expression_finds() -> None:
    """Somebody makes fifty topics by a script."""
    world, users = restless(["^t-.*"], members=1)
    generation = world.generations
    for number in range(1, 51):
        world.log.topics[f"t-{number}"] = 1
        world.run(500)
    rebalances = world.generations - generation

    assert 1 <= rebalances <= 25_000 // REST_MS + 1
    world.run(2 * REST_MS)
    assert sum(len(user.owns) for user in users) == 51


def test_the_first_change_after_a_rest_is_seen_at_once() -> None:
    """The bound is no delay where nothing happens."""
    world, users = restless(["t-0"])
    world.log.topics["t-0"] = 5
    world.run(3_000)

    assert sum(len(user.owns) for user in users) == 5


def test_a_users_new_subscription_does_not_wait() -> None:
    """It is the user's own act; and its expression is resolved for the first time."""
    world = World({"t-0": 1, "u-0": 2})
    (a,) = world.join("a", topics=["t-0"], timing=BUSY)
    a.member.subscribe(["^u-.*"])
    world.run(2_000)

    assert {each.topic for each in a.owns} == {"u-0"}


def test_the_interval_is_a_key_of_the_consumer() -> None:
    """Zero: as before."""
    config = {"bootstrap.servers": "x", "group.id": "g"}

    assert read_settings(config).timing.rebalance_interval_ms == 10_000
    assert read_settings({**config, INTERVAL: "0"}).timing.rebalance_interval_ms == 0
    assert INTERVAL not in read_settings({**config, INTERVAL: "0"}).common
    with pytest.raises(SetupError, match=r"coord\.rebalance\.interval\.ms"):
        read_settings({**config, INTERVAL: -1})

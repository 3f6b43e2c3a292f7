"""A paused group stops, and goes on by itself when the pause ends on the log's clock."""

from coordlib.core.wire import claims
from tests.client.claims.world import EPOCH_MS, GROUP, HI_MS, World, t


def pause(world: World, for_s: int, client: str = "admin") -> None:
    time_s = (EPOCH_MS + world.log.now_ms) // 1_000
    for partition in range(world.log.place.partitions):
        message = claims.ReleaseGroup(
            claims.OUR_VERSION, time_s, "0a0a0a0a", client, GROUP, "", 0, time_s + for_s
        )
        world.log.append(partition, claims.encode(message))


def test_a_paused_group_releases_and_claims_nothing_until_it_is_resumed() -> None:
    world = World({"t": 2})
    world.log.put("t", 0, 5)
    a = world.enter("a", greedy_claims=True)
    world.run(2_000)
    pause(world, 600)
    world.run(1_000)
    assert a.claims == ()
    assert a.told[-1] == ("released", t(0, 1))
    assert world.position(0) == 5
    b = world.enter("b")
    world.run(4 * HI_MS)
    assert b.told == []
    pause(world, 0)
    world.run(1_500)

    assert sorted(a.claims + b.claims) == list(t(0, 1))


def test_a_pause_ends_by_itself_though_nobody_else_writes() -> None:
    """The admin died. Who waits fills the silence, so the log's clock comes to the end."""
    world = World({"t": 1})
    a = world.enter("a")
    world.run(2_000)
    pause(world, 3 * HI_MS // 1_000)
    world.run(2 * HI_MS)
    assert a.claims == ()
    world.run(3 * HI_MS)

    assert a.claims == t(0)

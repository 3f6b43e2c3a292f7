"""INV-146. A topic is deleted and made anew under consumers that claim its partitions."""

from coordlib.records import marshal
from coordlib.testing.fake_claims import EPOCH_MS
from tests.client.claims.world import GROUP, HI_MS, World


def read_four(world: World, client: str = "a") -> None:
    world.log.put("t", 0, 4)
    user = world.enter(client)
    world.run(HI_MS)
    assert user.offsets(0) == [0, 1, 2, 3]


def test_a_consumer_that_runs_begins_the_new_topic_at_its_beginning() -> None:
    """R12: it read 10 of 30 records, and its sign carried the old position on."""
    world = World({"t": 1})
    read_four(world)
    world.log.make_anew("t")
    world.log.put("t", 0, 10)
    world.run(3 * HI_MS)

    (user,) = world.users
    assert user.offsets(0)[4:][-10:] == list(range(10))
    assert world.position(0) == 10
    slot = world.log.world("t").slots[GROUP, "t", 0]
    assert slot.topic_id == world.log.id_of("t")


def test_a_consumer_that_comes_later_begins_at_the_beginning() -> None:
    """Nobody ran when the topic was made anew: the log has the position of the one before."""
    for release in (True, False):
        world = World({"t": 1})
        read_four(world)
        world.close(world.users[0], release)
        former = world.position(0)
        world.log.make_anew("t")
        world.log.put("t", 0, 10)
        user = world.enter("b")
        world.run(5 * HI_MS)

        assert former == 4
        assert user.offsets(0) == list(range(10))


def test_a_position_without_an_id_is_of_the_topic_of_now() -> None:
    """Marshal's clients name none."""
    world = World({"t": 1})
    world.log.put("t", 0, 10)
    time_s = EPOCH_MS // 1_000
    world.log.say(marshal.Heartbeat(1, time_s, "go", "go", GROUP, "t", 0, 6))
    world.log.say(marshal.ReleasingPartition(1, time_s, "go", "go", GROUP, "t", 0, 6))
    user = world.enter("b")
    world.run(HI_MS)

    assert user.offsets(0) == [6, 7, 8, 9]


def test_one_answer_of_a_broker_that_lags_changes_nothing() -> None:
    world = World({"t": 1})
    read_four(world)
    made = world.log.made.copy()
    world.log.made["t"] = 7
    world.run(HI_MS // 12)
    world.log.made = made
    world.run(2 * HI_MS)

    assert [what for what, _ in world.users[0].told] == ["claimed"]

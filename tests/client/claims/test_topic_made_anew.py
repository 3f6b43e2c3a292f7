"""INV-146. A topic is deleted and made anew under consumers that claim its partitions."""

from contextlib import suppress

import pytest

from coordlib.client.claims.options import AT_LEAST_ONCE, AT_MOST_ONCE, Delivery
from coordlib.client.kit.data import LAG_MS
from coordlib.core.wire import claims
from coordlib.errors import CannotReach
from tests.client.claims.fake_claims import EPOCH_MS
from tests.client.claims.world import GROUP, HI_MS, World, t


def read_four(world: World) -> None:
    world.log.put("t", 0, 4)
    user = world.enter("a")
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
    world.log.say(claims.Heartbeat(1, time_s, "go", "go", GROUP, "t", 0, 6))
    world.log.say(claims.ReleasingPartition(1, time_s, "go", "go", GROUP, "t", 0, 6))
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


@pytest.mark.parametrize("delivery", [AT_LEAST_ONCE, AT_MOST_ONCE])
def test_kafkas_group_gets_no_position_of_the_topic_before(delivery: Delivery) -> None:
    """Kafka deletes its offsets with the topic. Whoever reads Kafka's group would begin the new
    topic at what a client copies there afterwards."""
    world, kafka = World({"t": 1}), (GROUP, t(0)[0])
    world.log.put("t", 0, 8)
    user = world.enter("a", delivery=delivery)
    user.commits = False
    world.run(HI_MS)
    world.log.make_anew("t")
    world.run(HI_MS // 12)  # one answer names the new id
    world.log.put("t", 0, 10)
    for message in user.messages:
        user.consumer.commit(message)
    copied = set()
    while user.told[-1][0] == "claimed" and len(user.told) < 3:
        with suppress(CannotReach):
            user.consumer.flush(0)
        world.run(100)
        copied.add(world.log.committed.get(kafka))
    assert copied == {None}

    world.run(HI_MS)
    assert user.told[-1][0] == "claimed"
    assert world.log.committed[kafka] in (0, 10), "as far as the new one was read"


@pytest.mark.parametrize("lags_ms", [HI_MS // 3, 20 * HI_MS])
def test_a_broker_that_lags_begins_no_topic_twice(lags_ms: int) -> None:
    """INV-149: answers of another broker agree that the topic of before is there."""
    world = World({"t": 1})
    read_four(world)
    world.run(LAG_MS)
    world.log.make_anew("t")
    world.log.put("t", 0, 10)
    world.run(HI_MS)
    world.users[0].transport.lags = True
    world.run(lags_ms)
    world.users[0].transport.lags = False
    world.run(2 * HI_MS)

    (user,) = world.users
    assert [what for what, _ in user.told] == ["claimed", "released", "claimed"]
    assert user.offsets(0)[-10:] == list(range(10))


def test_a_broker_that_lags_begins_no_claim() -> None:
    """The look at where a claim begins meets it, behind the one that has told of the new topic."""
    world = World({"t": 1})
    read_four(world)
    world.run(LAG_MS)
    world.log.make_anew("t")
    world.log.put("t", 0, 10)
    (user,) = world.users
    while user.told[-1][0] == "claimed":
        world.run(100)
    user.transport.lags = True
    world.run(HI_MS // 2)
    assert user.told[-1][0] == "released"
    user.transport.lags = False
    world.run(3 * HI_MS)

    assert [what for what, _ in user.told] == ["claimed", "released", "claimed"]
    assert user.offsets(0)[-10:] == list(range(10))

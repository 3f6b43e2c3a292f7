"""Subscriptions by expression, and what the leader notices. Metadata are looked at every 5 s."""

import pytest

from coordlib.client.groups.classic import MISSING_REFRESH_MS, Topics
from coordlib.core.wire import api
from coordlib.core.wire.topics import own_topics
from coordlib.errors import SetupError
from coordlib.testing.fake_log import FakeLog
from tests.client.world import User, World, t


def topics_of(user: User) -> set[str]:
    return {each.topic for each in user.owns}


def reasons(world: World) -> list[str | None]:
    return [each.reason for each in world.requests if isinstance(each, api.JoinGroup)]


def test_an_expression_finds_topics_now_and_later() -> None:
    """confluent-kafka's convention: a topic that begins with ^ is a regular expression."""
    world = World({"orders-eu": 1, "orders-us": 1, "returns": 1})
    (a,) = world.join("a", topics=["^orders-.*"])
    assert topics_of(a) == {"orders-eu", "orders-us"}

    world.log.topics["orders-asia"] = 2
    world.run(7_000)
    assert topics_of(a) == {"orders-eu", "orders-us", "orders-asia"}
    assert reasons(world) == [None, "metadata changed"]


def test_names_and_expressions_may_be_mixed() -> None:
    world = World({"orders-eu": 1, "returns": 1, "other": 1})
    (a,) = world.join("a", topics=["returns", "^orders"])

    assert topics_of(a) == {"orders-eu", "returns"}


def test_an_expression_never_matches_internal_topics() -> None:
    """A group that consumed the coordinator's own answers would feed itself for ever."""
    log = {"__consumer_offsets": 1, "coord.requests": 1, "coord.mine": 1, "x": 1}
    world = World(log)
    (a,) = world.join("a", topics=["^.*"])

    assert topics_of(a) == {"coord.mine", "x"}


def test_an_expression_that_matches_nothing_yet_joins_with_nothing() -> None:
    world = World({"t": 1})
    (a,) = world.join("a", topics=["^later"])
    assert a.member.generation == 1
    assert a.told == [("assigned", ())]

    world.log.topics["later-1"] = 1
    world.run(7_000)
    assert topics_of(a) == {"later-1"}


def test_what_is_no_expression_is_refused_at_once() -> None:
    with pytest.raises(SetupError, match="regular expression"):
        User(FakeLog({"t": 1}), "a", "range", ["^("])


def test_the_leader_notices_new_partitions() -> None:
    """An operator adds partitions; without this, nobody would read them until the next restart."""
    world = World({"t": 2})
    a, b = world.join("a", "b")
    world.log.topics["t"] = 4
    world.run(8_000)

    assert sorted(a.owns + b.owns) == list(t(0, 1, 2, 3))
    assert reasons(world).count("metadata changed") == 1


def test_the_leader_notices_a_topic_that_only_another_member_wants() -> None:
    """Subscribed by name before it was created."""
    world = World({"t": 2})
    world.join("a")
    (b,) = world.join("b", topics=["u"])
    assert b.owns == ()

    world.log.topics["u"] = 1
    world.run(8_000)
    assert topics_of(b) == {"u"}


def test_metadata_that_stay_the_same_rebalance_nobody() -> None:
    world = World({"t": 2})
    a, _ = world.join("a", "b")
    generation = a.member.generation
    world.run(60_000)

    assert a.member.generation == generation


def test_a_follower_does_not_look() -> None:
    """A thousand members must not ask Kafka for its metadata because one of them has to."""
    topics = Topics(own_topics("coord"), refresh_ms=5_000)
    topics.subscribe(0, ("t",))
    assert topics.due_ms() is None

    topics.lead(100, {"t": 2}, ("t",))
    assert topics.due_ms() == 5_100
    topics.follow()
    assert topics.due_ms() is None


def test_a_look_that_fails_is_repeated_later_and_later() -> None:
    topics = Topics(own_topics("coord"), refresh_ms=5_000)
    topics.subscribe(0, ("^t",))
    assert topics.begin_look(0)
    assert not topics.begin_look(0)
    topics.not_seen(10)
    assert topics.due_ms() == 210
    assert topics.begin_look(210)
    topics.not_seen(220)
    assert topics.due_ms() == 620


def test_what_was_seen_before_the_division_is_no_change() -> None:
    """The look takes longer than a rebalance that divides by newer metadata."""
    topics = Topics(own_topics("coord"), refresh_ms=5_000)
    topics.subscribe(0, ("t",))
    topics.lead(0, {"t": 2}, ("t",))
    assert topics.begin_look(5_000)
    topics.lead(5_100, {"t": 4}, ("t",))

    assert not topics.seen(5_200, {"t": 2})


def test_a_new_subscription_is_resolved_and_looked_up_once_more() -> None:
    """The user subscribes anew while somebody reads the metadata."""
    topics = Topics(own_topics("coord"), refresh_ms=5_000)
    topics.subscribe(0, ("^t",))
    assert topics.begin_look(0)
    topics.subscribe(10, ("^u",))
    topics.seen(20, {"t1": 1, "u1": 1})

    assert topics.names == ("u1",)
    assert topics.due_ms() == 10


def test_a_leader_looks_often_while_a_topic_of_its_group_is_missing() -> None:
    """A consumer starts before the program that makes its topic: it read the topic five minutes
    later. With all topics there, the cluster is looked at as seldom as before."""
    topics = Topics(own_topics("coord"), 300_000)
    topics.lead(1_000, {"t": 2}, ("t", "late"))
    assert topics.due_ms() == 1_000 + MISSING_REFRESH_MS
    assert topics.begin_look(6_000)
    assert not topics.seen(6_000, {"t": 2})
    assert topics.begin_look(11_000)
    assert topics.seen(11_000, {"t": 2, "late": 1})

    topics.lead(12_000, {"t": 2, "late": 1}, ("t", "late"))
    assert topics.due_ms() == 312_000


def test_a_leader_that_looks_never_does_not_look_for_missing_topics_either() -> None:
    topics = Topics(own_topics("coord"), 0)
    topics.lead(1_000, {}, ("late",))
    assert topics.due_ms() is None

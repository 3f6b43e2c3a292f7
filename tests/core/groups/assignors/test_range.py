"""The range assignor's own rules; Kafka's cases are in test_vectors.py."""

from coordlib.core.groups.assignors import range_roundrobin as range_assignor
from coordlib.core.groups.assignors.model import Member


def test_a_topic_that_does_not_exist_yet_is_ignored() -> None:
    """A group may subscribe before the topic is created; its members just get nothing of it."""
    members = {"m1": Member(("here", "missing"))}

    assert range_assignor.assign(members, {"here": 2}) == {"m1": {"here": (0, 1)}}


def test_the_order_in_which_members_are_listed_does_not_matter() -> None:
    """Leaders see members in the coordinator's order, which another leader may see differently."""
    members = {name: Member(("t",)) for name in ("b", "a", "c")}
    turned = dict(reversed(members.items()))
    partitions = {"t": 7}

    assert range_assignor.assign(members, partitions) == range_assignor.assign(turned, partitions)


def test_racks_that_nobody_is_in_change_nothing() -> None:
    """Brokers name racks, and consumers other ones: a typing error in client.rack."""
    members = {name: Member(("t",), rack="west") for name in ("a", "b")}
    racks = {"t": [["east"], ["north"], ["east"]]}

    given = range_assignor.assign(members, {"t": 3}, racks)

    assert given == {"a": {"t": (0, 1)}, "b": {"t": (2,)}}


def test_racks_of_fewer_partitions_than_there_are_do_no_harm() -> None:
    """A topic grew since the leader looked at its replicas."""
    members = {"a": Member(("t",), rack="east"), "b": Member(("t",), rack="west")}

    given = range_assignor.assign(members, {"t": 4}, {"t": [["west"], ["east"]]})

    assert given == {"a": {"t": (1, 2)}, "b": {"t": (0, 3)}}


def test_topics_that_the_same_members_want_share_one_list_of_them() -> None:
    """A thousand members want ten thousand topics: not every pair of them is looked at."""
    members = {
        "c": Member(("t1", "t2", "t3")),
        "b": Member(("t3", "t4")),
        "a": Member(("t1", "t2", "t3")),
        "idle": Member(()),
    }

    takers = range_assignor.takers_of(members, dict.fromkeys(("t1", "t2", "t3", "t4", "t5"), 1))

    assert takers == {"t1": ["a", "c"], "t2": ["a", "c"], "t3": ["a", "b", "c"], "t4": ["b"]}
    assert takers["t1"] is takers["t2"]


def test_a_topic_that_is_named_twice_is_wanted_once() -> None:
    """Nothing in the client protocol forbids it."""
    members = {"a": Member(("t", "t")), "b": Member(("t",))}

    assert range_assignor.assign(members, {"t": 2}) == {"a": {"t": (0,)}, "b": {"t": (1,)}}

"""The default strategy: balanced, and no partition moves without need."""

import itertools
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coordlib.core.groups.assignors import server_sticky
from coordlib.core.groups.assignors.server_model import Subscriber
from tests.core.groups.assignors.groups import (
    FEW,
    Drawn,
    Members,
    Partition,
    capacities,
    groups,
    had,
    holding,
    moved,
    owners,
    subscribers,
)

ALL = {"a": 3, "b": 1, "c": 2, "d": 1}


@st.composite
def small(draw: st.DrawFn) -> tuple[Members, dict[str, int]]:
    """At most 4 members and 7 partitions, any of which somebody may have had."""
    topics = draw(st.lists(st.sampled_from(sorted(ALL)), min_size=1, unique=True).map(sorted))
    partitions = {topic: ALL[topic] for topic in topics}
    names = [f"m{n}" for n in range(draw(st.integers(1, 4)))]
    weights = {name: draw(capacities) for name in names}
    members = subscribers(dict.fromkeys(names, tuple(topics)), weights)
    shares: dict[str, dict[str, tuple[int, ...]]] = {name: {} for name in names}
    for topic, count in partitions.items():
        for partition in range(count):
            if (who := draw(st.sampled_from([*names, None]))) is not None:
                shares[who][topic] = (*shares[who].get(topic, ()), partition)
    return holding(members, shares), partitions


def balanced(members: Members, partitions: dict[str, int]) -> Iterator[dict[Partition, str]]:
    """All assignments in which everybody has the floor or the ceiling of its ideal share."""
    places = [(topic, each) for topic, count in partitions.items() for each in range(count)]
    total = sum(member.capacity for member in members.values())
    for choice in itertools.product(members, repeat=len(places)):
        sizes = Counter(choice)
        if all(
            abs(sizes[name] * total - len(places) * member.capacity) < total
            for name, member in members.items()
        ):
            yield dict(zip(places, choice, strict=True))


@given(group=small())
@settings(max_examples=150, deadline=None)
def test_no_balanced_assignment_moves_less(group: tuple[Members, dict[str, int]]) -> None:
    """Every partition that moves is a pause for two members: this is the proof by trying all."""
    members, partitions = group
    before = had(members)
    every = list(balanced(members, partitions))

    after = owners(server_sticky.assign(members, partitions))

    assert after in every
    assert len(moved(before, after)) == min(len(moved(before, each)) for each in every)


@given(drawn=groups(equal=True, weighted=False), capacity=st.integers(1, 5))
@FEW
def test_a_newcomer_takes_and_nobody_else_gains(drawn: Drawn, capacity: int) -> None:
    """A member more for a group under load: the others go on with what they keep."""
    members = holding(drawn.members, server_sticky.assign(drawn.members, drawn.partitions))
    wanted = next(iter(members.values())).topics
    members["newcomer"] = Subscriber(topics=wanted)

    after = owners(server_sticky.assign(members, drawn.partitions))

    assert {after[each] for each in moved(had(members), after)} <= {"newcomer"}


@given(drawn=groups(equal=True, weighted=False), data=st.data())
@FEW
def test_only_the_share_of_who_leaves_moves(drawn: Drawn, data: st.DataObject) -> None:
    """One member crashes: nobody else has to stop anything."""
    assume(len(drawn.members) > 1)
    members = holding(drawn.members, server_sticky.assign(drawn.members, drawn.partitions))
    del members[data.draw(st.sampled_from(sorted(members)))]

    after = owners(server_sticky.assign(members, drawn.partitions))

    assert moved(had(members), after) == set()


def test_a_topic_that_grows_moves_nothing() -> None:
    """Somebody adds partitions to a topic; those that there were stay where they are."""
    members = subscribers(dict.fromkeys("mno", ("t",)))
    members = holding(members, server_sticky.assign(members, {"t": 6}))

    after = owners(server_sticky.assign(members, {"t": 9}))

    assert moved(had(members), after) == set()
    assert sorted(Counter(after.values()).values()) == [3, 3, 3]


def test_a_member_that_grows_takes_what_it_is_due_and_no_more() -> None:
    """A member subscribes again with double the capacity."""
    members = subscribers(dict.fromkeys("mno", ("t",)))
    members = holding(members, server_sticky.assign(members, {"t": 8}))
    members["n"] = msgspec.structs.replace(members["n"], capacity=2)

    after = owners(server_sticky.assign(members, {"t": 8}))

    assert Counter(after.values()) == {"m": 2, "n": 4, "o": 2}
    assert {after[each] for each in moved(had(members), after)} == {"n"}


def test_a_newcomer_is_given_many_topics() -> None:
    """Were it given all of one topic, it would have all of that topic's load."""
    topics = tuple(f"t{n}" for n in range(8))
    members = subscribers(dict.fromkeys("mn", topics))
    counts = dict.fromkeys(topics, 4)
    members = holding(members, server_sticky.assign(members, counts))
    members["newcomer"] = Subscriber(topics=topics)

    rows = server_sticky.assign(members, counts)["newcomer"]

    assert sum(map(len, rows.values())) == 10
    assert {len(some) for some in rows.values()} == {2}


def improving_moves(drawn: Drawn, after: dict[Partition, str]) -> list[tuple[Partition, str]]:
    """The single moves that would lower the sum of load * load / capacity."""
    loads = Counter(after.values())
    # In whole numbers: (2 load - 1) / capacity > (2 load + 1) / capacity.
    return [
        (place, name)
        for place, owner in after.items()
        for name, member in drawn.members.items()
        if name != owner
        and place[0] in member.topics
        and (2 * loads[owner] - 1) * member.capacity
        > (2 * loads[name] + 1) * drawn.members[owner].capacity
    ]


@pytest.mark.parametrize("members_max", [3, 8])
@given(data=st.data())
@FEW
def test_no_single_move_would_balance_better(members_max: int, data: st.DataObject) -> None:
    """Members want different topics: one may have much and another one little, if they must."""
    drawn = data.draw(groups(equal=False, members_max=members_max))

    after = owners(server_sticky.assign_different(drawn.members, drawn.partitions))

    assert improving_moves(drawn, after) == []


def test_who_alone_wants_a_topic_has_it_and_less_of_the_others() -> None:
    """A member that also reads a topic of its own is relieved of what others can read."""
    members = subscribers({"m": ("a", "b"), "n": ("a",), "o": ("a",)})

    shares = server_sticky.assign(members, {"a": 5, "b": 2})

    assert shares["m"]["b"] == (0, 1)
    assert [sum(map(len, rows.values())) for rows in shares.values()] == [3, 2, 2]


def test_who_wants_a_topic_no_more_loses_that_topic_alone() -> None:
    """A member subscribes to less: the rest of its share stays."""
    members = subscribers({"m": ("a", "b"), "n": ("a", "b")})
    members = holding(members, server_sticky.assign(members, {"a": 2, "b": 2}))
    kept = members["m"].share["a"]
    members["m"] = Subscriber(topics=("a",), share=members["m"].share)

    shares = server_sticky.assign(members, {"a": 2, "b": 2})

    assert set(kept) <= set(shares["m"]["a"])
    assert shares["n"]["b"] == (0, 1)


def test_a_partition_may_move_on_before_the_division_is_over() -> None:
    """Two large members join a small one: what both topics bring to the first goes on to the other.

    With no more moves than partitions this took two divisions, and the second one moved partitions
    although nothing had changed.
    """
    members = subscribers(
        {"small": ("b", "d"), "big": ("b", "d"), "other": ("b",)}, {"big": 1_000, "other": 1_000}
    )
    counts = {"b": 1, "d": 1}
    members = holding(members, {"small": {"b": (0,), "d": (0,)}})

    shares = server_sticky.assign(members, counts)

    assert shares == {"small": {}, "big": {"d": (0,)}, "other": {"b": (0,)}}
    assert server_sticky.assign(holding(members, shares), counts) == shares

"""Groups for the tests of strategies: drawn by Hypothesis, and what they hold as pairs."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from coordlib.core.groups.assignors.server_model import Shares, Subscriber
from tests.tools.examples import examples

TOPICS = ("a", "b", "c", "d")
NAMES = [f"{who}-{n}" for who in ("m", "consumer", "Kunde") for n in range(4)]
Members = dict[str, Subscriber]
Partition = tuple[str, int]

FEW = settings(max_examples=examples(60), deadline=None)


@dataclass(frozen=True)
class Drawn:
    """A group and its topics."""

    members: Members
    partitions: dict[str, int]


def subscribers(
    wanted: Mapping[str, tuple[str, ...]], capacities: Mapping[str, int] | None = None
) -> Members:
    """Members that have nothing yet."""
    weights = capacities or {}
    return {
        name: Subscriber(topics=topics, capacity=weights.get(name, 1))
        for name, topics in wanted.items()
    }


def holding(members: Members, shares: Shares) -> Members:
    """The same members after that division."""
    return {
        name: msgspec.structs.replace(member, share=shares.get(name, {}))
        for name, member in members.items()
    }


def owners(shares: Mapping[str, Mapping[str, tuple[int, ...]]]) -> dict[Partition, str]:
    """Partition -> its member."""
    return {
        (topic, each): name
        for name, rows in shares.items()
        for topic, some in rows.items()
        for each in some
    }


def had(members: Members) -> dict[Partition, str]:
    """The owners of the last target."""
    return owners({name: member.share for name, member in members.items()})


def moved(before: Mapping[Partition, str], after: Mapping[Partition, str]) -> set[Partition]:
    """What is taken from one member and given to another one."""
    return {each for each, name in after.items() if before.get(each, name) != name}


capacities = st.one_of(st.just(1), st.integers(1, 9), st.sampled_from([7, 1_000, 999_983]))


@st.composite
def groups(
    draw: st.DrawFn,
    equal: bool | None = None,
    weighted: bool = True,
    with_shares: bool = True,
    members_max: int = 8,
) -> Drawn:
    """Members with any topics, capacities and shares; topics with a few partitions each."""
    partitions = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1))
    subscriptions = st.lists(st.sampled_from(sorted(partitions)), unique=True).map(
        lambda topics: tuple(sorted(topics))
    )
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=members_max, unique=True))
    if draw(st.booleans()) if equal is None else equal:
        wanted = dict.fromkeys(names, draw(subscriptions.filter(bool)))
    else:
        wanted = {name: draw(subscriptions) for name in names}
    weights = {name: draw(capacities) if weighted else 1 for name in names}
    members = subscribers(wanted, weights)
    return Drawn(draw(shared(members)) if with_shares else members, partitions)


@st.composite
def shared(draw: st.DrawFn, members: Members) -> Members:
    """Any shares: what is not wanted, what is no more, and what two have."""
    rows = st.dictionaries(
        st.sampled_from([*TOPICS, "gone"]),
        st.lists(st.integers(0, 15), max_size=8, unique=True).map(lambda some: tuple(sorted(some))),
        max_size=4,
    )
    return holding(members, {name: draw(rows) for name in members})

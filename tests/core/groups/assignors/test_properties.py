"""Whatever the group: shares are valid and balanced, and no partition moves without need."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordlib.core.groups.assignors.general import ROUNDS_MAX, General
from coordlib.core.groups.assignors.model import Member
from tests.tools.assignor_group import ASSIGNORS, Cluster, Group, Held, TwoHolders, pairs
from tests.tools.assignor_properties import (
    are_equal,
    imbalance,
    judge,
    needless_moves,
    swaps,
    wrong_shares,
)

TOPICS = ("a", "b", "c", "d")
BOTH = ["sticky", "cooperative-sticky"]
CLIENTS = ["range", "roundrobin", *BOTH]

names = st.sampled_from([f"{who}-{n}" for who in ("m", "consumer", "Kunde") for n in range(4)])
# Small, since every example is a few rebalances; `KafkaPeer` looks at thousands of cases.
FEW = settings(max_examples=40, deadline=None)

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12), min_size=1)
subscriptions = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True).map(tuple)
racks = st.sampled_from(["east", "west", "north"])


@st.composite
def members(draw: st.DrawFn, equal: bool | None = None) -> dict[str, Member]:
    """Members that have nothing yet."""
    who = draw(st.lists(names, min_size=1, max_size=8, unique=True))
    if draw(st.booleans()) if equal is None else equal:
        topics = draw(subscriptions)
        return {name: Member(topics) for name in who}
    return {name: Member(draw(subscriptions)) for name in who}


@st.composite
def liars(draw: st.DrawFn) -> dict[str, Member]:
    """Members that say anything: claims of others' partitions, of none that exist, and noise."""
    owned = st.dictionaries(
        st.sampled_from([*TOPICS, "gone"]), st.lists(st.integers(-1, 15), max_size=8), max_size=4
    )
    return {
        name: Member(
            topics=tuple(draw(st.lists(st.sampled_from(TOPICS), max_size=5))),
            owned=draw(owned),
            generation=draw(st.integers(-1, 3)),
            instance=draw(st.none() | st.sampled_from("xyz")),
            rack=draw(st.none() | racks),
            user_data=draw(st.none() | st.binary(max_size=40)),
        )
        for name in draw(st.lists(names, min_size=1, max_size=8, unique=True))
    }


def some_racks(draw: st.DrawFn, partitions: dict[str, int]) -> dict[str, list[list[str]]]:
    return {
        topic: [draw(st.lists(racks, max_size=3)) for _ in range(count)]
        for topic, count in partitions.items()
    }


@pytest.mark.parametrize("assignor", CLIENTS)
@given(group=members(), partitions=counts)
@FEW
def test_a_first_assignment_is_right(
    assignor: str, group: dict[str, Member], partitions: dict[str, int]
) -> None:
    checks = judge(Group(assignor, group, Cluster(partitions)))

    assert not any(checks.values()), checks


@pytest.mark.parametrize("assignor", BOTH)
@given(data=st.data(), group=members(), partitions=counts)
@FEW
def test_a_group_that_changes_stays_right(
    assignor: str, data: st.DataObject, group: dict[str, Member], partitions: dict[str, int]
) -> None:
    """Members leave and join, topics grow: what Kafka calls sticky must hold at every step."""
    running = Group(assignor, group, Cluster(partitions))
    for _ in range(3):
        running.rebalance()
        for name in data.draw(st.lists(names, max_size=2, unique=True)):
            if len(running.members) > 1 and name in running.members:
                del running.members[name]
            elif name not in running.members:
                topics = data.draw(
                    st.just(next(iter(running.members.values())).topics) | subscriptions
                )
                running.join(name, topics)
        if data.draw(st.booleans()):
            grown = {**running.cluster.partitions, data.draw(st.sampled_from(TOPICS)): 12}
            running.cluster = Cluster(grown)
        checks = judge(Group(assignor, running.members, running.cluster))
        assert not any(checks.values()), checks


@pytest.mark.parametrize("assignor", BOTH)
@given(data=st.data(), group=members(equal=True), partitions=counts)
@FEW
def test_with_equal_subscriptions_exactly_as_much_is_kept_as_balance_allows(
    assignor: str, data: st.DataObject, group: dict[str, Member], partitions: dict[str, int]
) -> None:
    """One leaves, one comes: the others keep all of their shares that they may keep."""
    running = Group(assignor, group, Cluster(partitions))
    before = running.rebalance()
    leaving = data.draw(st.sampled_from(sorted(group)))
    if len(group) > 1:
        del running.members[leaving]
    after = running.rebalance()

    assert all(before[name] <= after[name] for name in after)

    running.join("new", group[leaving].topics)
    last = running.rebalance()

    assert needless_moves(running.members, after, last) is None
    assert all(last[name] <= after[name] for name in after)


@pytest.mark.parametrize("assignor", CLIENTS)
@given(data=st.data(), group=liars(), partitions=counts)
@FEW
def test_whatever_members_say_everybody_gets_a_valid_share(
    assignor: str, data: st.DataObject, group: dict[str, Member], partitions: dict[str, int]
) -> None:
    cluster = Cluster(partitions, some_racks(data.draw, partitions), data.draw(st.booleans()))

    given_ = pairs(ASSIGNORS[assignor](group, cluster))

    if assignor != "cooperative-sticky":
        assert wrong_shares(group, partitions, given_) is None
    else:
        assert each_once(given_)
    if assignor == "sticky":
        assert imbalance(group, given_) is None


def each_once(held: Held) -> bool:
    return sum(len(some) for some in held.values()) == len(frozenset().union(*held.values()))


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
@given(data=st.data(), group=liars(), partitions=counts)
@FEW
def test_the_order_in_which_things_are_listed_does_not_matter(
    assignor: str, data: st.DataObject, group: dict[str, Member], partitions: dict[str, int]
) -> None:
    """Another leader may see members in another order, and must not come to another answer."""
    partitions = dict.fromkeys(TOPICS, 0) | partitions
    where = some_racks(data.draw, partitions)
    # Of two members with one instance id only one can be in a group.
    group = {name: replace(member, instance=None) for name, member in group.items()}
    turned = {
        name: replace(group[name], owned=dict(reversed(group[name].owned.items())))
        for name in data.draw(st.permutations(sorted(group)))
    }
    cluster = Cluster(partitions, where)
    other = Cluster(dict(reversed(partitions.items())), dict(reversed(where.items())))

    assert ASSIGNORS[assignor](group, cluster) == ASSIGNORS[assignor](turned, other)


@pytest.mark.parametrize("assignor", ["uniform", "uniform(heterogeneous)", "range(server)"])
@given(data=st.data(), group=members(), partitions=counts)
@FEW
def test_targets_of_the_server_are_valid(
    assignor: str, data: st.DataObject, group: dict[str, Member], partitions: dict[str, int]
) -> None:
    partitions = dict.fromkeys(TOPICS, 3) | partitions
    running = Group(assignor, group, Cluster(partitions))
    before = running.rebalance()
    running.join("new", data.draw(subscriptions))

    after = running.rebalance()

    assert wrong_shares(running.members, partitions, after) is None
    if assignor == "uniform(heterogeneous)" and not are_equal(running.members):
        assert swaps(before, after) is None


@given(group=members(equal=True), partitions=counts)
@FEW
def test_uniform_keeps_what_quotas_allow(
    group: dict[str, Member], partitions: dict[str, int]
) -> None:
    """The first P mod M members by id may have one more than the rest, whoever had it before."""
    partitions = dict.fromkeys(TOPICS, 3) | partitions
    running = Group("uniform", group, Cluster(partitions))
    before = running.rebalance()
    running.join("l", next(iter(group.values())).topics)

    after = running.rebalance()

    each, extra = divmod(sum(map(len, after.values())), len(after))
    for place, name in enumerate(sorted(after)):
        quota = each + (place < extra)
        assert len(after[name]) == quota
        had = before.get(name, frozenset())
        assert len(after[name] & had) == min(len(had), quota)


SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tests.core.groups.assignors.test_properties import drawn_by_lot
print(json.dumps(drawn_by_lot()))
"""


def drawn_by_lot() -> list[object]:
    """What the assignors answer for some groups that are always the same."""
    lot, answers = random.Random(4), []
    for _ in range(30):
        partitions = {topic: lot.randrange(1, 12) for topic in TOPICS}
        group = {
            f"member-{lot.randrange(10**9)}": Member(
                topics=tuple(lot.sample(TOPICS, lot.randrange(1, 5))),
                owned={topic: sorted(lot.sample(range(12), 4)) for topic in TOPICS[:2]},
                generation=lot.randrange(3),
                rack=lot.choice(["east", "west", None]),
            )
            for _ in range(lot.randrange(1, 9))
        }
        where = {
            t: [[lot.choice(["east", "west"])] for _ in range(n)] for t, n in partitions.items()
        }
        answers += [ASSIGNORS[name](group, Cluster(partitions, where)) for name in ASSIGNORS]
    return answers


def test_the_seed_of_hashes_does_not_matter() -> None:
    """INV-01: two leaders are two processes, and Python draws a seed for each."""
    root = str(Path(__file__).parents[4])
    answers = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, root],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2026")
    }

    assert answers == {json.dumps(drawn_by_lot()) + "\n"}


def test_balancing_ends_when_it_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending other partitions back than those that move may go on for ever: not here."""
    rounds = []
    monkeypatch.setattr(General, "_balance_once", lambda *_: rounds.append(1) or True)
    group = {"m": Member(("a",)), "n": Member(("a", "b"))}

    given_ = pairs(ASSIGNORS["sticky"](group, Cluster({"a": 2, "b": 2})))

    assert wrong_shares(group, {"a": 2, "b": 2}, given_) is None
    assert len(rounds) == 2 * ROUNDS_MAX


def test_the_checks_see_what_is_wrong() -> None:
    """A check that finds nothing may be blind."""
    group = {"m": Member(("a",)), "n": Member(("a", "b"))}
    counts_ = {"a": 3, "b": 1}
    zero, one, two, other = ("a", 0), ("a", 1), ("a", 2), ("b", 0)

    def shares(m: set[tuple[str, int]], n: set[tuple[str, int]]) -> Held:
        return {"m": frozenset(m), "n": frozenset(n)}

    assert wrong_shares(group, counts_, shares({zero, one}, {two, other})) is None
    assert wrong_shares(group, counts_, shares({zero, one}, {two}))
    assert wrong_shares(group, counts_, shares({zero, other}, {one, two}))
    assert wrong_shares(group, counts_, shares({zero, one}, {one, two, other}))
    assert wrong_shares(group, counts_, {"m": frozenset({zero, one, two})})
    assert imbalance(group, shares({zero, one, two}, {other}))
    assert imbalance(group, shares({zero, one}, {two, other})) is None
    assert swaps(shares({zero}, {one}), shares({one}, {zero}))
    assert swaps(shares({zero}, {one}), shares({zero, one}, set())) is None
    alike = {name: Member(("a",)) for name in ("m", "n")}
    assert needless_moves(alike, shares({zero, one}, {two}), shares({zero, two}, {one}))
    assert needless_moves(alike, shares({zero, one, two}, set()), shares({zero}, {one, two}))


def test_a_partition_that_another_still_holds_is_seen() -> None:
    """Eager assignors give it away at once: what a cooperative one must not do."""
    group = Group("sticky", {name: Member(("a",)) for name in "mn"}, Cluster({"a": 2}))
    group.rebalance()
    group.members["l"] = group.members.pop("m")
    group.members["m"] = Member(("a",))
    group.assignor = "cooperative-sticky"
    group.hold({"l": frozenset({("a", 0), ("a", 1)}), "m": frozenset(), "n": frozenset()})
    group.rebalance()

    assert all(len(some) <= 1 for some in group.held.values())

    group.assignor = "uniform"
    group.hold({"l": frozenset({("a", 0), ("a", 1)}), "m": frozenset(), "n": frozenset()})
    given_ = group.round()
    with pytest.raises(TwoHolders):
        group._refuse_two_holders(given_)


def test_uniform_hands_on_by_number_what_is_taken_away() -> None:
    group = {"a": Member(("t",), {"t": range(6)}), "b": Member(("t",)), "c": Member(("t",))}

    given_ = ASSIGNORS["uniform"](group, Cluster({"t": 6}))

    assert given_ == {"a": {"t": (0, 1)}, "b": {"t": (2, 3)}, "c": {"t": (4, 5)}}

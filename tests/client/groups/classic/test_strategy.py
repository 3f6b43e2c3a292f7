"""Assignors by name, by entry point and as objects; what a leader does with one that fails."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from coordlib.client.groups import assignors
from coordlib.client.groups.assignors import (
    BUILT_IN,
    EAGER,
    AssignorFailed,
    FunctionAssignor,
    GroupMemberView,
    RebalanceMode,
    SubscriptionState,
    check,
    check_hand_overs,
    divide,
    mode_of,
)
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import SetupError
from tests.client import cooperative
from tests.client.world import World, t


def mine() -> FunctionAssignor:
    """What a user's entry point names."""
    return FunctionAssignor("mine", cooperative.divide, modes=EAGER)


def registered(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    point = EntryPoint(name, value, assignors.ENTRY_POINTS)
    monkeypatch.setattr(assignors, "entry_points", lambda group: [point] if group else [])


def test_names_are_parted_by_commas_and_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, "mine", "tests.client.groups.classic.test_strategy:mine")

    assert [each.name for each in assignors.find_assignors("mine, range")] == ["mine", "range"]


def test_objects_and_names_may_be_mixed() -> None:
    found = assignors.find_assignors([cooperative.assignor(), "range"])

    assert [each.name for each in found] == ["cooperative-sticky", "range"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("yours", "tests.client.groups.classic.test_strategy:mine"),
        ("mine", "tests.client.groups.classic.test_strategy:not_there"),
        ("mine", "tests.client.groups.classic.test_strategy:t"),
    ],
    ids=["another name", "not there", "no assignor"],
)
def test_an_entry_point_that_gives_no_such_assignor_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    registered(monkeypatch, name, value)

    with pytest.raises(SetupError):
        assignors.find_assignors(name)


@pytest.mark.parametrize("wanted", ["", "nobody-knows", "range,range"])
def test_a_list_that_cannot_be_is_refused(wanted: str) -> None:
    with pytest.raises(SetupError):
        assignors.find_assignors(wanted)


def test_the_mode_is_the_most_advanced_that_all_support() -> None:
    only_new = FunctionAssignor(
        "new", cooperative.divide, modes=frozenset({RebalanceMode.COOPERATIVE})
    )
    old = BUILT_IN["range"]()

    assert mode_of([cooperative.assignor()]) is RebalanceMode.COOPERATIVE
    assert mode_of([cooperative.assignor(), old]) is RebalanceMode.EAGER
    with pytest.raises(SetupError, match="no rebalance mode in common"):
        mode_of([only_new, old])


def test_range_says_nothing_that_changes_and_a_sticky_one_what_it_owns() -> None:
    state = SubscriptionState(("t",), t(1, 2), generation=4, rack="r1")
    plain = cp.decode_subscription(BUILT_IN["range"]().metadata(state))
    sticky = cp.decode_subscription(cooperative.assignor().metadata(state))

    assert plain == cp.Subscription(topics=("t",), rack="r1")
    assert sticky == cp.Subscription(topics=("t",), owned={"t": (1, 2)}, generation=4, rack="r1")


def broken(members: Mapping[str, GroupMemberView], _: Mapping[str, int]) -> Any:
    if len(members) > 1:
        raise ZeroDivisionError("nobody thought of two")
    return {member: {"t": (0, 1)} for member in members}


class Raising(FunctionAssignor):
    def metadata(self, state: SubscriptionState) -> bytes:
        raise KeyError("no such customer")


def test_an_assignor_that_cannot_say_its_metadata_is_a_final_error() -> None:
    world = World({"t": 2})
    (a,) = world.join("a", assignors=(Raising("x", broken),))

    assert isinstance(a.errors[0], AssignorFailed)


def view(**owned: tuple[int, ...]) -> GroupMemberView:
    return GroupMemberView(cp.Subscription(topics=("t",), owned=owned))


def given(**members: tuple[int, ...]) -> dict[str, cp.Assignment]:
    return {name: cp.Assignment(partitions={"t": some}) for name, some in members.items()}


def test_an_assignment_with_two_owners_is_refused() -> None:
    with pytest.raises(AssignorFailed, match="to a and to b"):
        check(given(a=(0,), b=(0,)), {"a": view(), "b": view()})


def test_a_partition_that_one_member_gets_twice_is_refused() -> None:
    """A user's assignor gave t-0 twice to one member. librdkafka takes a list or refuses it as a
    whole, so the member kept all of its partitions from the others and read none, for good."""
    with pytest.raises(AssignorFailed, match="to a and to a"):
        check(given(a=(0, 1, 0)), {"a": view()})


@pytest.mark.parametrize(("topic", "partition"), [("t", -1), ("", 0), ("x" * 250, 0), ("a\0b", 0)])
def test_what_can_be_no_partition_is_refused(topic: str, partition: int) -> None:
    """The coordinator refuses the fetch of a member's start positions for one such row, again and
    again: its poll raised for ever, and named no assignor."""
    with pytest.raises(AssignorFailed, match="can be no partition"):
        check({"a": cp.Assignment(partitions={topic: (partition,)})}, {"a": view()})


def test_an_assignment_to_a_stranger_is_refused() -> None:
    with pytest.raises(AssignorFailed, match="no member"):
        check(given(z=(0,)), {"a": view()})


def test_a_hand_over_that_does_not_wait_for_the_owner_is_refused() -> None:
    """Kafka's leader refuses it too: the owner works on until it hears otherwise."""
    members = {"a": view(t=(0, 1)), "b": view()}
    check_hand_overs(given(a=(0,), b=()), members)

    with pytest.raises(AssignorFailed, match="while a owns it"):
        check_hand_overs(given(a=(0,), b=(1,)), members)


def test_an_eager_leader_ignores_what_members_say_to_own() -> None:
    """Other programs fill the field whatever the protocol; they have let go nevertheless."""
    said = cp.encode_subscription(cp.Subscription(topics=("t",), owned={"t": (0, 1)}))
    members = [api.JoinedMember("a", None, said), api.JoinedMember("b", None, said)]

    assert len(divide(BUILT_IN["range"](), members, {"t": 2})) == 2


def test_what_members_got_is_told_to_their_assignors() -> None:
    """Stickiness of Kafka's eager sticky assignor lives in its members."""
    heard: list[tuple[int, int]] = []

    class Hearing(FunctionAssignor):
        def on_assignment(self, given: Any, generation: int) -> None:
            heard.append((len(given), generation))

    world = World({"t": 2})
    world.join("a", assignors=(Hearing("x", cooperative.divide),))

    assert heard == [(2, 1)]

"""A leader whose assignor fails tells all members why, and nobody leaves (seed 002)."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from coordlib import limits
from coordlib.client import AssignmentFailed
from coordlib.client.groups.assignors import (
    BOTH,
    BUILT_IN,
    Assignor,
    AssignorFailed,
    FunctionAssignor,
    GroupMemberView,
    ReadsUserData,
    divide,
)
from coordlib.client.groups.classic import RETRY_MS
from coordlib.client.groups.member import ClassicMember
from coordlib.client.groups.state import State
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Partitions
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import CoordError, ErrorCode, GroupError
from tests.client import cooperative
from tests.client.groups.classic.test_membership import Play
from tests.client.world import TIMING, User, World, t


class Switch:
    """All programs run the same code; it fails while this is set, from so many members on."""

    def __init__(self, members: int = 1) -> None:
        self.problem: Exception | None = ValueError("user data of c cannot be read")
        self.members = members
        self.runs = 0

    def assignor(self, of: FunctionAssignor) -> FunctionAssignor:
        def divide(members: Mapping[str, GroupMemberView], counts: Mapping[str, int]) -> Any:
            self.runs += 1
            if self.problem is not None and len(members) >= self.members:
                raise self.problem
            return of.divide(members, counts)

        return FunctionAssignor(of.name, divide, of.modes, of.is_sticky)

    @property
    def eager(self) -> FunctionAssignor:
        return self.assignor(FunctionAssignor("x", cooperative.divide))

    @property
    def cooperative(self) -> FunctionAssignor:
        return self.assignor(cooperative.assignor())


def of_kind(world: World, kind: type[api.Request]) -> list[api.Request]:
    return [r for r in world.requests if isinstance(r, kind)]


def heard(user: User) -> list[str]:
    """What its polls raised: the class of each error."""
    return [type(each).__name__ for each in user.errors]


def everything_is_owned(world: World, partitions: int) -> bool:
    held = [each.partition for user in world.users for each in user.owns]
    return sorted(held) == list(range(partitions))


# -- nobody dies -----------------------------------------------------------------------------


def test_a_failure_that_all_share_puts_nobody_out_and_is_over_when_the_assignor_works() -> None:
    """One member's user data cannot be read by anybody's assignor. Each leader used to fail and
    leave in turn, after a rebalance of all, until too few were left for the failure."""
    switch, world = Switch(members=3), World({"t": 5})
    users = world.join("a", "b", assignors=(switch.eager,))
    users += world.join("c", "d", "e", assignors=(switch.eager,))
    world.run(20_000)

    assert [heard(user) for user in users] == [["AssignorFailed"], *[["AssignmentFailed"]] * 4]
    for user in users[1:]:
        assert isinstance(error := user.errors[0], AssignmentFailed)
        assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "user data of c cannot be read" in str(error)
    assert [user.owns for user in users] == [()] * 5
    assert of_kind(world, api.LeaveGroup) == []
    assert {user.member._machine.state for user in users} == {State.STABLE}

    switch.problem = None
    world.run(RETRY_MS)
    assert everything_is_owned(world, 5)
    assert [len(user.errors) for user in users] == [1] * 5


def test_a_leader_that_keeps_failing_makes_a_rebalance_every_30_seconds_and_no_more() -> None:
    """Every attempt is a rebalance of all. Each raises once, from one poll of each member."""
    switch, world = Switch(members=2), World({"t": 2})
    users = world.join("a", "b", assignors=(switch.eager,))
    before, runs = world.generations, switch.runs
    failures = len(users[0].errors)
    world.run(10 * RETRY_MS + 5_000)

    assert world.generations - before == 10
    assert switch.runs - runs == 10
    assert [len(user.errors) - failures for user in users] == [10, 10]
    assert of_kind(world, api.LeaveGroup) == []


def test_the_next_rebalance_does_not_wait_for_the_leader() -> None:
    """The member that cannot be read leaves: the others go on at once."""
    switch, world = Switch(members=3), World({"t": 4})
    world.join("a", "b", "c", assignors=(switch.eager,))
    assert [user.owns for user in world.users] == [(), (), ()]

    world.close(world.users[2])
    world.run(2_000)
    assert everything_is_owned(world, 4)


def test_when_the_leader_dies_the_next_one_tries() -> None:
    """Its assignor may be another version of the code."""
    switch, world = Switch(members=2), World({"t": 4})
    (a,) = world.join("a", assignors=(switch.eager,))
    world.join("b", "c", assignors=(FunctionAssignor("x", cooperative.divide),))
    assert [heard(user)[0] for user in world.users] == ["AssignorFailed", *["AssignmentFailed"] * 2]

    world.close(a)
    world.run(10_000)
    assert everything_is_owned(world, 4)


def test_another_subscription_is_a_reason_to_join_again_as_ever() -> None:
    switch, world = Switch(members=2), World({"t": 2, "u": 2})
    a, b = world.join("a", "b", assignors=(switch.eager,))
    switch.problem = None
    b.member.subscribe(["u"])
    world.run(3_000)

    assert [each.topic for each in a.owns + b.owns] == ["t", "t", "u", "u"]


def test_a_static_leader_keeps_its_place_too() -> None:
    """It used to leave, static or not, since everybody waited for it."""
    switch, world = Switch(members=2), World({"t": 2})
    world.join("a", assignors=(switch.eager,), instance="i")
    world.join("b", assignors=(switch.eager,))
    assert of_kind(world, api.LeaveGroup) == []

    switch.problem = None
    world.run(RETRY_MS + 1_000)
    assert everything_is_owned(world, 2)


def test_a_member_that_is_polled_late_hears_of_the_newest_failure_only() -> None:
    """Its thread was in a long call; what matters is what is true now."""
    switch, world = Switch(members=2), World({"t": 2})
    _, b = world.join("a", "b", assignors=(switch.eager,))
    b.errors.clear()
    b.is_busy = True
    world.run(8_000)
    assert heard(b) == []
    switch.problem = None
    world.run(RETRY_MS - 9_000)
    b.is_busy = False
    world.run(4_000)

    assert heard(b) == []
    assert everything_is_owned(world, 2)


# -- members that keep what they own while they join -----------------------------------------


def test_cooperative_members_let_go_of_everything_and_have_one_owner_at_any_time() -> None:
    """`coord.assignments` and history have it that nobody owns anything: who worked on would
    contradict them. `World.check` looks after every step."""
    switch, world = Switch(members=3), World({"t": 6})
    a, b = world.join("a", "b", assignors=(switch.cooperative,))
    world.run(4_000)
    assert everything_is_owned(world, 6)
    had = a.owns, b.owns

    (c,) = world.join("c", assignors=(switch.cooperative,))
    world.run(4_000)
    assert [user.owns for user in (a, b, c)] == [(), (), ()]
    assert [("revoked", some) in user.told for user, some in zip((a, b), had, strict=True)] == [
        True,
        True,
    ]
    assert [user.works_on for user in (a, b, c)] == [set(), set(), set()]
    assert [heard(user) for user in (a, b, c)] == [["AssignorFailed"], *[["AssignmentFailed"]] * 2]

    generation = world.generations
    world.run(RETRY_MS // 2)
    assert world.generations == generation, "nobody waits for what was revoked"
    switch.problem = None
    world.run(RETRY_MS)
    assert everything_is_owned(world, 6)


def test_a_cooperative_member_that_is_busy_keeps_others_out_until_it_has_let_go() -> None:
    """It works on what it claimed, and has not polled since: the next generation waits for it."""
    switch, world = Switch(members=3), World({"t": 6})
    _, b = world.join("a", "b", assignors=(switch.cooperative,))
    world.run(4_000)
    kept = b.owns
    b.is_busy = True
    world.join("c", assignors=(switch.cooperative,))
    assert heard(world.users[0]) == ["AssignorFailed"]
    assert b.owns == kept

    switch.problem = None
    world.join("d", assignors=(switch.cooperative,))
    assert b.works_on == set(kept)
    assert not {each for user in world.users if user is not b for each in user.owns} & set(kept)
    b.is_busy = False
    world.run(10_000)
    assert ("revoked", kept) in b.told
    assert everything_is_owned(world, 6)


# -- what goes over the wire -----------------------------------------------------------------


def raised(play: Play, now_ms: int) -> CoordError | None:
    found = [each.error for each in play.say(sg.Polled(now_ms)) if isinstance(each, sg.Raise)]
    return found[0] if found else None


def test_an_error_of_the_coordinators_own_is_not_taken_for_the_leaders() -> None:
    """UNKNOWN_SERVER_ERROR without an assignment: it was too large, and the group starts over."""
    play = Play()
    play.joined()
    play.answer(20, api.SyncGroupResponse, error="UNKNOWN_SERVER_ERROR", message="Too large.")

    assert play.member.state is State.FAILED


def test_an_error_comes_once_and_the_callbacks_before_it() -> None:
    """Who lets go inside `poll` does that first; then one poll raises, and the next ones do not."""
    play = Play()
    play.joined()
    play.answer(
        20,
        api.SyncGroupResponse,
        error="INCONSISTENT_GROUP_PROTOCOL",
        message="a \x1b[31m word",
        assignment=b"",
        fence=44,
    )

    assert play.member.state is State.STABLE
    assert play.say(sg.Polled(30)) == [sg.Call(sg.Callback.ASSIGNED, ())]
    play.say(sg.CalledBack(31, sg.Callback.ASSIGNED))
    error = raised(play, 40)
    assert isinstance(error, AssignmentFailed)
    assert error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "a \N{REPLACEMENT CHARACTER}[31m word" in str(error), "it may be printed"
    assert raised(play, 50) is None
    assert play.member.wake_ms() is not None, "it heartbeats"


def test_what_an_assignor_raises_is_made_to_fit_the_wire() -> None:
    """A stack of nested exceptions, with what a terminal would act upon."""
    switch, world = Switch(members=2), World({"t": 2})
    switch.problem = ValueError("\x1b[31m\x00" + "\N{SNOWMAN}" * limits.REQUEST_BYTES_MAX)
    world.join("a", "b", assignors=(switch.eager,))

    (told,) = [r for r in of_kind(world, api.SyncGroup) if getattr(r, "has_failed", False)]
    assert len(str(getattr(told, "message", ""))) == limits.REASON_LENGTH_MAX
    assert heard(world.users[1]) == ["AssignmentFailed"]


@pytest.mark.parametrize(
    ("raised_code", "told"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignor_may_name_the_error(raised_code: ErrorCode, told: ErrorCode) -> None:
    """Members do not agree on what the user data mean: seed 002's own example. What only the
    coordinator may say stays the coordinator's."""
    switch, world = Switch(members=2), World({"t": 2})
    switch.problem = GroupError(raised_code, "member b")
    _, b = world.join("a", "b", assignors=(switch.eager,))

    assert isinstance(error := b.errors[0], AssignmentFailed)
    assert error.code is told


# -- an assignment's user data, and members that cannot be read ------------------------------


class Telling(FunctionAssignor):
    """Its leader tells each member something beside its share."""

    def __init__(self) -> None:
        super().__init__("telling", cooperative.divide)
        self.plain: list[Any] = []

    def assign(
        self, members: Mapping[str, GroupMemberView], partitions: Mapping[str, int]
    ) -> dict[str, cp.Assignment]:
        shares = super().assign(members, partitions)
        return {
            member: cp.Assignment(partitions=share.partitions, user_data=b"for " + member.encode())
            for member, share in shares.items()
        }

    def on_assignment(self, given: Partitions, generation: int) -> None:
        self.plain.append(given)


class Hearing(Telling):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[Partitions, int, bytes | None]] = []

    def on_assignment_data(
        self, given: Partitions, generation: int, user_data: bytes | None
    ) -> None:
        self.heard.append((given, generation, user_data))


def test_the_user_data_of_an_assignment_reach_the_members_assignor() -> None:
    """A custom assignor sends each member what it needs to know: Kafka's `onAssignment`."""
    world = World({"t": 2})
    ours = [Hearing(), Hearing()]
    a, b = (world.join(n, assignors=(o,))[0] for n, o in zip("ab", ours, strict=True))

    for user, assignor in zip((a, b), ours, strict=True):
        data = b"for " + user.member.member_id.encode()
        assert assignor.heard[-1] == (user.owns, 2, data)
        assert assignor.plain == [], "in place of on_assignment, not beside it"


def test_an_assignor_without_it_is_told_as_before() -> None:
    world, ours = World({"t": 2}), Telling()
    world.join("a", assignors=(ours,))

    assert ours.plain == [t(0, 1)]
    assert not any(isinstance(make(), ReadsUserData) for make in BUILT_IN.values())


def test_a_failed_assignment_is_not_told_as_one() -> None:
    """A sticky assignor goes on remembering what its member really had."""
    world, ours = World({"t": 2}), Hearing()
    world.join("a", assignors=(ours,))
    play = Play(assignor=ours)
    play.joined()
    seen = list(ours.heard)
    play.answer(20, api.SyncGroupResponse, error="UNKNOWN_SERVER_ERROR", assignment=b"", fence=4)

    assert ours.heard == seen


def unreadable() -> list[api.JoinedMember]:
    good = cp.encode_subscription(cp.Subscription(topics=("t",)))
    return [api.JoinedMember("a", None, good), api.JoinedMember("b", None, b"\x00")]


def test_a_member_that_cannot_be_read_gets_nothing_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It runs other code; the others need not stand still for it, but somebody should know."""
    with caplog.at_level(logging.WARNING, "coordlib.client"):
        rows = divide(BUILT_IN["range"](), unreadable(), {"t": 2})

    given = {row.member: cp.decode_assignment(row.assignment).partitions for row in rows}
    assert given == {"a": {"t": (0, 1)}, "b": {}}
    assert [record.getMessage() for record in caplog.records] == [
        "The metadata of b cannot be read: 2 bytes wanted at byte 0 of 1"
    ]


def test_an_assignor_may_refuse_to_divide_with_a_member_that_cannot_be_read() -> None:
    """Its partitions would otherwise go to others without a word."""

    def strict(members: Mapping[str, GroupMemberView], _: Mapping[str, int]) -> Any:
        for member, view in members.items():
            if view.unreadable:
                raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member, view.unreadable)
        return {}

    assignor: Assignor = FunctionAssignor("strict", strict, modes=BOTH)
    with pytest.raises(AssignorFailed, match="2 bytes wanted") as failed:
        divide(assignor, unreadable(), {"t": 2})

    assert failed.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_shell_raises_it_from_one_poll_and_the_next_one_goes_on() -> None:
    """A program that catches it goes on; one that does not ends, and another one leads."""
    switch, world = Switch(members=2), World({"t": 2})
    world.join("a", assignors=(switch.eager,))
    with_b = ClassicMember(
        "orders",
        transport=world.log.transport(),
        client="b",
        timing=TIMING,
        assignors=[switch.eager],
    )
    with_b.subscribe(["t"])
    world.run(3_000)
    polls: list[str] = []
    for _ in range(4):
        try:
            polls.append(str(with_b.poll()))
        except AssignmentFailed:
            polls.append("raised")

    assert polls == ["True", "raised", "False", "False"]

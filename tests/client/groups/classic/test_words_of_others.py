"""One member's words reach another one's process: its leader's, and each member's of its leader.

Whatever they are, none of the others may end for them (INV-110).
"""

import struct
from random import Random
from typing import Any

import pytest

from coordlib import limits
from coordlib.client import AssignmentFailed
from coordlib.client.groups import assignors
from coordlib.client.groups.assignors import (
    BUILT_IN,
    Assignor,
    AssignorFailed,
    FunctionAssignor,
    SubscriptionState,
    divide,
    lead,
    look_up,
)
from coordlib.client.groups.classic import RETRY_MS
from coordlib.client.groups.state import State
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import NotAllowed, SetupError
from coordlib.testing.fake_log import FakeLog, FakeTransport
from tests.client import cooperative
from tests.client.groups.classic.test_membership import MEMBER, Play
from tests.client.world import User, World, t

ODD = ["", "\0", "\0a", "a\0b", "a\nb", "a b", "a/b", "..", ".", "x" * 250, "\N{SNOWMAN}", "^", "*"]


class Saying(FunctionAssignor):
    """An assignor of other code: its metadata are these bytes."""

    def __init__(self, of: Assignor, said: bytes) -> None:
        super().__init__(of.name, lambda members, counts: {}, of.modes)
        self.said = said

    def metadata(self, _: SubscriptionState) -> bytes:
        return self.said


def subscribed(*topics: str, **more: Any) -> bytes:
    return cp.encode_subscription(cp.Subscription(topics=topics, **more))


def alive(users: list[User]) -> bool:
    """Whether nobody has failed, and none of them was told of anything."""
    states = {user.member._machine.state for user in users}
    return states == {State.STABLE} and not any(user.errors for user in users)


# ---- a member's words to its leader ---------------------------------------------------------


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_name_that_no_topic_can_have_ends_nobody_elses_member(assignor: str, name: str) -> None:
    """`"orders,".split(",")`: the leader asked Kafka for an empty name and failed for good, and so
    did the next one, until nobody read any more."""
    world = World({"t": 4})
    users = world.join("a", "b", assignors=assignor)
    world.join("c", assignors=(Saying(BUILT_IN[assignor](), subscribed("t", name)),))
    world.run(10_000)

    assert alive(users)
    assert sorted(each.partition for user in world.users for each in user.owns) == [0, 1, 2, 3]


def test_a_topic_that_the_leader_may_not_see_is_left_out_if_another_member_wants_it() -> None:
    """A group whose members have different rights: one more topic of one of them stopped all."""
    world = World({"t": 2, "secret": 2})
    world.log.hidden.add("secret")
    users = world.join("a", "b")
    world.join("c", topics=("t", "secret"))
    world.run(10_000)

    assert alive(users)
    assert sum(len(user.owns) for user in world.users) == 2


def test_a_leader_that_may_not_see_its_own_topic_says_so() -> None:
    world = World({"t": 2})
    world.log.hidden.add("t")
    (a,) = world.join("a")

    assert isinstance(a.errors[0], NotAllowed)


class Odd(FakeTransport):
    """Fails as nobody has thought of."""

    problem: Exception | None = KeyError("librdkafka")

    def partition_counts(self, *args: Any) -> dict[str, int]:
        if self.problem is not None:
            raise self.problem
        return super().partition_counts(*args)


def test_a_question_for_metadata_that_fails_in_any_way_is_asked_again() -> None:
    world = World({"t": 2})
    user = User(world.log, "a", "range", ("t",))
    world.users.append(user)
    user.transport.__class__ = Odd
    world.run(3_000)
    assert (user.errors, user.owns) == ([], ())

    user.transport.problem = None  # type: ignore[attr-defined]
    world.run(10_000)
    assert (user.errors, user.owns) == ([], t(0, 1))


def test_a_look_at_the_metadata_that_fails_in_any_way_is_none() -> None:
    assert isinstance(look_up(Odd(FakeLog({}))), sg.TopicsNotSeen)


def test_shares_that_no_request_can_carry_are_a_failed_assignment() -> None:
    """Each leader in turn failed for good: its SyncGroup was refused by the log."""
    topics = {f"{number:0249}": 20 for number in range(2_500)}
    said = api.JoinedMember("a", None, subscribed(*topics))
    with pytest.raises(AssignorFailed, match="a request can have"):
        divide(BUILT_IN["range"](), [said], topics)

    half = dict(list(topics.items())[:1_200])
    assert divide(BUILT_IN["range"](), [api.JoinedMember("a", None, subscribed(*half))], half)


def test_a_protocol_that_this_member_lacks_is_a_failed_assignment() -> None:
    task = sg.Divide(1, "of tomorrow", (api.JoinedMember("a", None, subscribed("t")),))
    assert isinstance(lead(task, {}, FakeTransport(FakeLog({"t": 1}))), sg.AssignorFailed)


# ---- the leader's words to a member ---------------------------------------------------------

SHARES = {
    "no bytes of that layout": b"\x00",
    "an empty topic": cp.encode_assignment(cp.Assignment(partitions={"": (0,)})),
    "a topic that begins with NUL": cp.encode_assignment(cp.Assignment(partitions={"\0": (0,)})),
    "a negative partition": cp.encode_assignment(cp.Assignment(partitions={"t": (-1,)})),
    "a negative version": struct.pack(">h", -3) + b"\0" * 8,
}


@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES)
@pytest.mark.parametrize("kind", ["eager", "cooperative"])
def test_a_share_that_is_none_leaves_the_member_in_its_group(kind: str, share: bytes) -> None:
    """A leader of other code. Each member failed for good, the first time that it led."""
    play = Play(assignor=cooperative.assignor()) if kind == "cooperative" else Play()
    play.joined()
    play.answer(20, api.SyncGroupResponse, assignment=share, fence=4)

    assert play.say(sg.Polled(21)) == [sg.Call(sg.Callback.ASSIGNED, ())]
    play.say(sg.CalledBack(21, sg.Callback.ASSIGNED))
    (raised,) = [each for each in play.say(sg.Polled(21)) if isinstance(each, sg.Raise)]
    assert isinstance(raised.error, AssignmentFailed)
    assert play.member.state is State.STABLE
    assert play.member.assignment(22) == ()
    assert not any(isinstance(each, sg.Raise) for each in play.say(sg.Polled(23)))


class Deaf(FunctionAssignor):
    """Reads what its leader says, and cannot."""

    def on_assignment_data(self, _: Partitions, __: int, user_data: bytes | None) -> None:
        raise ValueError(f"no such version: {user_data!r}")


def test_user_data_that_a_members_assignor_cannot_read_are_told_once() -> None:
    world = World({"t": 2})
    (a,) = world.join("a", assignors=(Deaf("x", cooperative.divide),))
    world.run(5_000)

    assert [str(each).splitlines()[0] for each in a.errors] == [
        "An assignor failed: ValueError('no such version: None')"
    ]
    assert a.owns == t(0, 1)


# ---- a member's own words -------------------------------------------------------------------


@pytest.mark.parametrize("name", [*[each for each in ODD if each != "^"], None, 1, b"t"])
def test_a_member_refuses_a_name_that_no_topic_can_have(name: Any) -> None:
    (user,) = World({"t": 2}).join("a")
    with pytest.raises(SetupError, match="No topic can have this name"):
        user.member.subscribe(["t", name])


# ---- all of it, by chance -------------------------------------------------------------------


def drawn(luck: Random) -> bytes:
    """Metadata of a member that runs other code, or none."""
    names = [*ODD[:8], "t", "t", "u", "nowhere"]
    topics = [luck.choice(names) for _ in range(luck.choice((0, 1, 2, 5)))]
    numbers = (-(2**31), -1, 0, 1, 2, 7, 2**31 - 1)
    owned = {
        luck.choice(names): tuple(luck.choice(numbers) for _ in range(luck.randint(0, 4)))
        for _ in range(luck.randint(0, 3))
    }
    said = subscribed(
        *topics,
        version=luck.randint(0, 3),
        user_data=luck.choice((None, b"", luck.randbytes(9), struct.pack(">i", 2**31 - 1))),
        owned=owned,
        generation=luck.choice((-1, 0, 1, 2**31 - 1)),
        rack=luck.choice((None, "", "\0", "r")),
    )
    if luck.random() < 0.3:
        at = luck.randrange(len(said))
        said = said[:at] + luck.randbytes(luck.randint(0, 3)) + said[at + luck.randint(0, 3) :]
    return said


@pytest.mark.parametrize("assignor", sorted(BUILT_IN))
@pytest.mark.parametrize("seed", range(12))
def test_whatever_one_member_says_the_others_stay_members(assignor: str, seed: int) -> None:
    luck, world = Random(f"{assignor} {seed}"), World({"t": 4, "u": 2})
    users = world.join("a", "b", assignors=assignor)
    for _ in range(4):
        odd = Saying(BUILT_IN[assignor](), drawn(luck))
        (c,) = world.join("c", assignors=(odd,))
        world.run(4_000)
        world.close(c)
        world.run(4_000)
    world.run(RETRY_MS)

    assert all(user.member._machine.state is State.STABLE for user in users)
    assert all(
        isinstance(each, AssignmentFailed | AssignorFailed) for u in users for each in u.errors
    )
    assert sorted(each for user in users for each in user.owns) == list(t(0, 1, 2, 3))


def test_what_is_asked_of_kafka_is_a_name() -> None:
    """Of all drawn by the test above: confluent-kafka refuses some, and cuts others at a NUL."""
    asked: set[str] = set()

    class Asked(FakeTransport):
        def partition_counts(self, topics: Any, own: Any = None) -> dict[str, int]:
            asked.update(topics)
            return super().partition_counts(topics, own)

    luck = Random(5)
    for _ in range(200):
        task = sg.Divide(1, "range", (api.JoinedMember(MEMBER, None, drawn(luck)),), member=MEMBER)
        lead(task, {"range": BUILT_IN["range"]()}, Asked(FakeLog({"t": 1})))

    assert {"t", "a b", "..", "nowhere"} <= asked
    assert all(assignors.is_partition(TopicPartition(each, 0)) for each in asked)
    assert max(map(len, asked)) <= limits.NAME_LENGTH_MAX

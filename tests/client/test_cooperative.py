"""Cooperative rebalances over the real core: keep, revoke what goes, join once more (KIP-429)."""

import pytest

from coordlib.client.errors import MemberFenced
from coordlib.client.fence import Stop
from coordlib.client.steps import State
from coordlib.errors import ErrorCode, GroupError
from coordlib.records import consumer_protocol as cp
from coordlib.records import requests as rq
from tests.client import cooperative
from tests.client.world import World, t


@pytest.fixture
def world() -> World:
    return World(assignors=(cooperative.assignor(),))


def test_who_stays_is_asked_for_what_goes_and_keeps_the_rest(world: World) -> None:
    """A deployment adds an instance; the others go on with what stays theirs."""
    (a,) = world.join("a")
    (b,) = world.join("b")

    assert a.told == [("assigned", t(0, 1, 2, 3)), ("revoked", t(2, 3)), ("assigned", ())] + [
        ("assigned", ())
    ] * (len(a.told) - 3)
    assert b.told[-1] == ("assigned", t(2, 3))
    assert (a.owns, b.owns) == (t(0, 1), t(2, 3))
    assert world.generations == 3  # a alone; b joins; a has revoked


def test_it_works_on_while_others_have_not_joined(world: World) -> None:
    """A slow member holds the rebalance up for seconds; nobody else stops for it."""
    a, b, _ = world.join("a", "b", "c")
    kept = a.owns
    b.is_busy = b.transport.is_deaf = True
    world.join("d")

    assert a.member._membership.state is State.JOINING
    assert a.owns == kept
    world.run(4_000)
    assert a.owns == kept


def test_heartbeats_go_on_while_the_join_is_parked(world: World) -> None:
    """Each is answered with the demand again, which the open join answers already."""
    a, b = world.join("a", "b")
    b.is_busy = b.transport.is_deaf = True
    world.join("c")
    before = len(a.told)
    world.run(4_000)

    assert a.member._membership.state is State.JOINING
    assert a.member.may_work()
    assert len(a.told) == before


def test_a_member_that_leaves_takes_nothing_from_the_others(world: World) -> None:
    a, b = world.join("a", "b")
    told = len(a.told)
    world.close(b)
    world.run(1_000)

    assert a.owns == t(0, 1, 2, 3)
    assert [what for what, _ in a.told[told:]] == ["assigned"]
    assert a.told[-1] == ("assigned", b.told[-1][1])


def test_the_commit_and_the_second_join_are_judged_in_one_batch(world: World) -> None:
    """Commit before letting go: nobody waits for an answer, so no batch lies between the two."""
    (a,) = world.join("a")
    a.position = dict.fromkeys(t(2, 3), 7)
    (b,) = world.join("b")

    assert world.batches_after_commit("a") == 0
    asked = b.member.committed_async(t(2, 3))
    world.log.pump()
    assert [row.offset for row in asked.result(0).offsets] == [7, 7]


def test_the_commit_and_an_eager_rejoin_are_judged_in_one_batch() -> None:
    world = World()
    (a,) = world.join("a")
    a.position = dict.fromkeys(t(2, 3), 7)
    world.join("b")

    assert world.batches_after_commit("a") == 0


def test_who_is_cut_off_while_its_join_is_parked_stops_in_time(world: World) -> None:
    """The generation begins without it hearing so; its session then runs, and others take over."""
    a, _, c = world.join("a", "b", "c")
    c.is_busy = c.transport.is_deaf = True
    world.join("d")
    assert a.member._membership.state is State.JOINING
    a.transport.is_cut = True
    world.run(30_000)

    assert a.owns == ()
    assert a.told[-1][0] == "lost"
    held = [each for user in world.users for each in user.owns]
    assert sorted(held) == list(t(0, 1, 2, 3))


def test_who_cannot_hear_that_its_join_was_answered_stops_within_its_session(
    world: World,
) -> None:
    """Its heartbeats of the old generation are written, and prove nothing: the coordinator refuses
    them, and gives its partitions away a session after the answer could be read, which is earlier
    than rule 9 alone would stop it. World.check would see two owners."""
    a, b = world.join("a", "b")
    b.transport.is_deaf = True
    world.join("c")
    assert a.member._membership.state is State.JOINING
    a.transport.is_deaf, b.transport.is_deaf = True, False
    world.run(6_000, step_ms=100)
    assert a.member.may_work()

    world.run(100)
    assert a.member.stopped_by() is Stop.JOIN_UNHEARD
    world.run(40_000, step_ms=100)
    assert a.owns == ()
    a.transport.is_deaf = False
    world.run(20_000)

    held = [each for user in world.users for each in user.owns]
    assert sorted(held) == list(t(0, 1, 2, 3))


def test_who_does_not_revoke_is_not_waited_for_longer_than_it_may_be_silent(world: World) -> None:
    """The user's thread hangs when the assignment takes half of its partitions away."""
    (a,) = world.join("a")
    a.is_busy = True
    (b,) = world.join("b")
    assert a.owns == t(0, 1, 2, 3)
    assert b.owns == ()

    world.run(30_000)
    assert b.owns == t(0, 1, 2, 3)

    a.is_busy = False
    world.run(5_000)
    assert ("lost", t(0, 1, 2, 3)) in a.told
    assert sorted(a.owns + b.owns) == list(t(0, 1, 2, 3))


def test_a_fenced_member_names_nothing_as_owned_when_it_joins_again(world: World) -> None:
    a, b = world.join("a", "b")
    had = a.owns
    a.transport.is_cut = True
    world.run(20_000)
    assert a.told[-1] == ("lost", had)
    assert b.owns == t(0, 1, 2, 3)

    with pytest.raises(MemberFenced):
        a.member.commit({had[0]: 1}, timeout_s=0)
    a.transport.is_cut = False
    world.run(10_000)
    assert sorted(a.owns + b.owns) == list(t(0, 1, 2, 3))
    assert ("lost", b.owns) not in b.told


def test_an_eager_member_is_refused_by_a_cooperative_group(world: World) -> None:
    """Seed 002: as in Kafka; whoever forgets the first of the two bounces is told so."""
    (a,) = world.join("a")
    (b,) = world.join("b", assignors="range")

    assert [type(error) for error in b.errors[:1]] == [GroupError]
    assert isinstance(b.errors[0], GroupError)
    assert b.errors[0].code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.owns == t(0, 1, 2, 3)
    assert len(a.told) == 1


def test_a_topic_that_is_not_wanted_any_more_is_revoked_before_the_rejoin() -> None:
    world = World({"t": 2, "u": 2}, (cooperative.assignor(),))
    (a,) = world.join("a", topics=("t", "u"))
    a.member.subscribe(["t"])
    world.run(2_000)

    assert [(what, {each.topic for each in some}) for what, some in a.told] == [
        ("assigned", {"t", "u"}),
        ("revoked", {"u"}),
        ("assigned", set()),
    ]
    assert a.owns == t(0, 1)


def test_unsubscribing_leaves_and_subscribing_again_joins(world: World) -> None:
    a, b = world.join("a", "b")
    had = a.owns
    a.member.unsubscribe()
    world.run(2_000)
    assert a.told[-1] == ("revoked", had)
    assert b.owns == t(0, 1, 2, 3)

    a.member.subscribe(["t"])
    world.run(2_000)
    assert len(a.owns) == len(b.owns) == 2


def test_a_join_names_what_is_owned_and_in_which_generation(world: World) -> None:
    """Bytes that Kafka's own leaders read: ConsumerProtocol version 3."""
    world.join("a")
    world.join("b")
    joins = [
        request
        for request in world.requests
        if isinstance(request, rq.JoinGroup) and request.client == "a"
    ]
    said = [cp.decode_subscription(each.protocols[0].metadata) for each in joins]

    assert [each.version for each in said] == [3, 3, 3]
    assert [each.generation for each in said] == [-1, 1, 2]
    assert [each.owned for each in said] == [{}, {"t": (0, 1, 2, 3)}, {"t": (0, 1)}]

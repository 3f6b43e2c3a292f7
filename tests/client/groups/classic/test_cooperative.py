"""Cooperative rebalances over the real core: keep, revoke what goes, join once more (KIP-429)."""

import pytest

from coordlib.client.groups.state import State
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Callback
from coordlib.client.kit.fence import MemberFenced, Stop
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import ErrorCode, GroupError
from tests.client import cooperative
from tests.client.groups.classic.test_membership import (
    MEMBER,
    T0,
    T1,
    Play,
    join_fields,
    notice,
    sync_fields,
)
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

    assert a.member._machine.state is State.JOINING
    assert a.owns == kept
    world.run(4_000)
    assert a.owns == kept


def test_heartbeats_go_on_while_the_join_is_parked(world: World) -> None:
    """Each is answered with the demand again, which the open join answers already."""
    a, b = world.join("a", "b")
    b.is_busy = b.transport.is_deaf = True
    world.join("c")
    before = len(a.told)
    world.run(8_500)  # longer than rule 10 would give a demand that nobody answered

    assert a.member._machine.state is State.JOINING
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
    assert a.member._machine.state is State.JOINING
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
    assert a.member._machine.state is State.JOINING
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
    world.run(8_000)
    assert a.member.stopped_by() is Stop.NO_REACTION

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
        if isinstance(request, api.JoinGroup) and request.client == "a"
    ]
    said = [cp.decode_subscription(each.protocols[0].metadata) for each in joins]

    assert [each.version for each in said] == [3, 3, 3]
    assert [each.generation for each in said] == [-1, 1, 2]
    assert [each.owned for each in said] == [{}, {"t": (0, 1, 2, 3)}, {"t": (0, 1)}]


def owned_in(output: sg.Output) -> dict[str, tuple[int, ...]]:
    assert isinstance(output, sg.Send)
    assert isinstance(output.request, api.JoinGroup)
    return cp.decode_subscription(output.request.protocols[0].metadata).owned


def test_a_demand_that_is_read_before_the_join_is_written_runs_on() -> None:
    """The producer hangs with a join that was sent for another reason; the group waits for it."""
    play = Play(assignor=cooperative.assignor())
    play.stable()
    (join,) = play.say(sg.WantTopics(100, ("t", "u")))
    assert owned_in(join) == {"t": (0, 1)}
    play.say(sg.Received(200, notice()))
    for now_ms in range(1_000, 11_000, 1_000):
        beats = play.say(sg.Elapsed(now_ms))
        for beat in beats:
            assert isinstance(beat, sg.Send)
            play.say(sg.Acknowledged(now_ms, beat.request.id, now_ms, now_ms))
        play.say(sg.ReadToEnd(now_ms, now_ms))

    assert play.member.fence.may_work(10_000)
    assert play.member.fence.stopped_by(10_001) is Stop.NO_REACTION


def test_what_was_lost_is_not_named_as_owned() -> None:
    """Fenced, told so, and asked to rejoin before anybody expelled it: it begins with nothing."""
    play = Play(assignor=cooperative.assignor())
    play.stable()
    assert play.say(sg.Polled(9_000)) == [sg.Call(Callback.LOST, (T0, T1))]
    play.say(sg.CalledBack(9_010, Callback.LOST))
    (join,) = play.say(sg.Received(9_100, notice()))

    assert owned_in(join) == {}


def test_a_rejoin_waits_for_a_revoke_that_is_under_way() -> None:
    """Another rebalance begins while on_revoked commits."""
    play = Play(assignor=cooperative.assignor())
    play.stable()
    play.say(sg.Received(100, notice()))
    play.answer(200, api.JoinGroupResponse, **join_fields(generation=2))
    play.answer(300, api.SyncGroupResponse, **sync_fields(0))
    assert play.say(sg.Polled(400)) == [sg.Call(Callback.REVOKED, (T1,))]
    assert play.member.assignment(400) == (T0, T1)
    assert play.say(sg.Received(410, notice(generation=2))) == []
    (join,) = play.say(sg.CalledBack(420, Callback.REVOKED))

    assert owned_in(join) == {"t": (0,)}
    assert play.member.assignment(420) == (T0,)


def test_a_commit_that_is_refused_between_join_and_assignment_asks_for_nothing() -> None:
    """The coordinator takes no commits while it waits for the leader; soon it will."""
    play = Play(assignor=cooperative.assignor())
    play.stable()
    play.say(sg.Received(100, notice()))
    play.answer(200, api.JoinGroupResponse, **join_fields(generation=2))
    play.say(sg.CommitOffsets(210, 1, (api.CommittedOffset(topic="t", partition=0, offset=1),)))
    outputs = play.answer(220, api.OffsetCommitResponse, error="REBALANCE_IN_PROGRESS")

    assert [type(each) for each in outputs] == [sg.Answer]
    assert play.member.state is State.SYNCING


def test_a_commit_that_the_new_generation_overtook_may_be_repeated() -> None:
    """The last member joined between the commit and its judgement; nothing was lost."""
    play = Play(assignor=cooperative.assignor())
    play.stable()
    (join,) = play.say(sg.Received(100, notice()))
    play.say(sg.CommitOffsets(110, 1, (api.CommittedOffset(topic="t", partition=0, offset=1),)))
    commit = play.sent[-1]
    assert isinstance(join, sg.Send)
    joined = play.response(join.request, api.JoinGroupResponse, **join_fields(generation=2))
    play.say(sg.Received(200, joined))
    late = play.response(commit, api.OffsetCommitResponse, error="ILLEGAL_GENERATION")
    (answer,) = play.say(sg.Received(210, late))

    assert isinstance(answer, sg.Answer)
    assert isinstance(answer.error, GroupError)
    assert answer.error.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert play.member.assignment(210) == (T0, T1)


def test_removed_while_the_join_is_parked_loses_everything() -> None:
    play = Play(assignor=cooperative.assignor())
    play.stable()
    play.say(sg.Received(100, notice()))
    play.answer(200, api.JoinGroupResponse, error="UNKNOWN_MEMBER_ID", member=MEMBER)

    assert play.member.assignment(200) == ()
    assert play.say(sg.Polled(300)) == [sg.Call(Callback.LOST, (T0, T1))]
    stopped, join = play.say(sg.CalledBack(310, Callback.LOST))
    assert isinstance(stopped, sg.Send)
    assert isinstance(stopped.request, api.LeaveGroup)
    assert owned_in(join) == {}

"""A member that others put out of its group says that it has stopped: once, and not too early.

Somebody may wait for that word: the process that took its place, or those who get its partitions
after an operator removed it. S = 8 s, RT = 12 s.
"""

import pytest

from coordlib.client.groups.state import State
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Callback
from coordlib.core.wire import api
from coordlib.errors import ErrorCode, GroupError
from tests.client import cooperative
from tests.client.groups.classic.test_membership import MEMBER, T0, T1, Play, stopped
from tests.client.world import User, World, remove, t

ALL = t(0, 1, 2, 3)
REMOVED = api.MemberRemoved(group="orders", cause="r1-50", member=MEMBER, reason="whatever")


def leaves(world: World, user: User) -> list[api.LeaveGroup]:
    name = user.member.identity.client
    found = [each for each in world.requests if each.client == name]
    return [each for each in found if isinstance(each, api.LeaveGroup)]


# ---- with the real core ---------------------------------------------------------------------


def test_a_successor_works_as_soon_as_the_older_twin_has_let_go() -> None:
    """A start script forgot to stop the old process: the new one need not wait out its session."""
    world = World()
    (old,) = world.join("old", instance="till-7")
    old.is_busy = True
    (new,) = world.join("new", instance="till-7")
    assert (old.owns, new.owns) == ((), ())

    old.is_busy = False
    old.poll()
    world.log.pump()
    new.poll()

    assert old.told == [("assigned", ALL), ("lost", ALL)]
    assert new.owns == ALL
    assert len(leaves(world, old)) == 1


def test_the_older_twin_stops_for_good_and_does_not_take_its_place_back() -> None:
    """It was replaced on purpose: two that push each other out would never work."""
    world = World()
    (old,) = world.join("old", instance="till-7")
    (new,) = world.join("new", instance="till-7")
    world.run(60_000)

    assert new.owns == ALL
    assert new.errors == []
    codes = {error.code for error in old.errors if isinstance(error, GroupError)}
    assert codes == {ErrorCode.FENCED_INSTANCE_ID}
    assert world.generations == 1
    assert len(leaves(world, old)) == 1


def test_a_busy_older_twin_is_waited_for() -> None:
    """In the middle of a record, it does not poll: only its own fence proves that it stops."""
    world = World()
    (old,) = world.join("old", instance="till-7")
    old.is_busy = True
    (new,) = world.join("new", instance="till-7")

    world.run(2_000)
    assert new.owns == ()
    assert leaves(world, old) == []
    world.run(5_000)
    assert new.owns == ALL
    assert leaves(world, old) == []

    old.is_busy = False
    world.run(1_000)
    assert len(leaves(world, old)) == 1
    assert new.owns == ALL


@pytest.mark.parametrize("assignors", ["range", (cooperative.assignor(),)])
def test_what_an_operator_takes_from_a_member_is_handed_on_when_it_has_let_go(
    assignors: object,
) -> None:
    """coord removes a member that hangs, as it seems; it does not, and says so at its next poll.

    Then it comes back as a new member.
    """
    world = World(assignors=assignors)  # type: ignore[arg-type]
    ill, well = world.join("ill", "well")
    ill.is_busy = True
    remove(world, ill)
    world.run(3_000)
    assert well.owns != ALL
    before = world.generations

    ill.is_busy = False
    ill.poll()
    world.run(0)
    world.run(1_000, step_ms=100)

    assert world.generations > before
    assert sorted(ill.owns + well.owns) == list(ALL)
    assert len(leaves(world, ill)) == 1


@pytest.mark.parametrize("instance", [None, "till-7"])
@pytest.mark.parametrize("assignors", ["range", (cooperative.assignor(),)])
def test_a_member_of_a_log_that_was_cut_stops_and_joins_anew(
    assignors: object, instance: str | None
) -> None:
    """Its heartbeats may stand at offsets that were judged before: nobody refuses them, and others
    get its partitions while it believes that it lives.  # INV-105"""
    world = World(assignors=assignors)  # type: ignore[arg-type]
    (hit,) = world.join("hit", instance=instance)
    (well,) = world.join("well")
    assert len(hit.owns) == 2
    before = hit.member.member_id
    hit.member.feed(sg.LogCut(hit.member._transport.now_ms()))

    assert hit.member.assignment == ()
    world.run(9_000)
    assert ("lost", ALL[:2]) in hit.told
    assert sorted(hit.owns + well.owns) == list(ALL)
    assert (hit.member.member_id == before) is (instance is not None)


def test_a_commit_whose_request_was_cut_from_the_log_is_not_waited_for() -> None:
    """Kafka had acknowledged it, and no answer comes: whether it was judged is not known."""
    world = World()
    (hit,) = world.join("hit")
    hit.transport.is_cut = True
    asked = hit.member.commit_async({ALL[0]: 7})
    assert not asked.done()
    hit.member.feed(sg.LogCut(hit.member._transport.now_ms()))

    assert "lost records" in str(asked.result(0).error)
    hit.transport.is_cut = False
    world.run(9_000)
    assert hit.owns == ALL


def test_one_that_was_only_cut_off_says_nothing() -> None:
    """Its fence stopped it, and it comes back: a LeaveGroup would throw it out."""
    world = World()
    a, b = world.join("a", "b")
    a.transport.is_cut = True
    while a.owns:
        world.run(500)
    a.transport.is_cut = False
    world.run(5_000)

    assert sorted(a.owns + b.owns) == list(ALL)
    assert leaves(world, a) == []


# ---- the machine alone ------------------------------------------------------------------------


def test_a_removed_static_member_asks_under_its_id() -> None:
    """It cannot know whether a newer process has its place: without an id it would take it."""
    play = Play(instance="till-7")
    play.stable()
    play.say(sg.Received(100, REMOVED))
    assert play.say(sg.Polled(200)) == [sg.Call(Callback.LOST, (T0, T1))]

    said, again = play.say(sg.CalledBack(210, Callback.LOST))

    assert said == stopped("cafe-5", instance="till-7")
    assert isinstance(again, sg.Send)
    assert isinstance(again.request, api.JoinGroup)
    assert (again.request.member, again.request.generation) == (MEMBER, -1)
    (fresh,) = play.answer(220, api.JoinGroupResponse, error="UNKNOWN_MEMBER_ID", member=MEMBER)
    assert isinstance(fresh, sg.Send)
    assert isinstance(fresh.request, api.JoinGroup)
    assert fresh.request.member == ""


def test_it_is_said_once_however_often_it_is_told() -> None:
    """The notice, the refused heartbeat behind it, the refused rejoin, and the end."""
    play = Play(instance="till-7")
    play.stable()
    play.say(sg.Elapsed(3_000))
    heartbeat = play.sent[-1]
    play.say(sg.Received(3_100, REMOVED))
    play.say(sg.Polled(3_200))
    play.say(sg.CalledBack(3_210, Callback.LOST))
    refusal = {"error": "FENCED_INSTANCE_ID"}
    play.say(sg.Received(3_220, play.response(heartbeat, api.HeartbeatResponse, **refusal)))
    play.answer(3_230, api.JoinGroupResponse, member=MEMBER, **refusal)
    play.say(sg.Polled(3_240))
    play.say(sg.Close(3_250))

    assert [type(each).__name__ for each in play.sent].count("LeaveGroup") == 1
    assert play.member.state is State.LEAVING


def test_close_waits_until_it_is_written_that_it_stopped() -> None:
    """The program ends at the error; its last word must not be lost with its producer."""
    play = Play(instance="till-7")
    play.stable()
    play.say(sg.Elapsed(3_000))
    play.answer(3_100, api.HeartbeatResponse, error="FENCED_INSTANCE_ID")
    play.say(sg.Polled(3_200))
    play.say(sg.CalledBack(3_210, Callback.LOST))

    assert play.written(3_250) == []
    assert play.say(sg.Close(3_300)) == [sg.Left()]


def test_what_could_not_be_written_is_said_at_the_end() -> None:
    """The broker was away when it was told."""
    play = Play(instance="till-7")
    play.stable()
    play.say(sg.Elapsed(3_000))
    play.answer(3_100, api.HeartbeatResponse, error="FENCED_INSTANCE_ID")
    play.say(sg.Polled(3_200))
    play.say(sg.CalledBack(3_210, Callback.LOST))
    play.say(sg.NotWritten(3_220, play.sent[-1].id, "timed out", is_final=True))

    (again,) = play.say(sg.Close(3_300))
    assert isinstance(again, sg.Send)
    assert isinstance(again.request, api.LeaveGroup)
    assert play.written(3_310) == [sg.Left()]


def test_a_leave_that_was_lost_unread_is_written_again() -> None:
    """The log was cut again, or was filled up over it: others would wait for the old id's session.
    # INV-145"""
    play = Play()
    play.stable()
    play.say(sg.LogCut(100))
    play.say(sg.Polled(200))
    said, _ = play.say(sg.CalledBack(210, Callback.LOST))
    assert isinstance(said, sg.Send)
    assert isinstance(said.request, api.LeaveGroup)
    play.say(sg.Acknowledged(220, said.request.id, 17, 210))

    lost = sg.NotWritten(300, said.request.id, "it was lost before it was processed")
    assert play.say(lost) == [said]
    assert play.say(lost) == [], "not acknowledged since"


@pytest.mark.parametrize("instance", [None, "till-7"])
def test_a_lost_leave_is_not_written_again_for_an_id_that_may_live(instance: str | None) -> None:
    """A static member comes back under its id. And an id that nobody has answered is the place of a
    JoinGroup: another one may stand there by now.  # INV-145"""
    play = Play(instance=instance)
    if instance is None:
        play.say(sg.WantTopics(0, ("t",)))
        play.written(10)
        said, _ = play.say(sg.LogCut(100))
    else:
        play.stable()
        play.say(sg.LogCut(100))
        play.say(sg.Polled(200))
        said, _ = play.say(sg.CalledBack(210, Callback.LOST))
    assert isinstance(said, sg.Send)
    assert isinstance(said.request, api.LeaveGroup)
    play.say(sg.Acknowledged(220, said.request.id, 17, 210))

    assert (
        play.say(sg.NotWritten(300, said.request.id, "it was lost before it was processed")) == []
    )


def test_who_is_closing_writes_its_lost_leave_again() -> None:
    """It still waits for the answer to a commit.  # INV-145"""
    play = Play()
    play.stable()
    play.say(sg.CommitOffsets(100, 1, (api.CommittedOffset("t", 0, 7),)))
    play.say(sg.Close(200))
    said = play.say(sg.CalledBack(210, Callback.REVOKED))[-1]
    assert isinstance(said, sg.Send)
    assert isinstance(said.request, api.LeaveGroup)
    assert play.written(220) == []
    assert play.say(sg.NotWritten(300, said.request.id, "lost")) == [said]


def test_closed_before_it_was_told_it_still_says_so() -> None:
    """The user closes instead of polling: on_lost runs in close."""
    play = Play()
    play.stable()
    play.say(sg.Received(100, REMOVED))

    assert play.say(sg.Close(200)) == [sg.Call(Callback.LOST, (T0, T1))]
    (said,) = play.say(sg.CalledBack(210, Callback.LOST))
    assert isinstance(said, sg.Send)
    assert isinstance(said.request, api.LeaveGroup)
    assert said.request.members == (api.Leaver(MEMBER),)
    assert play.written(220) == [sg.Left()]


def test_an_older_generation_is_not_out() -> None:
    """ILLEGAL_GENERATION: it is a member, and comes back under its id."""
    play = Play()
    play.stable()
    play.say(sg.Elapsed(3_000))
    play.answer(3_100, api.HeartbeatResponse, error="ILLEGAL_GENERATION")
    play.say(sg.Polled(3_200))

    (again,) = play.say(sg.CalledBack(3_210, Callback.LOST))
    assert isinstance(again, sg.Send)
    assert isinstance(again.request, api.JoinGroup)

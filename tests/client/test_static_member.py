"""Static members (KIP-345) as clients: what they say, and what they do not. S = 8 s, RT = 12 s."""

import pytest

from coordlib.client.groups.state import State
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Callback, TopicPartition
from coordlib.core.wire import api
from coordlib.errors import ErrorCode, GroupError
from tests.client.groups.classic.test_membership import (
    IDENTITY,
    MEMBER,
    T0,
    T1,
    Play,
    join_fields,
    stopped,
    sync_fields,
)
from tests.client.world import World, t


def static_play() -> Play:
    play = Play(instance="till-7")
    play.stable()
    return play


def test_the_instance_id_is_in_every_request_of_a_membership() -> None:
    play = static_play()
    play.say(sg.Elapsed(3_000))
    play.say(sg.CommitOffsets(3_010, 1, (api.CommittedOffset(topic="t", partition=0, offset=1),)))

    kinds = [type(each).__name__ for each in play.sent]
    assert kinds == ["JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"]
    assert {each.instance for each in play.sent} == {"till-7"}  # type: ignore[attr-defined]
    assert IDENTITY.instance is None


def test_close_says_that_it_stopped_and_keeps_its_place() -> None:
    """A rolling restart: the next process of this instance id gets the same partitions at once."""
    play = static_play()

    assert play.say(sg.Close(100)) == [sg.Call(Callback.REVOKED, (T0, T1))]
    (remains,) = play.say(sg.CalledBack(110, Callback.REVOKED))
    assert isinstance(remains, sg.Send)
    assert isinstance(remains.request, api.LeaveGroup)
    assert remains.request.remain
    assert remains.request.members == (api.Leaver(member=MEMBER, instance="till-7"),)
    assert play.written(120) == [sg.Left()]
    assert play.member.state is State.LEFT


def test_close_waits_for_the_answers_to_commits() -> None:
    play = static_play()
    play.say(sg.Close(100))
    play.say(sg.CommitOffsets(105, 3, (api.CommittedOffset(topic="t", partition=0, offset=1),)))
    commit = play.sent[-1]
    play.say(sg.CalledBack(110, Callback.REVOKED))
    assert play.written(130) == []

    answered = play.response(commit, api.OffsetCommitResponse, failed=())

    assert play.say(sg.Received(140, answered)) == [sg.Answer(3), sg.Left()]


def test_one_that_is_not_polled_stops_silently_and_comes_back_under_its_id() -> None:
    """It stops heartbeating: if the user does not come back in time, its session ends."""
    play = static_play()
    for now_ms in range(1_000, 12_000, 1_000):
        if play.say(sg.Elapsed(now_ms)):
            play.written(now_ms)
        play.say(sg.ReadToEnd(now_ms, now_ms))

    assert play.say(sg.Elapsed(12_000)) == []
    assert play.member.assignment(12_000) == ()
    assert play.say(sg.Polled(13_000)) == [sg.Call(Callback.LOST, (T0, T1))]
    (again,) = play.say(sg.CalledBack(13_010, Callback.LOST))
    assert isinstance(again, sg.Send)
    assert isinstance(again.request, api.JoinGroup)
    assert (again.request.member, again.request.generation) == (MEMBER, -1)


def test_one_that_was_replaced_loses_everything_and_says_so_for_ever() -> None:
    """Two processes were started with one instance id; the older must stop."""
    play = static_play()
    play.say(sg.Elapsed(3_000))
    play.answer(3_100, api.HeartbeatResponse, error="FENCED_INSTANCE_ID")

    assert play.member.assignment(3_100) == ()
    assert play.say(sg.Polled(3_200)) == [sg.Call(Callback.LOST, (T0, T1))]
    # Its successor waits to hear that it has stopped.
    said = stopped("cafe-6", instance="till-7")
    assert play.say(sg.CalledBack(3_210, Callback.LOST)) == [said]
    (out,) = play.say(sg.Polled(3_300))
    assert isinstance(out, sg.Raise)
    assert isinstance(out.error, GroupError)
    assert out.error.code is ErrorCode.FENCED_INSTANCE_ID
    (refused,) = play.say(
        sg.CommitOffsets(3_350, 1, (api.CommittedOffset(topic="t", partition=0, offset=1),))
    )
    assert refused == sg.Answer(1, error=out.error), "not only that it holds nothing: for ever"
    assert play.say(sg.Close(3_400)) == []
    assert play.written(3_450) == [sg.Left()]


def test_of_two_living_twins_the_newer_stays_and_the_older_stops_for_good() -> None:
    """A deployment starts the new process before it stops the old one. The older reads that it was
    removed; were it to join anew at once, it would take its place back, and so in turn for ever.
    """
    world = World({"t": 2})
    (older,) = world.join("older", instance="till-7")
    (newer,) = world.join("newer", instance="till-7")
    world.run(10_000)

    assert older.told == [("assigned", t(0, 1)), ("lost", t(0, 1))]
    assert {error.code for error in older.errors if isinstance(error, GroupError)} == {
        ErrorCode.FENCED_INSTANCE_ID
    }
    assert newer.member.generation == 1
    assert (newer.owns, newer.told, newer.errors) == (t(0, 1), [("assigned", t(0, 1))], [])


def test_one_that_slept_through_its_removal_makes_way_for_its_twin() -> None:
    """A suspended machine: its session ended, its place was given up, and a newer process has taken
    the instance id since. When it wakes up, the reason that it reads says nothing of the twin."""
    world = World({"t": 2})
    (older,) = world.join("older", instance="till-7")
    older.transport.is_cut = True
    world.run(20_000)
    (newer,) = world.join("newer", instance="till-7")
    older.transport.is_cut = False
    world.run(10_000)

    assert [what for what, _ in older.told] == ["assigned", "lost"]
    assert {error.code for error in older.errors if isinstance(error, GroupError)} == {
        ErrorCode.FENCED_INSTANCE_ID
    }
    assert (newer.owns, newer.errors) == (t(0, 1), [])


def test_one_whose_place_was_given_up_joins_anew() -> None:
    """Nobody took its instance id: asking under its old id costs it one answer."""
    world = World({"t": 2})
    (user,) = world.join("user", instance="till-7")
    user.transport.is_cut = True
    world.run(20_000)
    user.transport.is_cut = False
    world.run(10_000)

    assert [what for what, _ in user.told] == ["assigned", "lost", "assigned"]
    assert (user.owns, user.errors) == (t(0, 1), [])


def test_a_replaced_joiner_is_told_by_its_join() -> None:
    play = Play(instance="till-7")
    play.say(sg.WantTopics(0, ("t",)))
    play.answer(10, api.JoinGroupResponse, error="FENCED_INSTANCE_ID", member="")

    (out,) = play.say(sg.Polled(20))
    assert isinstance(out, sg.Raise)


def test_a_leader_that_returns_divides_nothing_and_watches_the_topics() -> None:
    """KIP-814: the group stays as it is, and its leader goes on noticing new partitions."""
    play = Play(instance="till-7")
    play.say(sg.ReadToEnd(0, 0))
    play.say(sg.WantTopics(0, ("t",)))
    others = (api.JoinedMember(MEMBER, "till-7", b""),)
    fields = join_fields(leader=MEMBER, members=others, skip_assignment=True)

    task = sg.Divide(1, "range", others, is_kept=True, member=MEMBER)
    assert play.answer(10, api.JoinGroupResponse, **fields) == [task]
    sync, look = play.say(sg.Divided(15, 1, (), ("t",), {"t": 2}))
    assert isinstance(sync, sg.Send)
    assert look == sg.LookUp(), "nobody watched while it was away"
    play.answer(20, api.SyncGroupResponse, **sync_fields())
    play.say(sg.Polled(20))
    play.say(sg.CalledBack(20, Callback.ASSIGNED))
    assert play.say(sg.TopicsSeen(30, {"t": 2})) == []
    assert play.member._me.topics.due_ms() == 30 + 300_000


def test_a_leader_that_returns_notices_what_came_while_it_was_away() -> None:
    """The topic grew between its stop and its start: the partition is nobody's until it rejoins."""
    play = Play(instance="till-7")
    play.say(sg.ReadToEnd(0, 0))
    play.say(sg.WantTopics(0, ("t",)))
    others = (api.JoinedMember(MEMBER, "till-7", b""),)
    play.answer(
        10,
        api.JoinGroupResponse,
        **join_fields(leader=MEMBER, members=others, skip_assignment=True),
    )
    play.say(sg.Divided(15, 1, (), ("t",), {"t": 2}))
    play.answer(20, api.SyncGroupResponse, **sync_fields())
    play.say(sg.Polled(20))
    play.say(sg.CalledBack(20, Callback.ASSIGNED))

    play.say(sg.TopicsSeen(30, {"t": 3}))
    assert play.say(sg.Polled(40)) == [sg.Call(Callback.REVOKED, (T0, T1))]
    (again,) = play.say(sg.CalledBack(50, Callback.REVOKED))
    assert isinstance(again, sg.Send)
    assert isinstance(again.request, api.JoinGroup)
    assert again.request.reason == "metadata changed"


def test_one_that_was_not_polled_comes_back_to_its_share() -> None:
    """A record took longer than max.poll.interval.ms: nobody else got its partitions meanwhile,
    and nobody else noticed."""
    world = World()
    busy, other = world.join("busy", instance="till-7") + world.join("other", instance="till-8")
    had, generation = busy.owns, world.generations
    busy.is_busy = True
    while busy.owns:
        world.run(500)
    assert other.owns == tuple(each for each in t(0, 1, 2, 3) if each not in had)

    busy.is_busy = False
    world.run(2_000)

    assert (busy.owns, busy.errors) == (had, [])
    assert [what for what, _ in busy.told][-2:] == ["lost", "assigned"]
    # It leads or it follows: a leader divides anew.
    assert world.generations <= generation + 1
    assert sorted(busy.owns + other.owns) == list(t(0, 1, 2, 3))


def test_one_that_was_not_polled_for_too_long_comes_back_as_a_new_member() -> None:
    """Its session ended, others have its partitions; its own id is not known any more."""
    world = World()
    busy, other = world.join("busy", instance="till-7") + world.join("other", instance="till-8")
    before = busy.member.member_id
    busy.is_busy = True
    world.run(30_000)
    assert other.owns == t(0, 1, 2, 3)

    busy.is_busy = False
    world.run(20_000)

    assert busy.errors == []
    assert busy.member.member_id not in ("", before)
    assert sorted(busy.owns + other.owns) == list(t(0, 1, 2, 3))


def test_its_late_rejoin_takes_nothing_out_of_its_hands() -> None:
    """Rule 12: it came back under its id and works; a third joins, and its earlier JoinGroup is
    written a second time, by the producer that was given up."""
    world = World()
    world.join("first", instance="till-6")
    (busy,) = world.join("busy", instance="till-7")
    busy.is_busy = True
    while busy.owns:
        world.run(500)
    busy.is_busy = False
    world.run(2_000)
    back = [each for each in world.requests if isinstance(each, api.JoinGroup)][-1]
    assert (back.client, back.generation, back.member) == ("busy", -1, busy.member.member_id)
    mine = busy.owns

    busy.is_busy = True
    (third,) = world.join("third")
    world.log.append(busy.member.identity.shard, back)
    world.run(4_000)

    assert busy.works_on == set(mine)
    assert third.owns == ()
    busy.is_busy = False
    world.run(4_000)
    assert sorted(each for user in world.users for each in user.owns) == list(t(0, 1, 2, 3))
    assert third.owns


@pytest.mark.parametrize("assignors", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("is_leader", [True, False])
def test_one_that_comes_back_for_other_topics_makes_its_group_divide_anew(
    assignors: str, is_leader: bool
) -> None:
    """A deployment moves a program to another topic: what it had must not be read by nobody."""
    world = World({"t": 4, "u": 4}, assignors=(assignors,))
    names = ("static", "other") if is_leader else ("other", "static")
    for name in names:
        world.join(name, instance="till-7" if name == "static" else None)
    (static,) = [user for user in world.users if user.member.identity.instance]
    (other,) = [user for user in world.users if not user.member.identity.instance]
    world.close(static)
    (again,) = world.join("again", instance="till-7", topics=("u",))
    world.run(20_000)

    assert again.owns == tuple(TopicPartition("u", number) for number in range(4))
    assert other.owns == t(0, 1, 2, 3)

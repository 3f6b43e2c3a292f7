"""Letting go, demand by demand: who may work on what meanwhile, and what the log gets to see."""

from typing import Any

import pytest

from coordlib.client.groups.assigned import KEPT_MS
from coordlib.client.groups.state import State
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Callback, TopicPartition
from coordlib.client.kit.fence import Stop
from coordlib.core.wire import api
from coordlib.errors import CoordError, ErrorCode, GroupError
from tests.client.groups.assigned.play import (
    MEMBER,
    Play,
    assigned,
    commit,
    lost,
    picture,
    release,
    revoked,
    subscribe,
    t,
)
from tests.client.groups.classic.test_membership import stopped

T1 = TopicPartition("t", 1)


def demanded(**more: Any) -> Play:
    """A member with t-0, t-1 and t-2, asked at 100 ms to let go of t-1 because of record 44."""
    play = Play()
    play.subscribed(0, 1, 2)
    assert play.told(100, (0, 2), {44: (1,)}, **more) == []
    return play


def letting_go() -> Play:
    """The same, in the middle of on_revoked."""
    play = demanded()
    assert play.say(sg.Polled(200)) == [revoked(1)]
    return play


def back(play: Play, now_ms: int = 300) -> list[sg.Output]:
    return play.say(sg.CalledBack(now_ms, Callback.REVOKED))


# ---- in order ---------------------------------------------------------------------------------


def test_only_what_is_demanded_is_let_go_of_and_then_released() -> None:
    """No round for everybody: t-0 and t-2 are worked on all the time."""
    play = demanded(generation=2)
    assert play.member.assignment(150) == t(0, 1, 2)
    assert play.member.fence_of(T1) == 40

    assert play.say(sg.Polled(200)) == [revoked(1)]
    assert back(play) == [release("cafe-4", 44, generation=2)]

    assert play.member.assignment(300) == t(0, 2)
    assert play.member.fence_of(T1) is None
    play.written(310)
    assert play.answer(400, api.ReleaseResponse, failed=()) == []
    assert play.say(sg.Polled(500)) == []


def test_demands_are_met_one_by_one_each_with_its_own_release() -> None:
    """Two newcomers, one after the other, before the user came by."""
    play = demanded()
    play.told(150, (0,), {44: (1,), 47: (2,)})

    assert play.polled(200) == [revoked(1), release("cafe-4", 44)]
    assert play.polled(300) == [revoked(2), release("cafe-5", 47)]
    assert play.say(sg.Polled(400)) == []


def test_what_is_new_comes_after_what_must_go() -> None:
    play = demanded()
    play.told(150, (0, 2, 5), {44: (1,)})

    assert play.polled(200) == [revoked(1), release("cafe-4", 44)]
    assert play.polled(300) == [assigned(5)]


def test_a_demand_that_is_read_again_is_met_once() -> None:
    """A notice that was written before the Release was judged lists it still."""
    play = demanded()
    play.polled(200)

    assert play.told(300, (0, 2), {44: (1,)}) == []
    play.written(310)
    assert play.told(320, (0, 2), {44: (1,)}) == []

    assert play.say(sg.Polled(400)) == []


def test_what_the_user_was_never_told_of_is_released_without_him() -> None:
    """Given and demanded back between two polls."""
    play = Play()
    play.subscribed(0)
    play.told(100, (0, 1), fence=43)

    assert play.told(150, (0,), {44: (1,)}, fence=43) == [release("cafe-4", 44)]
    assert play.say(sg.Polled(200)) == []


def test_what_comes_back_has_a_new_fence() -> None:
    """The newcomer left again; what was let go of is given once more."""
    play = demanded()
    play.polled(200)
    play.written(210)
    play.answer(300, api.ReleaseResponse, failed=())
    play.told(400, (0, 1, 2), fence=52)

    assert play.say(sg.Polled(500)) == [assigned(1)]
    assert play.member.fence_of(T1) == 52


def test_the_members_own_token_never_falls() -> None:
    """What had the highest fence is let go of; other systems have seen that number."""
    play = Play()
    play.subscribed(0)
    play.told(100, (0, 1), fence=52)
    assert play.member.held.fence_token == 52

    play.told(200, (0,), {60: (1,)}, fence=40)

    assert play.member.held.fence_token == 52


def test_what_goes_without_a_demand_is_revoked_and_nothing_is_said() -> None:
    """The topic was deleted: nobody waits for it."""
    play = Play()
    play.subscribed(0, 1)
    play.told(100, (0,))

    assert play.polled(200) == [revoked(1)]


# ---- commits ----------------------------------------------------------------------------------


def test_the_commit_of_on_revoked_rides_in_the_release() -> None:
    """Commit and let go in one record; the newcomer reads the commit or has nothing."""
    play = letting_go()

    assert play.commit(210, (1, 9), ticket=5) == []
    assert back(play) == [release("cafe-4", 44, (1, 9))]
    failed = (api.FailedPartition("t", 1, "PARTITION_NOT_OWNED"),)
    assert play.answer(400, api.ReleaseResponse, failed=failed) == [sg.Answer(5, failed=failed)]


def test_a_commit_that_is_waited_for_is_written_at_once() -> None:
    """commit(), not commit_async(): the callback would wait for its own end."""
    play = letting_go()

    assert play.commit(210, (1, 9), is_waited=True) == [commit("cafe-4", (1, 9))]
    assert back(play) == [release("cafe-5", 44)]


def test_commits_stay_in_their_order() -> None:
    """Only the last one rides: the first must not overtake the second."""
    play = letting_go()

    assert play.commit(210, (1, 8), ticket=1) == []
    assert play.commit(220, (1, 9), ticket=2) == [commit("cafe-4", (1, 8))]
    assert back(play) == [release("cafe-5", 44, (1, 9))]


def test_a_commit_of_other_partitions_too_is_written_at_once_behind_the_one_before() -> None:
    """What is kept does not wait for what goes."""
    play = letting_go()
    play.commit(210, (1, 9), ticket=1)

    assert play.commit(220, (0, 5), ticket=2) == [
        commit("cafe-4", (1, 9)),
        commit("cafe-5", (0, 5)),
    ]
    assert back(play) == [release("cafe-6", 44)]


def test_a_commit_of_what_another_demand_asks_for_is_written_at_once() -> None:
    """That one is not let go of yet: its Release may come long after."""
    play = demanded()
    play.told(150, (0,), {44: (1,), 47: (2,)})
    assert play.say(sg.Polled(200)) == [revoked(1)]

    assert play.commit(210, (2, 9)) == [commit("cafe-4", (2, 9))]


def test_a_commit_rides_with_its_own_demand_only() -> None:
    """Another one, of what the user never had, is met in the middle of the callback."""
    play = letting_go()
    play.commit(210, (1, 9))

    assert play.told(220, (0, 2), {44: (1,), 47: (5,)}) == [release("cafe-4", 47)]
    assert back(play) == [release("cafe-5", 44, (1, 9))]


def test_a_commit_that_may_be_waited_for_in_the_callback_does_not_wait_for_its_end() -> None:
    """commit_async(…).result() in on_revoked: it must come to an end."""
    play = letting_go()
    play.commit(210, (1, 9), ticket=1)
    assert play.member.wake_ms() == 210 + KEPT_MS

    assert play.say(sg.Elapsed(210 + KEPT_MS)) == [commit("cafe-4", (1, 9))]
    assert play.answer(800, api.OffsetCommitResponse, failed=()) == [sg.Answer(1)]
    assert back(play, 900) == [release("cafe-5", 44)]


def test_a_commit_in_a_callback_that_no_demand_asked_for_is_written_at_once() -> None:
    """Nothing will be released: the topic was deleted."""
    play = Play()
    play.subscribed(0, 1)
    play.told(100, (0,))
    play.say(sg.Polled(200))

    assert play.commit(210, (1, 9)) == [commit("cafe-4", (1, 9))]


def test_close_in_the_middle_of_on_revoked_writes_the_commit_before_it_leaves() -> None:
    """The user's handler ends the program."""
    play = letting_go()
    play.commit(210, (1, 9))
    assert play.say(sg.Close(220)) == []

    written = back(play)
    assert written[0] == commit("cafe-4", (1, 9))
    assert [type(each.request) for each in written[1:] if isinstance(each, sg.Send)] == [
        api.LeaveGroup
    ]


def test_unsubscribe_in_the_middle_of_on_revoked_writes_the_commit() -> None:
    play = letting_go()
    play.commit(210, (1, 9))
    play.say(sg.Unsubscribe(220))

    assert back(play) == [commit("cafe-4", (1, 9))]
    assert play.say(sg.Polled(400)) == [revoked(0, 2)]


def test_one_that_is_put_out_in_the_middle_of_on_revoked_learns_that_nothing_was_committed() -> (
    None
):
    play = letting_go()
    play.commit(210, (1, 9), ticket=5)
    removed = api.MemberRemoved(group="orders", cause="r1-50", member=MEMBER, reason="operator")
    play.say(sg.Received(250, removed))

    (refused,) = back(play)
    assert isinstance(refused, sg.Answer)
    assert (refused.ticket, isinstance(refused.error, CoordError)) == (5, True)
    assert play.polled(400) == [lost(0, 2), stopped("cafe-4"), subscribe("cafe-5")]


# ---- not at once ------------------------------------------------------------------------------


def test_a_release_that_was_not_written_is_said_again() -> None:
    play = letting_go()
    play.commit(210, (1, 9), ticket=5)
    back(play)

    assert play.say(sg.NotWritten(400, "cafe-4", "timed out")) == []
    assert play.say(sg.Elapsed(600)) == [release("cafe-5", 44, (1, 9))]
    assert play.answer(700, api.ReleaseResponse, failed=()) == [sg.Answer(5)]


def test_a_release_that_is_refused_for_now_is_said_again_and_its_date_stands() -> None:
    """The group is quarantined for a while. The demand was read at 100 ms, all before at 0."""
    play = letting_go()
    back(play)
    play.written(310)
    play.answer(400, api.ReleaseResponse, error="COORDINATOR_NOT_AVAILABLE")
    assert play.say(sg.Elapsed(600)) == [release("cafe-5", 44)]
    play.live(1_000, 9_000)

    play.say(sg.ReadToEnd(10_000, 10_000))
    assert play.member.assignment(10_000) == t(0, 2)
    assert play.member.assignment(10_001) == ()
    assert play.member.fence.stopped_by(10_001) is Stop.NO_REACTION


def test_an_acknowledgement_that_comes_after_the_refusal_meets_no_demand() -> None:
    """Two threads again: the refusal is read before the log's word for what was refused."""
    play = letting_go()
    back(play)
    play.answer(400, api.ReleaseResponse, error="COORDINATOR_NOT_AVAILABLE")
    play.say(sg.Acknowledged(410, "cafe-4", 60, 300))
    for now_ms in range(1_000, 10_001, 1_000):
        for out in play.say(sg.Elapsed(now_ms)):
            assert isinstance(out, sg.Send)
            if isinstance(out.request, api.Heartbeat):
                play.written(now_ms)
        play.say(sg.ReadToEnd(now_ms, now_ms))

    assert play.member.assignment(10_000) == t(0, 2)
    assert play.member.assignment(10_001) == ()


def test_a_release_that_is_refused_for_good_is_raised() -> None:
    play = letting_go()
    back(play)
    play.answer(400, api.ReleaseResponse, error="INVALID_REQUEST", message="No.")

    assert play.polled(500) == [lost(0, 2)]
    (out,) = play.say(sg.Polled(600))
    assert isinstance(out, sg.Raise)
    assert isinstance(out.error, GroupError)
    assert out.error.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("code", ErrorCode)
def test_a_release_that_is_refused_while_its_member_leaves_changes_nothing(code: ErrorCode) -> None:
    """The group emptied and became a classic one while the member was cut off; it is closed, and
    then both answers come. An exception here ended the transport of all members."""
    play = letting_go()
    play.commit(210, (1, 7), ticket=5)
    (rel,) = back(play)
    assert isinstance(rel, sg.Send)
    play.say(sg.Close(310))
    play.say(sg.CalledBack(320, Callback.REVOKED))
    assert play.member.state is State.LEAVING

    answer = play.response(rel.request, api.ReleaseResponse, error=code.name)
    outputs = play.say(sg.Received(400, answer))

    assert play.member.state is State.LEAVING
    told = [each for each in outputs if isinstance(each, sg.Answer)]
    assert [each.ticket for each in told] == ([] if code.retriable else [5])


def test_a_release_of_an_older_membership_is_not_said_again() -> None:
    """Its refusal under the new id would throw the new member out."""
    play = letting_go()
    play.commit(210, (1, 9), ticket=5)
    back(play)
    play.answer(400, api.ReleaseResponse, error="COORDINATOR_NOT_AVAILABLE")
    removed = api.MemberRemoved(group="orders", cause="r1-50", member=MEMBER, reason="expired")

    (ended,) = play.say(sg.Received(450, removed))
    assert isinstance(ended, sg.Answer)
    assert ended.ticket == 5
    assert ended.error is not None
    assert not [
        each
        for each in play.live(1_000, 3_000)
        if isinstance(each, sg.Send) and isinstance(each.request, api.Release)
    ]


def test_a_release_that_is_under_way_when_its_membership_ends_is_not_said_again_either() -> None:
    play = letting_go()
    play.commit(210, (1, 9), ticket=5)
    back(play)
    sent = play.sent[-1]
    play.say(
        sg.Received(
            350, api.MemberRemoved(group="orders", cause="r1-50", member=MEMBER, reason="expired")
        )
    )
    play.polled(360)
    again = picture((4,), member="app-AbCdEfGh-1-60", generation=4)
    play.answer(380, api.SubscribeResponse, **again)
    late = play.response(sent, api.ReleaseResponse, error="COORDINATOR_NOT_AVAILABLE")

    (ended,) = play.say(sg.Received(400, late))
    assert isinstance(ended, sg.Answer)
    assert ended.error is not None
    assert play.say(sg.Elapsed(2_000)) == []


def test_a_new_member_owes_nothing_of_what_the_old_one_owed() -> None:
    play = demanded()
    removed = api.MemberRemoved(group="orders", cause="r1-50", member=MEMBER, reason="expired")
    play.say(sg.Received(150, removed))
    play.polled(200)

    again = picture((4,), member="app-AbCdEfGh-1-60", generation=4)
    assert play.answer(300, api.SubscribeResponse, **again) == []
    assert play.say(sg.Polled(400)) == [assigned(4)]


# ---- too late: rules 10 and 11 ------------------------------------------------------------------


def slow(play: Play, until_ms: int) -> None:
    """Heartbeats and reading go on; the user does not poll."""
    for now_ms in range(1_000, until_ms + 1, 1_000):
        if play.say(sg.Elapsed(now_ms)):
            play.written(now_ms)
        play.say(sg.ReadToEnd(now_ms, now_ms))


def test_rule_10_stops_all_work_when_one_demand_is_not_met_in_time() -> None:
    """Others are given everything that this member has once it is removed, not t-1 alone."""
    play = demanded()
    slow(play, 10_000)

    assert play.member.assignment(10_000) == t(0, 1, 2)
    assert play.member.assignment(10_001) == ()
    assert play.member.fence.stopped_by(10_001) is Stop.NO_REACTION


def test_rule_10_an_acknowledged_release_ends_the_demand() -> None:
    play = letting_go()
    back(play)
    play.written(310)
    slow(play, 11_000)

    assert play.member.assignment(11_000) == t(0, 2)


def test_rule_10_an_answer_that_overtakes_the_acknowledgement_ends_it_too() -> None:
    """Two threads: one reads responses, the other hears what the log took."""
    play = letting_go()
    back(play)
    play.answer(310, api.ReleaseResponse, failed=())
    slow(play, 11_000)

    assert play.member.assignment(11_000) == t(0, 2)


def test_rule_10_a_release_that_the_log_did_not_take_ends_nothing() -> None:
    play = letting_go()
    back(play)
    for now_ms in range(1_000, 10_001, 1_000):
        for out in play.say(sg.Elapsed(now_ms)):
            assert isinstance(out, sg.Send)
            play.written(now_ms)
        play.say(sg.ReadToEnd(now_ms, now_ms))

    assert play.member.assignment(10_000) == t(0, 2)
    assert play.member.assignment(10_001) == ()


def test_rule_10_of_two_demands_the_unmet_one_stops_the_member() -> None:
    play = demanded()
    play.told(150, (0,), {44: (1,), 47: (2,)})
    assert play.polled(200) == [revoked(1), release("cafe-4", 44)]
    play.written(210)
    slow(play, 10_000)

    assert play.member.assignment(10_001) == ()
    assert play.member.fence.stopped_by(10_001) is Stop.NO_REACTION


def revive(play: Play, from_ms: int) -> list[sg.Output]:
    """A heartbeat is taken and judged, and everything is read (rule 11)."""
    outputs = play.say(sg.Elapsed(from_ms))
    play.written(from_ms + 100, produced_ms=from_ms)
    play.say(sg.Received(from_ms + 200, api.Progress(shard=1, offset=play.offset, time_ms=0)))
    play.say(sg.ReadToEnd(from_ms + 300, from_ms + 250))
    return outputs


def test_rule_11_who_stopped_with_an_open_demand_releases_it_before_it_works_again() -> None:
    """The machine slept. What was told before stands: t-0 and t-2 are its own, t-1 must go."""
    play = demanded()
    assert play.say(sg.Polled(9_000)) == [lost(0, 1, 2)]
    assert play.say(sg.CalledBack(9_001, Callback.LOST)) == [release("cafe-4", 44)]
    (beat,) = play.say(sg.Elapsed(9_100))
    assert isinstance(beat, sg.Send)
    play.say(sg.Acknowledged(9_200, beat.request.id, 60, 9_100))
    play.say(sg.Received(9_300, api.Progress(shard=1, offset=60, time_ms=0)))
    play.say(sg.ReadToEnd(9_400, 9_350))
    assert play.say(sg.Polled(9_500)) == []

    play.say(sg.Acknowledged(9_600, "cafe-4", 61, 9_001))
    play.say(sg.ReadToEnd(9_700, 9_650))

    assert play.say(sg.Polled(9_800)) == [assigned(0, 2)]


def test_rule_11_a_demand_that_is_read_after_the_stop_is_owed_too() -> None:
    """It could not hear; now it reads what was asked of it meanwhile."""
    play = Play()
    play.subscribed(0, 1)
    assert play.polled(9_000) == [lost(0, 1)]
    assert play.told(9_050, (0,), {44: (1,)}) == [release("cafe-4", 44)]
    revive(play, 9_100)
    assert play.say(sg.Polled(9_500)) == []

    play.say(sg.Acknowledged(9_600, "cafe-4", 61, 9_050))
    play.say(sg.ReadToEnd(9_700, 9_650))

    assert play.say(sg.Polled(9_800)) == [assigned(0)]


def test_while_the_user_is_told_of_a_loss_nothing_is_released() -> None:
    """He may still be at work in the callback; what is released may be somebody else's at once."""
    play = demanded()
    assert play.say(sg.Polled(9_000)) == [lost(0, 1, 2)]

    assert [
        each
        for each in revive(play, 9_100)
        if isinstance(each, sg.Send) and isinstance(each.request, api.Release)
    ] == []
    assert release("cafe-5", 44) in play.say(sg.CalledBack(9_900, Callback.LOST))


@pytest.mark.parametrize("at_ms", [200, 9_000])
def test_the_callback_of_a_demand_may_outlast_the_fence(at_ms: int) -> None:
    """What it committed while it might stands in the Release; the rest is lost."""
    play = letting_go()
    play.commit(210, (1, 9), ticket=5)

    written = back(play, at_ms + 100)
    assert written == [release("cafe-4", 44, (1, 9))]
    assert play.say(sg.Polled(9_200)) == [lost(0, 2)]

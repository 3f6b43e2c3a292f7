"""Into a server-assigned group, what is given there, and out again: one input, all its outputs."""

import pytest

from coordlib.client.groups.state import State
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Callback, TopicPartition
from coordlib.client.kit.fence import MemberFenced
from coordlib.core.wire import api
from coordlib.errors import ErrorCode, GroupError
from tests.client.groups.assigned.play import (
    MEMBER,
    WANTED,
    Play,
    assigned,
    commit,
    envelope,
    lost,
    picture,
    revoked,
    subscribe,
    t,
)
from tests.client.groups.classic.test_membership import stopped


def leave(id_: str, reason: str) -> sg.Send:
    members = (api.Leaver(MEMBER),)
    return sg.Send(api.LeaveGroup(**envelope(id_), members=members, reason=reason))


# ---- in ---------------------------------------------------------------------------------------


def test_a_member_subscribes_and_its_user_is_told_in_poll() -> None:
    """Nobody is waited for: one question, one answer."""
    play = Play()
    play.say(sg.ReadToEnd(0, 0))

    assert play.say(sg.WantSubscription(0, WANTED)) == [subscribe("cafe-2")]
    assert play.written(5) == []
    assert play.answer(10, api.SubscribeResponse, **picture((0, 1)), strategy="sticky") == []
    assert play.member.assignment(10) == ()
    assert play.say(sg.Polled(20)) == [assigned(0, 1)]
    assert play.say(sg.CalledBack(21, Callback.ASSIGNED)) == []

    assert play.member.assignment(21) == t(0, 1)
    assert (play.member.member, play.member.generation) == (MEMBER, 1)
    assert play.member.strategy == "sticky"
    assert play.member.held.fence_token == 40
    assert play.member.fence_of(TopicPartition("t", 1)) == 40
    assert play.member.fence_of(TopicPartition("t", 2)) is None


def test_a_newcomer_may_get_nothing_at_first_and_is_told_so_once() -> None:
    """All is somebody else's; what that one lets go of comes by notice."""
    play = Play()
    play.subscribed()
    assert play.say(sg.Polled(100)) == []

    assert play.told(200, (3,), fence=45, generation=2) == []

    assert play.say(sg.Polled(300)) == [assigned(3)]


def test_what_is_new_is_told_beside_what_was_kept() -> None:
    play = Play()
    play.subscribed(0)
    play.told(100, (0, 1), generation=2)

    assert play.say(sg.Polled(200)) == [assigned(1)]
    assert play.member.assignment(200) == t(0, 1)
    assert play.member.generation == 2


def test_a_picture_without_news_calls_nobody() -> None:
    """Others came and went; this member's share is what it was."""
    play = Play()
    play.subscribed(0)
    play.told(100, (0,), generation=7)

    assert play.say(sg.Polled(200)) == []
    assert play.member.generation == 7


def test_heartbeats_and_commits_carry_the_newest_generation_that_was_read() -> None:
    play = Play()
    play.subscribed(0)
    play.told(100, (0,), generation=7)

    (beat,) = play.say(sg.Elapsed(3_000))
    assert beat == sg.Send(api.Heartbeat(**envelope("cafe-4"), generation=7, member=MEMBER))
    assert play.commit(3_100, (0, 9)) == [commit("cafe-5", (0, 9), generation=7)]


def test_rule_8_counts_the_answered_subscribe_as_the_first_heartbeat() -> None:
    """It lay in the producer for seconds while the broker was away."""
    play = Play()
    play.say(sg.ReadToEnd(0, 0))
    play.say(sg.WantSubscription(0, WANTED))
    play.written(5_000, produced_ms=0)
    play.say(sg.ReadToEnd(5_000, 5_000))
    play.answer(5_000, api.SubscribeResponse, **picture((0,)))
    play.polled(5_000)

    assert play.member.assignment(6_000) == t(0)
    assert play.member.assignment(6_001) == ()


def test_a_notice_for_another_or_an_older_member_changes_nothing() -> None:
    """Many members of a group read one response partition."""
    play = Play()
    play.subscribed(0)

    assert play.told(100, (1,), {41: (0,)}, member="app-AbCdEfGh-1-7") == []

    assert play.say(sg.Polled(200)) == []
    assert play.member.assignment(200) == t(0)


def test_a_late_duplicate_of_an_answer_changes_nothing() -> None:
    """The Subscribe was written twice, and is answered twice."""
    play = Play()
    play.subscribed(0)
    first = play.sent[0]
    play.told(100, (0, 1), generation=2)

    late = play.response(first, api.SubscribeResponse, **picture((), member="app-AbCdEfGh-1-99"))
    assert play.say(sg.Received(200, late)) == []

    assert play.member.member == MEMBER
    assert play.say(sg.Polled(300)) == [assigned(1)]


# ---- other wishes -----------------------------------------------------------------------------


def test_another_subscription_goes_out_under_the_member_id_and_takes_nothing_away() -> None:
    """The user works on; what must go is demanded by the answer or a later notice."""
    play = Play()
    play.subscribed(0, 1)

    both = sg.Subscription(topics=("t", "u"), pattern="v.*", exclude="vx", capacity=3)
    asked = play.say(sg.WantSubscription(100, both))

    assert asked == [
        subscribe(
            "cafe-4",
            MEMBER,
            1,
            topics=("t", "u"),
            pattern="v.*",
            exclude="vx",
            capacity=3,
            reason="subscription changed",
        )
    ]
    assert play.say(sg.Polled(200)) == []
    assert play.member.assignment(200) == t(0, 1)
    play.written(250)
    play.answer(300, api.SubscribeResponse, **picture((0,), {44: (1,)}, generation=2))
    assert play.say(sg.Polled(400)) == [revoked(1)]


def test_a_change_of_mind_waits_for_the_answer_to_the_one_before() -> None:
    """A Subscribe that names an older generation than its predecessor made would count as late."""
    play = Play()
    play.subscribed(0)
    play.say(sg.WantSubscription(100, sg.Subscription(topics=("u",))))

    assert play.say(sg.WantSubscription(110, sg.Subscription(topics=("v",)))) == []

    assert play.answer(200, api.SubscribeResponse, **picture((), generation=2)) == [
        subscribe("cafe-5", MEMBER, 2, topics=("v",), reason="subscription changed")
    ]


def test_the_same_subscription_again_is_no_request() -> None:
    play = Play()
    play.subscribed(0)

    assert play.say(sg.WantSubscription(100, WANTED)) == []


# ---- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_one_who_is_refused_for_now_asks_again_under_another_id(error: str) -> None:
    play = Play()
    play.say(sg.WantSubscription(0, WANTED))
    assert play.answer(100, api.SubscribeResponse, error=error) == []

    assert play.say(sg.Elapsed(299)) == []
    assert play.say(sg.Elapsed(300)) == [subscribe("cafe-3")]


def test_a_wish_that_was_overtaken_is_asked_for_with_the_newest_generation() -> None:
    """The coordinator has judged a newer Subscribe of this member; nothing is let go of for it."""
    play = Play()
    play.subscribed(0, 1)
    play.say(sg.WantSubscription(100, sg.Subscription(topics=("u",))))
    play.told(150, (0, 1), generation=5)

    assert play.answer(200, api.SubscribeResponse, error="REBALANCE_IN_PROGRESS") == []

    assert play.member.assignment(300) == t(0, 1)
    assert play.say(sg.Elapsed(400)) == [
        subscribe("cafe-5", MEMBER, 5, topics=("u",), reason="subscription changed")
    ]


def test_a_subscribe_that_was_not_written_is_sent_again_under_its_id() -> None:
    """It may have been written after all; under one id both are one member."""
    play = Play()
    play.say(sg.WantSubscription(0, WANTED))
    play.say(sg.NotWritten(100, "cafe-2", "timed out"))

    assert play.say(sg.Elapsed(300)) == [subscribe("cafe-2")]


def test_a_subscribe_without_an_answer_is_sent_again() -> None:
    """The log may have lost it, and a newcomer writes nothing else.  # INV-145"""
    play = Play()
    play.say(sg.WantSubscription(0, WANTED))
    play.written(10)
    play.say(sg.Polled(6_000))

    assert play.say(sg.Elapsed(11_999)) == []
    assert play.say(sg.Elapsed(12_000)) == [subscribe("cafe-2")]


@pytest.mark.parametrize("is_member", [False, True], ids=["the first", "a later one"])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ],
    ids=lambda code: code.name,
)
def test_a_wish_that_cannot_be_met_is_raised_by_every_poll(
    code: ErrorCode, is_member: bool
) -> None:
    play = Play()
    if is_member:
        play.subscribed(0)
    play.say(sg.WantSubscription(100, sg.Subscription(pattern="(")))
    play.answer(200, api.SubscribeResponse, error=code.name, message="Say something else.")

    if is_member:
        assert play.polled(300) == [lost(0)]
    for now_ms in (400, 500):
        (out,) = play.say(sg.Polled(now_ms))
        assert isinstance(out, sg.Raise)
        assert isinstance(out.error, GroupError)
        assert (out.error.code, out.error.hint) == (code, "Say something else.")


@pytest.mark.parametrize("error", ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"])
@pytest.mark.parametrize("what", ["heartbeat", "commit", "subscribe", "release"])
def test_one_whom_the_coordinator_does_not_know_has_lost_everything(what: str, error: str) -> None:
    """It was away for longer than its session, and the group went on."""
    play = Play()
    play.subscribed(0, 1)
    match what:
        case "heartbeat":
            play.say(sg.Elapsed(3_000))
            kind: type[api.Response] = api.HeartbeatResponse
        case "commit":
            play.commit(3_000, (0, 9))
            kind = api.OffsetCommitResponse
        case "subscribe":
            play.say(sg.WantSubscription(3_000, sg.Subscription(topics=("u",))))
            kind = api.SubscribeResponse
        case _:
            play.told(3_000, (0,), {44: (1,)})
            play.polled(3_000)
            kind = api.ReleaseResponse
    play.answer(3_100, kind, error=error)

    assert play.member.assignment(3_100) == ()
    assert play.say(sg.Polled(3_200)) == [lost(*((0,) if what == "release" else (0, 1)))]
    again = play.say(sg.CalledBack(3_300, Callback.LOST))
    assert [type(each.request) for each in again if isinstance(each, sg.Send)] == [
        api.LeaveGroup,
        api.Subscribe,
    ]
    joined = play.sent[-1]
    assert isinstance(joined, api.Subscribe)
    assert (joined.member, joined.generation) == ("", -1)


def test_a_removed_member_says_that_it_stopped_and_joins_as_a_new_one() -> None:
    """Somebody waits for its word, and may take over as soon as its user has let go."""
    play = Play()
    play.subscribed(0)
    removed = api.MemberRemoved(group="orders", cause="r1-50", member=MEMBER, reason="operator")

    assert play.say(sg.Received(100, removed)) == []
    assert play.member.assignment(100) == ()
    assert play.say(sg.Polled(200)) == [lost(0)]
    assert play.say(sg.CalledBack(210, Callback.LOST)) == [stopped("cafe-4"), subscribe("cafe-5")]


def test_a_refusal_that_belongs_to_an_older_membership_changes_nothing() -> None:
    play = Play()
    play.subscribed(0)
    (beat,) = play.say(sg.Elapsed(3_000))
    assert isinstance(beat, sg.Send)
    removed = api.MemberRemoved(group="orders", cause="r1-50", member=MEMBER, reason="expired")
    play.say(sg.Received(3_100, removed))
    play.polled(3_200)
    play.written(3_300)
    play.say(sg.ReadToEnd(3_300, 3_300))
    again = picture((1,), member="app-AbCdEfGh-1-60", generation=4)
    play.answer(3_400, api.SubscribeResponse, **again)
    play.polled(3_500)

    late = play.response(beat.request, api.HeartbeatResponse, error="UNKNOWN_MEMBER_ID")
    play.say(sg.Received(3_600, late))

    assert play.member.assignment(3_600) == t(1)


def test_a_stopped_member_cannot_commit() -> None:
    play = Play()
    play.subscribed(0)

    (out,) = play.commit(6_001, (0, 9))

    assert isinstance(out, sg.Answer)
    assert isinstance(out.error, MemberFenced)


# ---- out --------------------------------------------------------------------------------------


def test_a_member_that_is_not_polled_leaves_and_comes_back_as_a_new_one() -> None:
    """max.poll.interval.ms: the process lives, but its user's thread is stuck."""
    play = Play()
    play.subscribed(0)
    for now_ms in range(1_000, 12_000, 1_000):
        if play.say(sg.Elapsed(now_ms)):
            play.written(now_ms)
        play.say(sg.ReadToEnd(now_ms, now_ms))

    (left,) = play.say(sg.Elapsed(12_000))
    assert isinstance(left, sg.Send)
    assert isinstance(left.request, api.LeaveGroup)
    assert left.request.members == (api.Leaver(MEMBER),)
    assert play.member.assignment(12_000) == ()
    assert play.say(sg.Polled(21_000)) == [lost(0)]
    assert play.say(sg.CalledBack(21_001, Callback.LOST)) == [subscribe("cafe-8")]


def test_close_lets_go_of_everything_then_leaves() -> None:
    play = Play()
    play.subscribed(0, 1)
    play.told(50, (0,), {44: (1,)})

    assert play.say(sg.Close(100)) == [revoked(0, 1)]
    assert play.commit(105, (0, 7), (1, 8)) == [commit("cafe-4", (0, 7), (1, 8))]
    assert play.say(sg.CalledBack(110, Callback.REVOKED)) == [leave("cafe-5", "closed")]
    assert play.written(120) == []
    play.say(sg.Received(130, play.response(play.sent[-2], api.OffsetCommitResponse, failed=())))
    assert play.member.state is State.LEFT


def test_close_before_the_answer_leaves_under_the_id_that_the_log_gave() -> None:
    play = Play()
    play.say(sg.WantSubscription(0, WANTED))
    assert play.say(sg.Close(10)) == []

    assert play.written(20) == [leave("cafe-3", "closed")]


def test_close_before_the_acknowledgement_leaves_under_the_id_of_the_answer() -> None:
    """The reader is quicker than the acknowledgement."""
    play = Play()
    play.say(sg.WantSubscription(0, WANTED))
    play.say(sg.Close(10))

    assert play.answer(20, api.SubscribeResponse, **picture(())) == [leave("cafe-3", "closed")]


def test_unsubscribe_lets_go_then_leaves_and_may_come_back() -> None:
    play = Play()
    play.subscribed(0)
    assert play.say(sg.Unsubscribe(100)) == []
    assert play.say(sg.Polled(200)) == [revoked(0)]
    assert play.say(sg.CalledBack(210, Callback.REVOKED)) == [leave("cafe-4", "unsubscribed")]
    assert play.say(sg.Polled(300)) == []

    assert play.say(sg.WantSubscription(400, WANTED)) == [subscribe("cafe-5")]

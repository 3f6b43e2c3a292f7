"""Commits that the coordinator has put off, when a generation, a membership or a hold ends."""

from typing import Any

import pytest

from coordlib.client.groups import member as shell_member
from coordlib.client.groups.state import State
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Callback
from coordlib.core.wire import api
from coordlib.errors import CannotReach, ErrorCode, GroupError
from tests.client import cooperative
from tests.client.groups.assigned.play import Play as AssignedPlay
from tests.client.groups.classic.test_membership import (
    MEMBER,
    T0,
    Play,
    join_fields,
    notice,
    sync_fields,
)
from tests.client.world import World

THROTTLED: dict[str, Any] = {"error": "THROTTLING_QUOTA_EXCEEDED", "throttle_time_ms": 1_000}


def commit(play: Play, now_ms: int, ticket: int, at: int = 1, **more: Any) -> list[sg.Output]:
    return play.say(sg.CommitOffsets(now_ms, ticket, (api.CommittedOffset("t", 0, at),), **more))


def throttle_request(play: Play, now_ms: int = 100) -> api.Request:
    """A commit of t-0 was asked, and throttled."""
    commit(play, now_ms, 1)
    asked = play.sent[-1]
    assert play.answer(now_ms, api.OffsetCommitResponse, **THROTTLED) == []
    return asked


def kinds(outputs: list[sg.Output]) -> list[str]:
    return [type(each.request if isinstance(each, sg.Send) else each).__name__ for each in outputs]


def refusals(outputs: list[sg.Output]) -> list[ErrorCode]:
    errors = [each.error for each in outputs if isinstance(each, sg.Answer)]
    return [each.code for each in errors if isinstance(each, GroupError)]


def test_one_ends_with_its_generation() -> None:
    """Its repeat would be refused, as one of a generation that this member has left."""
    play = Play(assignor=cooperative.assignor())
    play.stable()
    throttle_request(play)
    assert kinds(play.say(sg.Received(110, notice()))) == ["OffsetCommit", "JoinGroup"]
    again, join = play.sent[-2:]
    throttled = play.response(again, api.OffsetCommitResponse, **THROTTLED)
    assert play.say(sg.Received(120, throttled)) == []
    joined = play.response(join, api.JoinGroupResponse, **join_fields(generation=2))

    outputs = play.say(sg.Received(200, joined))

    assert refusals(outputs) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    play.answer(300, api.SyncGroupResponse, **sync_fields(0))
    assert "OffsetCommit" not in kinds(play.say(sg.Elapsed(2_000)))


@pytest.mark.parametrize("code", ["ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"])
def test_the_refusal_of_a_repeat_concerns_the_generation_that_asked_first(code: str) -> None:
    """Its id is younger than the generation that the member has by now. A word about writes is
    repeated after the membership that wrote has ended."""
    play = Play(assignor=cooperative.assignor())
    play.stable()
    play.say(sg.Decide(100, 1, "r1-9", "commit", MEMBER, 1))
    play.answer(100, api.DecidePendingResponse, error="COORDINATOR_LOAD_IN_PROGRESS")
    play.say(sg.Received(110, notice()))
    play.answer(120, api.JoinGroupResponse, **join_fields(generation=2))
    play.answer(130, api.SyncGroupResponse, **sync_fields(0))
    assert kinds(play.say(sg.Elapsed(400))) == ["DecidePending"]

    play.answer(410, api.DecidePendingResponse, error=code)

    assert play.member.state is State.STABLE
    assert T0 in play.member.assignment(410)


def test_one_of_an_older_generation_is_not_put_off() -> None:
    play = Play(assignor=cooperative.assignor())
    play.stable()
    commit(play, 100, 1)
    asked = play.sent[-1]
    play.say(sg.Received(110, notice()))
    play.answer(200, api.JoinGroupResponse, **join_fields(generation=2))

    late = play.response(asked, api.OffsetCommitResponse, **THROTTLED)

    assert refusals(play.say(sg.Received(210, late))) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]


def test_one_ends_with_its_membership() -> None:
    play = Play()
    play.stable()
    throttle_request(play)
    play.say(sg.Elapsed(3_000))
    again = next(each for each in reversed(play.sent) if isinstance(each, api.OffsetCommit))
    assert (
        play.say(sg.Received(3_010, play.response(again, api.OffsetCommitResponse, **THROTTLED)))
        == []
    )
    beat = next(each for each in play.sent if isinstance(each, api.Heartbeat))

    out = play.response(beat, api.HeartbeatResponse, error="UNKNOWN_MEMBER_ID")
    outputs = play.say(sg.Received(3_100, out))

    assert refusals(outputs) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]


def test_an_eager_rejoin_stands_behind_it() -> None:
    play = Play()
    play.stable()
    throttle_request(play)
    play.say(sg.Received(110, notice()))
    play.say(sg.Polled(120))

    assert kinds(play.say(sg.CalledBack(130, Callback.REVOKED))) == ["OffsetCommit", "JoinGroup"]


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_leave_stands_behind_it(is_closed: bool) -> None:
    play = Play()
    play.stable()
    throttle_request(play)
    play.say(sg.Close(110) if is_closed else sg.Unsubscribe(110))
    if not is_closed:
        play.say(sg.Polled(115))

    sent = kinds(play.say(sg.CalledBack(120, Callback.REVOKED)))

    assert sent == ["OffsetCommit", "LeaveGroup"]
    again = play.sent[-2]
    throttled = play.response(again, api.OffsetCommitResponse, **THROTTLED)
    outputs = play.say(sg.Received(140, throttled))
    assert refusals(outputs) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert "OffsetCommit" not in kinds(play.say(sg.Elapsed(5_000)))


def test_a_release_stands_behind_it() -> None:
    play = AssignedPlay()
    play.subscribed(0, 1)
    throttle_request(play)
    play.told(110, (1,), {44: (0,)})

    assert kinds(play.polled(200)) == ["Call", "OffsetCommit", "Release"]


def repeated(play: Play) -> list[sg.Output]:
    """A waited commit under ticket 1 was throttled; another thread's came after it."""
    commit(play, 100, 1, is_waited=True)
    assert refusals(play.answer(100, api.OffsetCommitResponse, **THROTTLED))
    commit(play, 200, 2, at=9)
    return commit(play, 300, 3, is_waited=True, first=1)


def test_the_repeat_of_a_waited_commit_waits_for_a_later_one_and_goes_on_if_it_is_refused() -> None:
    play = Play()
    play.stable()
    assert refusals(repeated(play)) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    play.answer(310, api.OffsetCommitResponse, error="COORDINATOR_NOT_AVAILABLE")

    assert kinds(commit(play, 400, 4, is_waited=True, first=1)) == ["OffsetCommit"]


def test_the_repeat_of_a_waited_commit_does_not_overtake_a_later_one() -> None:
    """Another thread's: the position would be set back."""
    play = Play()
    play.stable()
    repeated(play)
    play.answer(310, api.OffsetCommitResponse, failed=())

    assert commit(play, 400, 4, is_waited=True, first=1) == [sg.Answer(4)]


def test_the_repeat_of_a_waited_commit_does_not_follow_one_that_may_be_in_the_log() -> None:
    """Nor is its caller told that it stands."""
    play = Play()
    play.stable()
    repeated(play)
    play.say(sg.NotWritten(310, play.sent[-1].id, "timed out"))

    (answer,) = commit(play, 400, 4, is_waited=True, first=1)

    assert isinstance(answer, sg.Answer)
    assert isinstance(answer.error, CannotReach)


def test_the_repeat_of_a_waited_commit_does_not_overtake_one_that_a_release_would_carry() -> None:
    play = AssignedPlay()
    play.subscribed(0, 1)
    commit(play, 50, 1, is_waited=True)
    play.answer(60, api.OffsetCommitResponse, **THROTTLED)
    play.told(100, (1,), {44: (0,)})
    play.say(sg.Polled(200))
    assert commit(play, 210, 2, at=9) == []

    assert kinds(commit(play, 220, 3, is_waited=True, first=1)) == ["OffsetCommit", "Answer"]


def test_commit_repeats_under_the_ticket_of_its_first_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that its repeats keep their place before what other threads have committed since."""
    world = World()
    (user,) = world.join("app")
    handle, asked = user.member._machine.handle, list[sg.CommitOffsets]()

    def throttling(event: sg.Input) -> list[sg.Output]:
        if not isinstance(event, sg.CommitOffsets):
            return handle(event)
        asked.append(event)
        refusal = GroupError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "group orders", "")
        return [sg.Answer(event.ticket, error=None if len(asked) == 3 else refusal)]

    monkeypatch.setattr(user.member._machine, "handle", throttling)
    monkeypatch.setattr(shell_member, "COMMIT_PUT_OFF_S", 0.0)
    user.member.commit({T0: 1})

    assert [each.first for each in asked] == [0, asked[0].ticket, asked[0].ticket]

"""A member's life as scenarios: one input, all its outputs. S = 8 s, RT = 12 s, heartbeat 3 s."""

from dataclasses import replace
from typing import Any

from coordlib.client.groups.assignors import BUILT_IN, Assignor
from coordlib.client.groups.classic import ClassicMachine
from coordlib.client.groups.state import State
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Callback, TopicPartition
from coordlib.client.kit.fence import MemberFenced, Stop
from coordlib.client.kit.requests import Identity, Timing
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import CoordError, ErrorCode, GroupError

IDENTITY = Identity("orders", "app", "cafe", shard=1, reply=3, incarnation="AbCdEfGh")
MEMBER = "app-AbCdEfGh-1-40"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Play:
    """Feeds a member, and keeps what it was told to send."""

    def __init__(self, instance: str | None = None, assignor: Assignor | None = None) -> None:
        identity = replace(IDENTITY, instance=instance)
        assignors = (assignor or BUILT_IN["range"](),)
        self.member = ClassicMachine(identity, Timing(8_000, 12_000, 3_000), assignors)
        self.sent: list[api.Request] = []
        self.offset = 39

    def say(self, event: sg.Input) -> list[sg.Output]:
        outputs = self.member.handle(event)
        self.sent += [each.request for each in outputs if isinstance(each, sg.Send)]
        return outputs

    def written(self, now_ms: int, produced_ms: int | None = None) -> list[sg.Output]:
        """The newest request is acknowledged."""
        self.offset += 1
        produced_ms = now_ms if produced_ms is None else produced_ms
        return self.say(sg.Acknowledged(now_ms, self.sent[-1].id, self.offset, produced_ms))

    def answer(self, now_ms: int, kind: type[api.Response], **fields: Any) -> list[sg.Output]:
        """The newest request is answered."""
        return self.say(sg.Received(now_ms, self.response(self.sent[-1], kind, **fields)))

    def response(self, to: api.Request, kind: type[api.Response], **fields: Any) -> Any:
        return kind(id=to.id, client="app", group="orders", cause=f"r1-{self.offset}", **fields)

    def joined(self, now_ms: int = 0, generation: int = 1, leader: str = "other") -> None:
        """From nothing to SYNCING as a follower."""
        self.say(sg.ReadToEnd(now_ms, now_ms))
        self.say(sg.WantTopics(now_ms, ("t",)))
        self.written(now_ms)
        self.answer(now_ms, api.JoinGroupResponse, **join_fields(generation, leader))

    def stable(self, now_ms: int = 0) -> None:
        """Working, with t-0 and t-1."""
        self.joined(now_ms)
        self.written(now_ms)
        self.answer(now_ms, api.SyncGroupResponse, **sync_fields())
        self.say(sg.Polled(now_ms))
        self.say(sg.CalledBack(now_ms, Callback.ASSIGNED))

    def live(self, from_ms: int, to_ms: int) -> list[sg.Output]:
        """Heartbeats taken, everything read, the user polling, once a second."""
        outputs = []
        for now_ms in range(from_ms, to_ms + 1, 1_000):
            ticked = self.say(sg.Elapsed(now_ms))
            if ticked:
                self.written(now_ms)
            outputs += ticked + self.say(sg.ReadToEnd(now_ms, now_ms))
            outputs += self.say(sg.Polled(now_ms))
        return outputs


def join_fields(generation: int = 1, leader: str = "other", **more: Any) -> dict[str, Any]:
    return {
        "generation": generation,
        "protocol_type": "consumer",
        "protocol": "range",
        "leader": leader,
        "member": MEMBER,
        "members": (),
        "skip_assignment": False,
    } | more


def sync_fields(*partitions: int) -> dict[str, Any]:
    given = cp.Assignment(version=1, partitions={"t": partitions or (0, 1)})
    return {"assignment": cp.encode_assignment(given), "fence": 77}


def notice(generation: int = 1) -> api.RebalanceInProgress:
    return api.RebalanceInProgress(group="orders", cause="r1-50", generation=generation)


def join(id_: str, member: str = "", generation: int = -1, reason: str | None = None) -> sg.Send:
    metadata = cp.encode_subscription(cp.Subscription(topics=("t",)))
    return sg.Send(
        api.JoinGroup(
            v=1,
            id=id_,
            client="app",
            group="orders",
            reply=3,
            member=member,
            generation=generation,
            session_timeout_ms=8_000,
            rebalance_timeout_ms=12_000,
            protocol_type="consumer",
            protocols=(api.Protocol(name="range", metadata=metadata),),
            reason=reason,
        )
    )


def sync(id_: str, *rows: api.MemberAssignment, generation: int = 1) -> sg.Send:
    return sg.Send(
        api.SyncGroup(
            v=1,
            id=id_,
            client="app",
            group="orders",
            reply=3,
            generation=generation,
            member=MEMBER,
            protocol_type="consumer",
            protocol="range",
            assignments=rows,
        )
    )


def stopped(id_: str, member: str = MEMBER, instance: str | None = None) -> sg.Send:
    """What a member says of itself when it is told that it is out, and its user has let go."""
    return sg.Send(
        api.LeaveGroup(
            v=1,
            id=id_,
            client="app",
            group="orders",
            reply=3,
            members=(api.Leaver(member, instance),),
            reason="stopped, as it is out of the group",
            remain=instance is not None,
        )
    )


def test_a_follower_joins_syncs_and_tells_its_user_in_poll() -> None:
    play = Play()
    play.say(sg.ReadToEnd(0, 0))

    assert play.say(sg.WantTopics(0, ("t",))) == [join("cafe-2")]
    assert play.written(5) == []
    assert play.answer(10, api.JoinGroupResponse, **join_fields()) == [sync("cafe-4")]
    assert play.written(12) == []
    assert play.answer(20, api.SyncGroupResponse, **sync_fields()) == []
    assert play.member.assignment(20) == ()
    assert play.say(sg.Polled(30)) == [sg.Call(Callback.ASSIGNED, (T0, T1))]
    assert play.say(sg.CalledBack(31, Callback.ASSIGNED)) == []

    assert play.member.assignment(31) == (T0, T1)
    assert (play.member.member, play.member.generation) == (MEMBER, 1)
    assert play.member.held.fence_token == 77


def test_what_a_leader_of_other_code_names_twice_is_owned_once() -> None:
    """The leader checks what its assignor gives; one of an older version lets t-0 pass twice."""
    play = Play()
    play.joined()
    play.written(0)
    play.answer(0, api.SyncGroupResponse, **sync_fields(0, 0, 1))

    assert sg.Call(Callback.ASSIGNED, (T0, T1)) in play.say(sg.Polled(0))


def test_the_leader_divides_and_sends_everybodys_share() -> None:
    play = Play()
    play.say(sg.ReadToEnd(0, 0))
    play.say(sg.WantTopics(0, ("t",)))
    others = (api.JoinedMember(MEMBER, None, b""), api.JoinedMember("b", None, b""))
    fields = join_fields(leader=MEMBER, members=others)

    assert play.answer(10, api.JoinGroupResponse, **fields) == [
        sg.Divide(1, "range", others, member=MEMBER)
    ]
    row = api.MemberAssignment(member="b", assignment=b"x")
    assert play.say(sg.Divided(15, 1, (row,))) == [sync("cafe-4", row)]


def test_metadata_that_cannot_be_read_is_read_again_later() -> None:
    """The leader's broker is away for a moment; the group waits for its SyncGroup."""
    play = Play()
    play.say(sg.WantTopics(0, ("t",)))
    play.answer(10, api.JoinGroupResponse, **join_fields(leader=MEMBER))

    assert play.say(sg.NotDivided(20, 1, "timed out")) == []
    assert play.member.wake_ms() == 220
    assert play.say(sg.Elapsed(220)) == [sg.Divide(1, "range", (), member=MEMBER)]


def test_a_rebalance_waits_for_the_user_to_let_go() -> None:
    """Commit, then let go: the commit stands before the rejoin in the log."""
    play = Play()
    play.stable()

    assert play.say(sg.Received(100, notice())) == []
    assert play.say(sg.Polled(200)) == [sg.Call(Callback.REVOKED, (T0, T1))]
    row = api.CommittedOffset(topic="t", partition=0, offset=9)
    commit = api.OffsetCommit(
        v=1,
        id="cafe-5",
        client="app",
        group="orders",
        reply=3,
        generation=1,
        member=MEMBER,
        offsets=(row,),
    )
    assert play.say(sg.CommitOffsets(210, 1, (row,))) == [sg.Send(commit)]
    assert play.say(sg.CalledBack(220, Callback.REVOKED)) == [
        join("cafe-6", MEMBER, 1, "group is rebalancing")
    ]
    assert play.member.assignment(220) == ()
    assert play.say(sg.Polled(230)) == []

    answered = play.response(commit, api.OffsetCommitResponse, failed=())
    assert play.say(sg.Received(240, answered)) == [sg.Answer(1)]


def test_a_member_without_partitions_rejoins_without_its_user() -> None:
    play = Play()
    play.joined()
    play.answer(0, api.SyncGroupResponse, assignment=b"", fence=77)
    assert play.say(sg.Polled(1)) == [sg.Call(Callback.ASSIGNED, ())]
    play.say(sg.CalledBack(2, Callback.ASSIGNED))

    assert play.say(sg.Received(100, notice())) == [
        join("cafe-5", MEMBER, 1, "group is rebalancing")
    ]


def test_a_notice_of_another_generation_is_old_news() -> None:
    play = Play()
    play.stable()

    assert play.say(sg.Received(100, notice(generation=0))) == []
    assert play.say(sg.Polled(200)) == []


def test_heartbeats_go_one_at_a_time() -> None:
    """A broker that is away must not find a queue of old signs of life when it comes back."""
    play = Play()
    play.stable()
    beat = api.Heartbeat(
        v=1, id="cafe-5", client="app", group="orders", reply=3, generation=1, member=MEMBER
    )

    assert play.say(sg.Elapsed(2_999)) == []
    assert play.say(sg.Elapsed(3_000)) == [sg.Send(beat)]
    assert play.say(sg.Elapsed(6_000)) == []
    play.written(6_100, produced_ms=3_000)
    assert len(play.say(sg.Elapsed(6_200))) == 1


def test_one_who_cannot_read_stops_heartbeating() -> None:
    """Rule 9: else the group would wait for ever for a member that cannot hear."""
    play = Play()
    play.stable()
    for now_ms in (3_000, 6_000, 9_000):
        assert len(play.say(sg.Elapsed(now_ms))) == 1
        play.written(now_ms)

    assert play.say(sg.Elapsed(10_001)) == []
    play.say(sg.ReadToEnd(11_000, 10_900))
    play.say(sg.Polled(11_000))
    assert len(play.say(sg.Elapsed(12_000))) == 1


def test_a_fenced_member_loses_and_gets_back_what_the_group_kept_for_it() -> None:
    """Rule 11: Kafka was away for 8 s, the coordinator's clock stood still, nobody took over."""
    play = Play()
    play.stable()
    play.live(1_000, 3_000)

    assert play.member.assignment(9_500) == ()
    assert play.say(sg.Polled(9_500)) == [sg.Call(Callback.LOST, (T0, T1))]
    assert play.say(sg.CalledBack(9_501, Callback.LOST)) == []
    refused = play.say(sg.CommitOffsets(9_502, 4, ()))
    assert [type(each.error) for each in refused if isinstance(each, sg.Answer)] == [MemberFenced]
    assert play.member.fence.stopped_by(9_502) is Stop.NO_SIGN_OF_LIFE

    assert len(play.say(sg.Elapsed(9_600))) == 1
    play.written(9_700, produced_ms=9_600)
    progress = api.Progress(shard=1, offset=play.offset, time_ms=0)
    play.say(sg.Received(9_800, progress))
    assert play.say(sg.Polled(9_850)) == []
    play.say(sg.ReadToEnd(9_900, 9_850))

    assert play.say(sg.Polled(9_950)) == [sg.Call(Callback.ASSIGNED, (T0, T1))]


def test_a_user_who_reacts_too_late_has_lost_and_rejoins() -> None:
    """Rule 10: the handler took longer than others were ready to wait."""
    play = Play()
    play.stable()
    play.say(sg.Received(100, notice()))
    for now_ms in range(1_000, 11_000, 1_000):
        if play.say(sg.Elapsed(now_ms)):
            play.written(now_ms)
        play.say(sg.ReadToEnd(now_ms, now_ms))

    assert play.say(sg.Polled(10_500)) == [sg.Call(Callback.LOST, (T0, T1))]
    rejoin = play.say(sg.CalledBack(10_600, Callback.LOST))
    assert [(each.request.member, each.request.generation) for each in rejoin] == [(MEMBER, 1)]  # type: ignore[union-attr]


def test_a_member_that_is_not_polled_leaves() -> None:
    """max.poll.interval.ms: the process lives, but its user's thread is stuck."""
    play = Play()
    play.stable()
    for now_ms in range(1_000, 12_000, 1_000):
        if play.say(sg.Elapsed(now_ms)):
            play.written(now_ms)
        play.say(sg.ReadToEnd(now_ms, now_ms))

    left = play.say(sg.Elapsed(12_000))
    assert [each.request.members for each in left] == [(api.Leaver(member=MEMBER),)]  # type: ignore[union-attr]
    assert play.member.assignment(12_000) == ()
    assert play.say(sg.Elapsed(20_000)) == []
    assert play.say(sg.Polled(21_000)) == [sg.Call(Callback.LOST, (T0, T1))]
    assert play.say(sg.CalledBack(21_001, Callback.LOST)) == [join("cafe-9")]


def test_a_removed_member_loses_everything_and_joins_as_a_new_one() -> None:
    play = Play()
    play.stable()
    removed = api.MemberRemoved(group="orders", cause="r1-50", member=MEMBER, reason="expired")

    assert play.say(sg.Received(100, removed)) == []
    assert play.member.assignment(100) == ()
    assert play.say(sg.Polled(200)) == [sg.Call(Callback.LOST, (T0, T1))]
    assert play.say(sg.CalledBack(210, Callback.LOST)) == [stopped("cafe-5"), join("cafe-6")]


def test_another_members_removal_is_not_ours() -> None:
    play = Play()
    play.stable()
    play.say(
        sg.Received(100, api.MemberRemoved(group="orders", cause="r", member="b", reason="left"))
    )

    assert play.member.assignment(100) == (T0, T1)


def test_a_refused_heartbeat_of_this_generation_loses_everything() -> None:
    play = Play()
    play.stable()
    play.say(sg.Elapsed(3_000))

    play.answer(3_100, api.HeartbeatResponse, error="UNKNOWN_MEMBER_ID")

    assert play.say(sg.Polled(3_200)) == [sg.Call(Callback.LOST, (T0, T1))]


def test_a_refusal_that_belongs_to_an_older_generation_changes_nothing() -> None:
    """A heartbeat overtaken by a rebalance is answered after the new assignment was read."""
    play = Play()
    play.stable()
    (beat,) = play.say(sg.Elapsed(3_000))
    assert isinstance(beat, sg.Send)
    play.say(sg.ReadToEnd(3_000, 3_000))
    play.say(sg.Received(3_100, notice()))
    play.say(sg.Polled(3_200))
    play.say(sg.CalledBack(3_200, Callback.REVOKED))
    play.answer(3_300, api.JoinGroupResponse, **join_fields(generation=2))
    play.answer(3_400, api.SyncGroupResponse, **sync_fields(0))
    play.say(sg.Polled(3_500))

    late = play.response(beat.request, api.HeartbeatResponse, error="ILLEGAL_GENERATION")
    play.say(sg.Received(3_600, late))

    assert play.member.assignment(3_600) == (T0,)


def test_a_join_that_was_not_written_is_sent_again_under_its_id() -> None:
    """It may have been written after all; under one id both are one member."""
    play = Play()
    play.say(sg.WantTopics(0, ("t",)))

    assert play.say(sg.NotWritten(100, "cafe-2", "timed out")) == []
    assert play.say(sg.Elapsed(299)) == []
    assert play.say(sg.Elapsed(300)) == [join("cafe-2")]


def test_a_join_without_an_answer_is_sent_again_once_in_each_rebalance_timeout() -> None:
    """The log may have lost what it had acknowledged, and a joiner writes nothing that would show
    it: it waited for ever. RT = 12 s.  # INV-145"""
    play = Play()
    play.say(sg.WantTopics(0, ("t",)))
    play.say(sg.Polled(0))
    assert play.member.wake_ms() == 12_000, "by then the user must poll; nothing is repeated"
    play.written(10)
    play.say(sg.Polled(6_000))

    assert play.say(sg.Elapsed(11_999)) == []
    assert play.say(sg.Elapsed(12_000)) == [join("cafe-2")]
    play.say(sg.Polled(12_000))
    assert play.say(sg.Elapsed(23_999)) == []
    assert play.member.wake_ms() == 24_000
    play.written(23_999)
    play.answer(24_000, api.JoinGroupResponse, **join_fields())
    assert play.member.state is State.SYNCING


def test_whose_join_was_sent_again_leaves_with_the_id_of_its_first_place() -> None:
    """Most likely nothing was lost, and the JoinGroup is parked there.  # INV-145"""
    play = Play()
    play.say(sg.WantTopics(0, ("t",)))
    play.written(10)
    play.say(sg.Polled(6_000))
    play.say(sg.Elapsed(12_000))
    play.written(12_010)

    (said,) = play.say(sg.Close(12_100))
    assert isinstance(said, sg.Send)
    assert isinstance(said.request, api.LeaveGroup)
    assert said.request.members == (api.Leaver(IDENTITY.member_at(40)),)


def test_a_sync_without_an_answer_is_sent_again() -> None:
    """Its leader may need the whole rebalance timeout: then it is a repeat.  # INV-145"""
    play = Play()
    play.joined()
    sync = play.sent[-1]
    play.written(10)

    outputs = play.live(1_000, 12_000)
    assert [each for each in outputs if isinstance(each, sg.Send) and each.request is sync] == [
        sg.Send(sync)
    ]


def test_a_join_refused_for_now_is_another_request_later() -> None:
    play = Play()
    play.say(sg.WantTopics(0, ("t",)))

    play.answer(100, api.JoinGroupResponse, error="COORDINATOR_NOT_AVAILABLE")

    assert play.say(sg.Elapsed(300)) == [join("cafe-3")]


def test_a_stale_generation_is_dropped_and_the_member_kept() -> None:
    play = Play()
    play.stable()
    play.say(sg.Received(100, notice()))
    play.say(sg.Polled(200))
    play.say(sg.CalledBack(200, Callback.REVOKED))

    again = play.answer(300, api.JoinGroupResponse, error="ILLEGAL_GENERATION", member=MEMBER)

    assert again == [join("cafe-6", MEMBER)]


def test_a_sync_overtaken_by_a_rebalance_joins_again() -> None:
    play = Play()
    play.joined()

    assert play.answer(10, api.SyncGroupResponse, error="REBALANCE_IN_PROGRESS") == [
        join("cafe-5", MEMBER, 1, "group is rebalancing")
    ]


def test_a_final_refusal_is_raised_by_every_poll() -> None:
    play = Play()
    play.say(sg.WantTopics(0, ("t",)))
    play.answer(10, api.JoinGroupResponse, error="INCONSISTENT_GROUP_PROTOCOL")

    for now_ms in (20, 30):
        (out,) = play.say(sg.Polled(now_ms))
        assert isinstance(out, sg.Raise)
        assert isinstance(out.error, GroupError)
        assert out.error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_close_revokes_then_leaves() -> None:
    play = Play()
    play.stable()

    assert play.say(sg.Close(100)) == [sg.Call(Callback.REVOKED, (T0, T1))]
    (left,) = play.say(sg.CalledBack(110, Callback.REVOKED))
    assert isinstance(left, sg.Send)
    assert isinstance(left.request, api.LeaveGroup)
    assert left.request.members == (api.Leaver(member=MEMBER),)
    assert play.written(120) == [sg.Left()]
    assert play.member.state is State.LEFT


def test_close_before_the_join_is_answered_leaves_under_the_id_that_the_log_gave() -> None:
    """A short-lived program must not leave a member behind that others wait for."""
    play = Play()
    play.say(sg.WantTopics(0, ("t",)))
    assert play.say(sg.Close(10)) == []

    (left,) = play.written(20)
    assert isinstance(left, sg.Send)
    assert isinstance(left.request, api.LeaveGroup)
    assert left.request.members == (api.Leaver(member=MEMBER),)


def test_a_new_subscription_is_a_rejoin() -> None:
    play = Play()
    play.stable()

    assert play.say(sg.WantTopics(100, ("t", "u"))) == []
    assert play.say(sg.Polled(200)) == [sg.Call(Callback.REVOKED, (T0, T1))]


def fetch(play: Play) -> api.Request:
    play.say(sg.FetchOffsets(100, 9, None))
    return play.sent[-1]


def row(partition: int) -> api.FetchedOffset:
    return api.FetchedOffset("t", partition, 5, -1, "")


def test_a_fetch_is_answered_when_all_its_parts_are_here() -> None:
    play = Play()
    request = fetch(play)
    second = play.response(request, api.OffsetFetchResponse, offsets=(row(1),), part=1, parts=2)
    first = play.response(request, api.OffsetFetchResponse, offsets=(row(0),), part=0, parts=2)

    assert play.say(sg.Received(110, second)) == []
    assert play.say(sg.Received(120, first)) == [sg.Answer(9, offsets=(row(0), row(1)))]


def test_a_fetch_is_repeated_and_a_commit_is_not() -> None:
    """A repeated commit could overtake a later one and set the position back."""
    play = Play()
    play.stable()
    play.say(sg.FetchOffsets(100, 9, None))
    play.answer(110, api.OffsetFetchResponse, error="COORDINATOR_LOAD_IN_PROGRESS")
    (again,) = play.say(sg.Elapsed(310))
    assert isinstance(again, sg.Send)
    assert isinstance(again.request, api.OffsetFetch)

    play.say(sg.CommitOffsets(400, 10, (api.CommittedOffset(topic="t", partition=0, offset=1),)))
    (end,) = play.answer(410, api.OffsetCommitResponse, error="COORDINATOR_NOT_AVAILABLE")
    assert isinstance(end, sg.Answer)
    assert isinstance(end.error, CoordError)


def test_a_fetch_without_an_answer_is_asked_again_and_either_answer_counts() -> None:
    """The log may have lost it, in which other members write so much that its offsets do not show
    it: a partition then never began. A commit is not asked again.  # INV-145"""
    play = Play()
    play.stable()
    request = fetch(play)
    play.say(sg.CommitOffsets(100, 10, (api.CommittedOffset(topic="t", partition=0, offset=1),)))
    commit = play.sent[-1]

    sent = [each.request for each in play.live(1_000, 25_000) if isinstance(each, sg.Send)]
    assert [sent.count(each) for each in (request, commit)] == [2, 0]
    answer = play.response(request, api.OffsetFetchResponse, offsets=(row(1),), part=0, parts=1)
    assert play.say(sg.Received(25_100, answer)) == [sg.Answer(9, offsets=(row(1),))]
    assert play.say(sg.Received(25_200, answer)) == []


def test_close_waits_for_the_answers_to_commits_that_stand_before_the_leave() -> None:
    """A last asynchronous commit is in the log; its caller wants to hear that it held."""
    play = Play()
    play.stable()
    play.say(sg.CommitOffsets(100, 3, (api.CommittedOffset(topic="t", partition=0, offset=1),)))
    commit = play.sent[-1]
    play.say(sg.Close(110))
    play.say(sg.CalledBack(120, Callback.REVOKED))
    assert play.written(130) == []

    answered = play.response(commit, api.OffsetCommitResponse, failed=())

    assert play.say(sg.Received(140, answered)) == [sg.Answer(3), sg.Left()]

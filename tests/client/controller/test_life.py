"""A broker's life as scenarios: one input, all its outputs."""

import pytest
from msgspec.structs import replace

from coordlib.client.controller import requests as bs
from coordlib.client.controller.requests import BrokerFenced, BrokerReplaced, Call, Callback
from coordlib.client.controller.state import State
from coordlib.client.kit import events as sg
from coordlib.client.kit.fence import Stop
from coordlib.core.wire import api
from coordlib.errors import GroupError
from tests.client.controller.play import (
    ENDPOINT,
    MEMBER,
    T0,
    T1,
    UNFENCED,
    Play,
    envelope,
    follows,
    leads,
    leave,
    release,
    resigns,
    row,
    stops,
    target,
)

STALE = {"error": "STALE_BROKER_EPOCH", "design_error": "INVALID_INCARNATION_ID"}


# ---- in ---------------------------------------------------------------------------------------


def test_a_broker_registers_and_asks_for_the_metadata() -> None:
    play = Play()
    play.say(sg.ReadToEnd(0, 0))

    register = api.RegisterBroker(
        **envelope("cafe-1"),
        broker=7,
        endpoints=(ENDPOINT,),
        session_timeout_ms=8_000,
        release_timeout_ms=12_000,
        storage="disk",
        previous=12,
    )
    assert play.say(bs.Begin(0)) == [sg.Send(register)]
    assert play.written(5, api.RegisterBroker) == []
    fields = {"incarnation": 40, "member": MEMBER, "since": 40, "partitions": (), "parts": 1}
    answered = play.answer(10, api.RegisterBroker, api.RegisterBrokerResponse, **fields)
    assert answered == [bs.Registered(40), sg.Send(api.Metadata(**envelope("cafe-2")))]
    assert (play.broker.state, play.broker.incarnation) == (State.INACTIVE, 40)
    assert play.broker.is_fenced(10)


def test_a_registration_without_an_answer_is_sent_again() -> None:
    """The log may have lost it; the same once more makes no other process.  # INV-145"""
    play = Play()
    (register,) = play.say(bs.Begin(0))
    play.written(5, api.RegisterBroker)

    assert play.say(sg.Elapsed(11_999)) == []
    assert play.broker.wake_ms() == 12_000
    assert play.say(sg.Elapsed(12_000)) == [register]
    assert play.broker.wake_ms() == 24_000


def test_the_metadata_that_nobody_has_told_are_asked_for_again() -> None:
    """So that a broker whose question was lost gets to know its cluster.  # INV-145"""
    play = Play()
    play.say(bs.Begin(0))
    fields = {"incarnation": 40, "member": MEMBER, "since": 40, "partitions": (), "parts": 1}
    play.answer(10, api.RegisterBroker, api.RegisterBrokerResponse, **fields)
    question = play.newest(api.Metadata)
    play.written(15, api.Metadata)

    outputs = play.live(1_000, 13_000)
    assert outputs.count(sg.Send(question)) == 1


def test_it_is_inactive_until_its_user_is_ready() -> None:
    """It may have to read terabytes first; a session it has meanwhile."""
    play = Play()
    play.registered()

    (beat,) = play.live(0, 4_000)
    assert isinstance(beat, sg.Send)
    assert isinstance(beat.request, api.Heartbeat)
    assert beat.request.space == "cluster"

    assert play.say(bs.Ready(4_500)) == [target("cafe-4", "Active", 40)]


def test_the_answer_active_opens_the_door_and_leaderships_follow() -> None:
    play = Play()
    play.registered(row(0, leader=-1, epoch=4, fence=30), row(1, leader=8, epoch=2, fence=20))
    play.say(bs.Ready(0))
    play.offset = 49
    play.written(0, api.BrokerHeartbeat)

    led = row(0, epoch=5, fence=50)
    assert play.changed(100, 50, led) == []
    assert play.polled(100) == [follows(1, 2, 8)]
    assert not play.broker.may_lead(100, T0)
    assert play.told(110, "Active", 50) == []

    assert play.polled(120) == [UNFENCED, leads(led)]
    assert play.broker.may_lead(120, T0)
    assert play.broker.may_lead(120, T0, epoch=5)
    assert not play.broker.may_lead(120, T0, epoch=4)
    assert not play.broker.may_lead(120, T1)
    assert not play.broker.is_fenced(120)


def test_a_large_picture_comes_in_parts() -> None:
    play = Play()
    play.say(sg.ReadToEnd(0, 0))
    play.say(bs.Begin(0))
    fields = {"incarnation": 40, "member": MEMBER, "since": 40, "parts": 2}
    play.answer(
        5, api.RegisterBroker, api.RegisterBrokerResponse, **fields, partitions=(row(0, 8),)
    )
    assert play.broker.state is State.INITIAL

    play.answer(
        6, api.RegisterBroker, api.RegisterBrokerResponse, **fields, partitions=(row(1, 8),)
    )

    assert play.polled(10) == [follows(0, 0, 8), follows(1, 0, 8)]


def test_a_target_that_names_another_record_is_said_again_with_the_right_one() -> None:
    """The state has changed since; the answer tells which record gave the present one."""
    play = Play()
    play.registered()
    assert play.say(bs.Ready(0)) == [target("cafe-3", "Active", 40)]

    assert play.told(10, "Inactive", 48) == [target("cafe-4", "Active", 48)]


def test_an_old_answer_opens_the_fence_by_the_age_of_its_question_only() -> None:
    """The answer was long under way; its session may have ended since (rule 15)."""
    play = Play()
    play.registered()
    play.say(bs.Ready(0))
    play.live(0, 6_500)
    play.changed(6_600, 50, row(0, epoch=5, fence=50))

    play.told(6_700, "Active", 50)

    assert not play.broker.may_lead(6_700, T0)
    assert play.polled(6_700) == []
    assert play.broker.stopped_by(6_700) is Stop.NO_SIGN_OF_LIFE


# ---- leadership ends --------------------------------------------------------------------------


def test_leadership_ends_before_the_session_and_the_door_closes_after_it() -> None:
    """KIP-343 wants the broker's timeout longer; acting and being there end apart."""
    play = Play()
    play.active(row())

    assert play.broker.may_lead(6_000, T0)
    assert not play.broker.may_lead(6_001, T0)
    assert not play.broker.is_fenced(16_000)
    assert play.broker.is_fenced(16_001)


def test_what_only_its_fence_has_closed_goes_on_by_proof() -> None:
    """A short cut: nobody has heard that it was missed (rule 11)."""
    play = Play()
    play.active(row())
    play.say(sg.Elapsed(7_000))
    assert not play.broker.may_lead(7_000, T0)

    (beat,) = play.say(sg.Elapsed(7_100)) or [sg.Send(play.newest(api.Heartbeat))]
    assert isinstance(beat, sg.Send)
    play.say(sg.Acknowledged(7_200, beat.request.id, 60, 7_100))
    play.say(sg.ReadToEnd(7_250, 7_240))
    assert not play.broker.may_lead(7_300, T0)
    play.say(sg.Received(7_300, api.Progress(shard=1, offset=60, time_ms=0)))
    play.say(sg.ReadToEnd(7_400, 7_350))

    assert play.broker.may_lead(7_400, T0)
    assert play.polled(7_500) == []


def test_a_door_that_was_closed_ends_all_leaderships_and_they_are_told_anew() -> None:
    """It was cut off for long, and the job was away: nobody has put it out."""
    play = Play()
    play.active(row())
    no_contact = Call(Callback.FENCED, ("no contact with the log for the fence timeout",))
    play.say(sg.Elapsed(11_000))
    assert play.polled(17_000) == [no_contact]

    play.live(18_000, 19_000)
    play.say(sg.Received(19_100, api.Progress(shard=1, offset=play.offset, time_ms=0)))
    play.say(sg.ReadToEnd(19_300, 19_200))

    assert play.polled(19_400) == [UNFENCED, leads(row())]
    assert play.broker.may_lead(19_400, T0)


def test_who_reads_that_it_is_inactive_is_fenced_and_asks_to_come_back() -> None:
    play = Play()
    play.active(row())

    assert play.changed(2_000, 70, row(0, leader=8, epoch=1, fence=70), gone=(40,)) == []
    assert not play.broker.may_lead(2_000, T0)
    assert play.broker.is_fenced(2_000)
    fenced = Call(Callback.FENCED, ("the controller has declared it Inactive",))
    asks = target("cafe-4", "Active", 50)
    assert play.polled(2_100) == [fenced, asks, follows(0, 1, 8)]

    assert play.told(2_200, "Inactive", 70) == [target("cafe-5", "Active", 70)]
    play.told(2_300, "Active", 75)
    assert play.polled(2_400) == [UNFENCED]


def test_nobody_is_active_again_before_its_user_knows_that_it_was_not() -> None:
    """Or he would act on what he was told before."""
    play = Play()
    play.active(row())
    play.changed(2_000, 70, gone=(40,))
    assert play.say(sg.Elapsed(2_050)) == []
    (fenced,) = play.say(sg.Polled(2_100))
    assert isinstance(fenced, Call)
    assert play.say(sg.Elapsed(2_200)) == []

    assert play.say(bs.CalledBack(2_300, fenced)) == [target("cafe-4", "Active", 50)]


def test_a_refused_heartbeat_says_that_it_is_out() -> None:
    play = Play()
    play.active(row())
    play.live(0, 3_000)
    beat = play.newest(api.Heartbeat)

    refused = play.response(beat, api.HeartbeatResponse, error="UNKNOWN_MEMBER_ID", cause="r1-71")
    play.say(sg.Received(3_100, refused))

    assert not play.broker.may_lead(3_100, T0)
    assert play.broker.state is State.INACTIVE


def test_what_it_lost_with_its_membership_it_never_takes_up_again() -> None:
    """Rule 15: a row that still names it was written before."""
    play = Play()
    play.active(row())
    play.changed(2_000, 70, gone=(40,))
    play.polled(2_100)
    play.told(2_200, "Inactive", 70)
    play.told(2_300, "Active", 75)
    play.changed(2_350, 76, row(0, partition_epoch=9))

    assert play.polled(2_400) == [UNFENCED]
    assert not play.broker.may_lead(2_400, T0)

    new = row(0, epoch=2, fence=77)
    play.changed(2_500, 77, new)
    assert play.polled(2_600) == [leads(new)]


# ---- letting go -------------------------------------------------------------------------------


def test_a_demand_is_met_by_a_release_when_the_callback_has_returned() -> None:
    play = Play()
    play.active(row(0), row(1))

    assert play.demanded(1_000, 60, 0) == []
    assert play.say(sg.Polled(1_100)) == [resigns(T0)]
    assert play.broker.may_lead(1_150, T0)
    assert play.say(bs.CalledBack(1_200, resigns(T0))) == [release("cafe-4", 60)]

    assert not play.broker.may_lead(1_200, T0)
    assert play.broker.may_lead(1_200, T1)


def test_what_it_let_go_of_is_over_whatever_is_read_later() -> None:
    """Rule 15: the Release is on its way; a new row of the same leadership changes nothing."""
    play = Play()
    play.active(row(0))
    play.demanded(1_000, 60, 0)
    play.polled(1_100)

    play.changed(1_200, 61, row(0, partition_epoch=3))
    assert play.polled(1_300) == []
    assert not play.broker.may_lead(1_300, T0)

    new = row(0, epoch=1, fence=64)
    play.changed(1_400, 64, new)
    assert play.polled(1_500) == [leads(new)]


def test_a_release_is_also_about_an_epoch_that_its_demand_began() -> None:
    """The record that asks also began an epoch (a move ended), and the notice stands before the
    row: a Release that goes out between the two must end the new epoch, too."""
    play = Play()
    play.active(row(0))
    play.demanded(1_000, 60, 0)
    play.polled(1_100)

    play.changed(1_200, 60, row(0, epoch=1, fence=60))

    assert play.polled(1_300) == []
    assert not play.broker.may_lead(1_300, T0)


def test_a_demand_for_what_the_user_was_not_told_of_needs_no_callback() -> None:
    play = Play()
    play.active()
    play.changed(900, 59, row(0, fence=59))

    assert play.demanded(1_000, 60, 0) == [release("cafe-4", 60)]
    assert play.polled(1_100) == []


def test_a_demand_that_stands_before_the_answer_active_has_a_date() -> None:
    """One record makes it Active, elects it and asks it: the notices stand before the answer."""
    play = Play()
    play.registered()
    play.say(bs.Ready(0))
    play.live(0, 1_000)
    play.demanded(1_100, 50, 0)
    play.told(1_200, "Active", 50)

    release_ = play.newest(api.Release)
    assert release_.cause == 50
    play.say(sg.NotWritten(1_300, release_.id, "no broker"))
    for now_ms in range(2_000, 12_000, 1_000):
        play.live(now_ms, now_ms)
    assert play.broker.stopped_by(12_000) is Stop.NO_REACTION


def test_a_demand_that_is_not_met_in_time_ends_all_leaderships() -> None:
    """Rule 10: the controller will put it out."""
    play = Play()
    play.active(row(0), row(1))
    play.live(0, 1_000)
    play.demanded(1_000, 60, 0)
    (call,) = play.say(sg.Polled(1_100))
    assert call == resigns(T0)

    play.live(2_000, 11_000, polls=False)
    assert play.broker.may_lead(11_000, T1)
    assert not play.broker.may_lead(11_001, T1)


def test_a_resigning_callback_that_raises_has_not_let_go_and_comes_again() -> None:
    play = Play()
    play.active(row(0))
    play.demanded(1_000, 60, 0)
    play.say(sg.Polled(1_100))

    assert play.say(bs.CalledBack(1_200, resigns(T0), has_raised=True)) == []
    assert play.polled(1_300) == [resigns(T0), release("cafe-4", 60)]


def test_a_release_that_was_not_written_is_written_again() -> None:
    play = Play()
    play.active(row(0))
    play.demanded(1_000, 60, 0)
    play.polled(1_100)

    play.say(sg.NotWritten(1_200, "cafe-4", "no broker"))

    assert release("cafe-5", 60) in play.say(sg.Elapsed(1_500))


# ---- replicas ---------------------------------------------------------------------------------


def test_a_new_epoch_of_the_same_leader_is_told() -> None:
    """A move has ended: followers are others."""
    play = Play()
    play.active(row(0))
    new = row(0, epoch=1, fence=70)
    play.changed(1_000, 70, new)
    assert not play.broker.may_lead(1_000, T0)

    assert play.polled(1_100) == [leads(new)]


def test_a_change_of_the_isr_alone_calls_nobody() -> None:
    play = Play()
    play.active(row(0))
    play.changed(1_000, 70, row(0, isr=(7,), partition_epoch=1))

    assert play.polled(1_100) == []
    assert play.broker.must_acknowledge(T0) == {7}


def test_a_replica_is_deleted_and_reported() -> None:
    """Reports of one moment go together."""
    play = Play()
    play.active(row(0, leader=8), row(1, leader=8))
    doomed = [row(n, leader=-1, epoch=1, fence=70, deleting=(7, 8)) for n in (0, 1)]
    play.changed(1_000, 70, *doomed)

    results = tuple(api.DeletedReplica(topic="t", topic_id=30, partition=n) for n in (0, 1))
    report = api.ReplicasDeleted(**envelope("cafe-4"), broker=7, incarnation=40, results=results)
    assert play.polled(1_100) == [stops(0, True), stops(1, True), sg.Send(report)]
    assert play.polled(1_200) == []


def test_a_deletion_that_raises_has_failed_and_is_asked_for_again_by_the_log() -> None:
    play = Play()
    play.active(row(0, leader=8))
    doomed = row(0, leader=-1, epoch=1, fence=70, deleting=(7,))
    play.changed(1_000, 70, doomed)
    (call,) = play.say(sg.Polled(1_100))
    play.say(bs.CalledBack(1_200, stops(0, True), has_raised=True))
    play.polled(1_300)

    (result,) = play.newest(api.ReplicasDeleted).results
    assert (call, result.error) == (stops(0, True), "KAFKA_STORAGE_ERROR")
    play.changed(1_400, 71, row(0, leader=-1, epoch=1, fence=70))
    play.changed(1_500, 72, doomed)
    assert play.polled(1_600)[0] == stops(0, True)


@pytest.mark.parametrize("has_raised", [False, True])
def test_what_goes_with_its_topic_is_not_followed_once_more(has_raised: bool) -> None:
    """Another broker is away, so the topic waits for it. A program that were told to follow would
    make the replica anew, and nobody would ever tell it to delete that."""
    play = Play()
    play.active(row(0, leader=8))
    doomed = row(0, leader=-1, epoch=1, fence=70, deleting=(7,))
    play.changed(1_000, 70, doomed)
    play.say(sg.Polled(1_100))
    play.say(bs.CalledBack(1_200, stops(0, True), has_raised=has_raised))
    play.polled(1_300)

    play.changed(1_400, 71, row(0, leader=-1, epoch=1, fence=70))
    assert play.polled(1_500) == []
    play.changed(1_600, 72, row(0, leader=-1, epoch=1, fence=70, replicas=(), isr=()))
    assert play.polled(1_700) == []

    new = row(0, leader=8, fence=80, topic_id=79)
    play.changed(1_800, 80, new)
    assert play.polled(1_900) == [follows(0, 0, 8, topic_id=79)]


def test_a_replica_that_is_not_its_own_any_more_is_stopped() -> None:
    play = Play()
    play.active(row(0))
    play.changed(1_000, 70, row(0, leader=8, epoch=1, fence=70, replicas=(8, 9), isr=(8,)))

    assert play.polled(1_100) == [stops(0, False)]


def test_a_topic_made_anew_under_its_name_is_another_one() -> None:
    """What lies there is of the former topic."""
    play = Play()
    play.active(row(0))
    new = row(0, fence=80, topic_id=79)
    play.changed(1_000, 80, new)

    assert play.polled(1_100) == [stops(0, True), leads(new)]


def test_a_process_that_was_away_meanwhile_tells_them_apart_by_the_id() -> None:
    """It knows nothing of the former one but what lies in its folder."""
    play = Play()
    play.active()
    mine = row(1, fence=80, topic_id=79)
    play.changed(1_000, 80, row(0, leader=8, fence=80, topic_id=79), mine)

    assert play.polled(1_100) == [follows(0, 0, 8, topic_id=79), leads(mine)]


# ---- in sync ----------------------------------------------------------------------------------


def alter(play: Play, now_ms: int, ticket: int, *others: tuple[int, int]) -> list[bs.Output]:
    return play.say(bs.AlterIsr(now_ms, ticket, T0, dict(others)))


def test_whom_it_names_it_counts_before_the_answer() -> None:
    """Rule 16, INV-78: it may be accepted at any moment, or long after it was refused."""
    play = Play()
    play.active(row(0, isr=(7,), replicas=(7, 8, 9)))
    asked = api.AlteredPartition(
        partition=0,
        leader_epoch=0,
        partition_epoch=0,
        isr=(api.InSyncReplica(7, 40), api.InSyncReplica(8, 31)),
    )
    request = api.AlterPartition(
        **envelope("cafe-4"),
        broker=7,
        incarnation=40,
        topics=(api.AlteredTopic("t", (asked,), 30),),
    )

    assert alter(play, 1_000, 1, (8, 31)) == [sg.Send(request)]

    assert play.broker.must_acknowledge(T0) == {7, 8}


def test_whom_it_has_named_counts_though_refused_until_another_epoch_is_read() -> None:
    """A late duplicate of what was refused finds the same partition epoch."""
    play = Play()
    play.active(row(0, isr=(7,), replicas=(7, 8, 9)))
    alter(play, 1_000, 1, (8, 31))
    refused = api.AlteredRow(topic="t", partition=0, error="INELIGIBLE_REPLICA", partition_epoch=0)
    (answer,) = play.answer(
        1_100, api.AlterPartition, api.AlterPartitionResponse, results=(refused,)
    )
    assert isinstance(answer, bs.Altered)
    assert isinstance(answer.error, GroupError)
    assert answer.error.code.name == "INELIGIBLE_REPLICA"
    assert play.broker.must_acknowledge(T0) == {7, 8}

    alter(play, 1_200, 2)
    assert play.broker.must_acknowledge(T0) == {7, 8}
    play.changed(1_300, 71, row(0, isr=(7,), replicas=(7, 8, 9), partition_epoch=1))
    assert play.broker.must_acknowledge(T0) == {7}


def test_whom_it_has_named_counts_though_the_request_was_lost() -> None:
    play = Play()
    play.active(row(0, isr=(7,), replicas=(7, 8)))
    alter(play, 1_000, 1, (8, 31))
    (answer,) = play.say(sg.NotWritten(1_100, "cafe-4", "no broker"))

    assert isinstance(answer, bs.Altered)
    assert answer.error is not None
    assert play.broker.must_acknowledge(T0) == {7, 8}


def test_one_change_of_a_partition_is_under_way_and_others_wait_for_the_answer() -> None:
    """Rule 16; and one request at a time carries what was asked for meanwhile."""
    play = Play()
    play.active(row(0), row(1))
    alter(play, 1_000, 1)
    (refused,) = alter(play, 1_100, 2)
    assert isinstance(refused, bs.Altered)
    assert refused.error is not None
    assert play.say(bs.AlterIsr(1_200, 3, T1, {})) == []

    done = api.AlteredRow(topic="t", partition=0, error="NONE", partition_epoch=1)
    answer, sent = play.answer(
        1_300, api.AlterPartition, api.AlterPartitionResponse, results=(done,)
    )
    assert answer == bs.Altered(1, row=done)
    assert isinstance(sent, sg.Send)
    assert isinstance(sent.request, api.AlterPartition)
    assert [part.partition for part in sent.request.topics[0].partitions] == [1]


def test_nobody_changes_what_it_does_not_lead() -> None:
    play = Play()
    play.active(row(0, leader=8))

    (refused,) = alter(play, 1_000, 1, (8, 31))

    assert isinstance(refused, bs.Altered)
    assert isinstance(refused.error, GroupError)
    assert refused.error.code.name == "NOT_LEADER_OR_FOLLOWER"


def test_changes_under_way_end_with_the_leadership() -> None:
    play = Play()
    play.active(row(0))
    alter(play, 1_000, 1)

    (answer,) = play.changed(1_100, 70, gone=(40,))

    assert isinstance(answer, bs.Altered)
    assert isinstance(answer.error, BrokerFenced)


# ---- out --------------------------------------------------------------------------------------


def test_a_stopping_broker_asks_until_it_may_stop() -> None:
    play = Play()
    play.active(row(0))

    assert play.say(bs.Stop(1_000)) == [target("cafe-4", "Stopping", 50)]
    play.told(1_100, "Stopping", 60)
    assert not play.broker.is_done
    play.demanded(1_100, 60, 0)
    assert play.polled(1_200) == [resigns(T0), release("cafe-5", 60)]
    answered = play.answer(1_300, api.Release, api.ReleaseResponse)
    assert answered == [target("cafe-6", "Stopping", 60)]
    play.told(1_400, "Stopping", 60, may_stop=True)
    assert play.broker.is_done


def test_a_broker_that_stops_may_go_on() -> None:
    play = Play()
    play.active(row(0))
    play.say(bs.Stop(1_000))
    play.told(1_100, "Stopping", 60)

    assert play.say(bs.Ready(1_200)) == [target("cafe-5", "Active", 60)]


def test_a_closed_broker_leaves_when_its_user_knows_that_the_door_is_closed() -> None:
    play = Play()
    play.active(row(0))

    assert play.say(bs.Close(1_000)) == []
    assert not play.broker.may_lead(1_000, T0)
    fenced = Call(Callback.FENCED, ("closed",))
    assert play.say(sg.Polled(1_100)) == [fenced]
    assert play.say(bs.CalledBack(1_200, fenced)) == [leave("cafe-4", "closed")]
    assert play.written(1_300, api.LeaveGroup) == [sg.Left()]


def test_a_broker_that_is_closed_before_it_is_registered_leaves_by_its_place_in_the_log() -> None:
    play = Play()
    play.say(sg.ReadToEnd(0, 0))
    play.say(bs.Begin(0))
    play.written(5, api.RegisterBroker)

    assert play.say(bs.Close(10)) == [leave("cafe-2", "closed")]


def test_who_was_replaced_stops_for_good_and_says_so() -> None:
    """INVALID_INCARNATION_ID: there is no war of two. What it led waits for its word."""
    play = Play()
    play.active(row(0))
    reason = "superseded by a newer registration"
    removed = api.MemberRemoved(group="shop", cause="r1-70", member=MEMBER, reason=reason)
    play.say(sg.Received(1_000, removed))
    assert not play.broker.may_lead(1_000, T0)
    assert play.polled(1_100) == [
        Call(Callback.FENCED, (reason,)),
        target("cafe-4", "Active", 50),
    ]

    said = "stopped: STALE_BROKER_EPOCH"
    assert play.answer(1_200, api.BrokerHeartbeat, api.BrokerHeartbeatResponse, **STALE) == [
        leave("cafe-5", said)
    ]
    (raised,) = play.polled(1_300)
    assert isinstance(raised, sg.Raise)
    assert isinstance(raised.error, BrokerReplaced)
    assert play.broker.is_done


def test_who_is_not_ready_finds_out_too_that_it_was_replaced() -> None:
    play = Play()
    play.registered()
    removed = api.MemberRemoved(group="shop", cause="r1-70", member=MEMBER, reason="superseded")

    assert play.say(sg.Received(1_000, removed)) == [target("cafe-3", "Inactive", 40)]


def test_who_is_not_polled_leads_nothing_then_says_that_it_has_stopped() -> None:
    """Its user hangs: others must not wait for it. What was just being done gets the margin."""
    play = Play()
    play.active(row(0))
    play.live(0, 11_000, polls=False)
    assert play.broker.may_lead(11_999, T0)

    play.live(12_000, 12_000, polls=False)
    assert not play.broker.may_lead(12_000, T0)
    sent = play.live(13_000, 15_000, polls=False)
    word = target("", "Inactive", 50, "poll was not called").request
    words = [e.request for e in sent if isinstance(e, sg.Send) and _is_target(e.request)]
    assert [_without_id(each) for each in words] == [_without_id(word)]


def test_after_its_word_it_takes_up_nothing_before_the_answer_to_that() -> None:
    """Rule 15: an answer of before may still say Active."""
    play = Play()
    play.active(row(0))
    play.live(0, 15_000, polls=False)
    word = play.newest(api.BrokerHeartbeat)
    assert word.target_state == "Inactive"
    led = row(0, epoch=1, fence=72)
    play.changed(15_100, 72, led)
    play.polled(15_200)
    assert not play.broker.may_lead(15_200, T0)

    play.told(15_300, "Active", 71)
    again = play.newest(api.BrokerHeartbeat)
    assert (again.target_state, again.since) == ("Inactive", 71)
    assert play.polled(15_400) == []
    assert not play.broker.may_lead(15_400, T0)

    play.told(15_500, "Inactive", 80, cause="r1-80")
    assert play.newest(api.BrokerHeartbeat).target_state == "Active"
    play.told(15_600, "Active", 85)
    play.polled(15_700)
    assert not play.broker.may_lead(15_700, T0)


def test_it_comes_back_by_the_age_of_its_question_though_it_has_heartbeat_all_along() -> None:
    """Heartbeats of an Inactive broker say nothing of what was decided after the question."""
    play = Play()
    play.active(row(0))
    play.live(0, 15_000, polls=False)
    play.told(15_100, "Inactive", 80, cause="r1-80")
    play.polled(15_200)
    assert play.newest(api.BrokerHeartbeat).target_state == "Active"
    play.live(16_000, 22_000)
    play.changed(22_100, 90, row(0, epoch=3, fence=90))

    play.told(22_200, "Active", 90)

    assert play.polled(22_300) == []
    assert not play.broker.may_lead(22_300, T0)


def test_who_was_forgotten_registers_anew() -> None:
    """An operator has unregistered it while it was silent. Its former incarnation has ended."""
    play = Play()
    play.registered()
    play.say(bs.Ready(0))
    forgotten = {"error": "BROKER_ID_NOT_REGISTERED"}

    (sent,) = play.answer(10, api.BrokerHeartbeat, api.BrokerHeartbeatResponse, **forgotten)

    assert isinstance(sent, sg.Send)
    assert isinstance(sent.request, api.RegisterBroker)
    assert sent.request.previous == 40


# ---- metadata ---------------------------------------------------------------------------------


def test_metadata_are_a_picture_and_all_changes_since() -> None:
    play = Play()
    play.active()
    other = api.BrokerRow(8, 41, "Active", (ENDPOINT,), None)
    notice = api.MetadataChanged(
        group="shop",
        cause="r1-60",
        generation=3,
        brokers=(other,),
        topics=(api.TopicRow("u", 60, 1, 1, False, False),),
        partitions=(row(0, leader=8, replicas=(8,), isr=(8,)),),
    )
    play.say(sg.Received(1_000, notice))

    shown = play.broker.metadata(1_000)
    assert dict(shown.brokers) == {8: other}
    assert list(shown.topics) == ["u"]
    assert shown.partitions[T0].leader == 8
    gone = api.MetadataChanged(
        group="shop",
        cause="r1-61",
        generation=4,
        gone=(api.GoneBroker(8, 40), api.GoneBroker(8, 41)),
        topics=(api.TopicRow("u", -1, 0, 1, False, True),),
        partitions=(row(0, leader=-1, replicas=(), isr=()),),
    )
    play.say(sg.Received(1_100, gone))
    assert not play.broker.metadata(1_100).partitions
    assert not play.broker.metadata(1_100).brokers
    assert not play.broker.metadata(1_100).topics
    assert shown.partitions[T0].leader == 8, "what was handed out stays as it is"


def test_a_fenced_broker_shows_no_metadata() -> None:
    play = Play()
    play.active()
    play.changed(1_000, 70, gone=(40,))

    with pytest.raises(BrokerFenced):
        play.broker.metadata(1_000)


def _is_target(request: api.Request) -> bool:
    return isinstance(request, api.BrokerHeartbeat)


def _without_id(request: api.Request) -> api.Request:
    return replace(request, id="")


# ---- the log ----------------------------------------------------------------------------------


def test_a_log_that_was_cut_ends_all_leaderships_and_another_process_registers() -> None:
    """Its heartbeats may stand at offsets that are never judged, and nobody would refuse them.

    # INV-105
    """
    play = Play()
    play.active(row(0))
    assert play.broker.may_lead(1_000, T0)

    (sent,) = play.say(sg.LogCut(1_000))
    assert isinstance(sent, sg.Send)
    assert isinstance(sent.request, api.RegisterBroker)
    assert sent.request.previous == -1, "its user has not stopped yet"
    assert not play.broker.may_lead(1_000, T0)
    assert play.polled(1_100) == [Call(Callback.FENCED, ("the log of requests has lost its end",))]
    assert play.say(sg.LogCut(1_200)) == [], "what is asked is repeated anyway"

"""The shard around its groups: routing, refusals, repeats, quarantine, the end of a batch."""

from typing import Any

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine.effects import BrokenInvariant
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.wire import api
from coordlib.core.wire.envelope import shard_of
from tests.core.engine.refusals import JUDGED_BEFORE, OTHER_GENERATION, refused
from tests.tools.core import (
    UNTRUSTED_TIME_MS,
    InputRecord,
    Shard,
    UnknownStateVersion,
    fold,
)
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    NEWCOMER,
    SETTINGS,
    Conversation,
    commit,
    completing,
    delete,
    delete_offsets,
    describe,
    fetch,
    heartbeat,
    join,
    leave,
    preparing,
    release,
    settled,
    stable,
    sync,
)

# -- who belongs here ------------------------------------------------------------------------


def test_a_group_of_another_shard_is_refused() -> None:
    """INV-05: a client that computes partitions by its own hash would split a group in two."""
    home = shard_of("g", 4)
    other = msgspec.structs.replace(SETTINGS, shards=4, shard=(home + 1) % 4)
    talk = Conversation(other)

    lines = talk.send(join("a"))

    why = f'"This group belongs into partition {home} of 4."'
    assert lines[0] == f"answer a#j1 Rejected WRONG_SHARD {why}"
    assert lines[1].startswith(
        f"event RequestRejected cause=r{other.shard}-0 reason={why} error=WRONG_SHARD client=a"
    )
    assert len(lines) == 2
    assert talk.shard.rows == {}


def test_answers_go_where_the_request_says() -> None:
    """A client reads one slice of the responses, not a shard's whole traffic."""
    talk = Conversation(msgspec.structs.replace(SETTINGS, reply_partitions=4))

    assert talk.send(fetch("tool", reply=3)) == ["answer@3 tool#f OffsetFetch parts=1"]
    assert talk.send(fetch("tool")) == [
        f"answer@{shard_of('tool', 4)} tool#f OffsetFetch parts=1".replace("@0", "")
    ]
    assert talk.send(fetch("tool", reply=4))[0] == (
        f"answer@{shard_of('tool', 4)} tool#f Rejected INVALID_REQUEST "
        '"reply must be below 4."'.replace("@0", "")
    )


def test_notifications_go_once_to_each_partition_that_members_read() -> None:
    """A hundred members in one partition need one notice."""
    talk = Conversation(msgspec.structs.replace(SETTINGS, reply_partitions=4))
    talk.send(join("a", reply=2))
    talk.send(sync("a", 1, LEADER))
    talk.send(join("b", reply=2))
    talk.send(join("a", "j2", member=LEADER, generation=1, reply=2))
    talk.send(join("c", reply=1))

    assert [o.partition for o in talk.outputs if b"RebalanceInProgress" in (o.value or b"")] == [
        2,
        2,
    ]
    assert [line for line in talk.end_batch() if "progress" in line] == [
        "progress@1 offset=4",
        "progress@2 offset=4",
    ]


@pytest.mark.parametrize(
    "request_",
    [
        join("a", group="g"),
        api.DescribeGroup(v=1, id="d", client="a", group="g"),
        api.DeleteGroup(v=1, id="d", client="a", group="g"),
        api.FindCoordinator(v=1, id="d", client="a", group="g"),
        api.OffsetDelete(v=1, id="d", client="a", group="g", topics=()),
        api.Tick(v=1, published=3),
        commit("a", 2, LEADER),
    ],
    ids=lambda request: type(request).__name__,
)
def test_only_positions_of_non_members_belong_into_the_offsets_topic(request_: Any) -> None:
    """Joins there would have no order with the group's other requests."""
    talk = settled()

    lines = talk.send(request_, topic="o")

    assert "RequestRejected" in lines[-1]
    assert all("Rejected INVALID_REQUEST" in line for line in lines[:-1])


def test_an_empty_group_id_is_refused() -> None:
    """testInvalidGroupId."""
    lines = Conversation().send(join("a", group=""))

    why = "The name of the group is empty: give one."
    assert lines[0] == f'answer[] a#j1 Rejected INVALID_GROUP_ID "{why}"'


#: One of each kind, as a member or an operator would send it.
ALL_KINDS = (
    join("a"),
    sync("a", 1, LEADER),
    heartbeat("a", 1, LEADER),
    leave("a", LEADER),
    commit("a"),
    fetch("a"),
    delete_offsets("a", ("t", 0)),
    describe("a"),
    delete("a"),
    release("a"),
)
of_all_kinds = pytest.mark.parametrize("request_", ALL_KINDS, ids=lambda r: type(r).__name__)


@of_all_kinds
def test_every_request_of_another_shard_is_refused(request_: Any) -> None:
    """testHeartbeatWrongCoordinator and its like: whatever it is, and before the group is looked
    at. Kafka calls it NOT_COORDINATOR; here it is the sender's arithmetic that is wrong."""
    home = shard_of("g", 4)
    talk = Conversation(msgspec.structs.replace(SETTINGS, shards=4, shard=(home + 1) % 4))

    lines = talk.send(request_)

    assert [line.split()[:4] for line in lines[:-1]] == [
        ["answer", f"a#{request_.id}", "Rejected", "WRONG_SHARD"]
    ]
    assert talk.shard.rows == {}


@of_all_kinds
def test_no_request_may_leave_its_group_unnamed(request_: Any) -> None:
    """testJoinGroupInvalidGroupId and its like. Stricter than Kafka, where clients of old times
    commit and fetch under an empty name."""
    lines = settled().send(msgspec.structs.replace(request_, group=""))

    why = "The name of the group is empty: give one."
    assert lines[0] == f'answer[] a#{request_.id} Rejected INVALID_GROUP_ID "{why}"'


# -- the same again --------------------------------------------------------------------------


def test_a_batch_that_is_read_again_does_nothing() -> None:
    """INV-04: Spark re-reads a range after a crash between state and sink."""
    talk = settled()
    done = fold(None, talk.log, talk.settings)

    again = fold(done.blob, talk.log, talk.settings)

    assert (again.blob, again.outputs) == (done.blob, [])


def test_requests_come_before_positions_of_a_batch_in_order_of_offsets() -> None:
    """Spark hands over rows in any order."""
    talk = Conversation()
    talk.send(commit("tool", offset=1), topic="o")
    talk.send(commit("tool", offset=2))
    talk.send(commit("tool", offset=3), topic="o")

    done = fold(None, reversed(talk.log), talk.settings)

    causes = [
        msgspec.json.decode(o.value or b"")["cause"] for o in done.outputs if o.topic == "responses"
    ]
    assert causes == ["r0-0", "o0-0", "o0-1"]


@pytest.mark.parametrize("make", [completing, stable])
def test_a_first_join_that_is_repeated_gets_the_generation_and_no_second_member(make: Any) -> None:
    """INV-16: the producer did not see the acknowledgement, and sent it again."""
    talk = make()
    before = talk.group()

    lines = talk.send(join("b"))

    assert lines == [
        "answer b#j1 JoinGroup generation=2 protocol_type=demo protocol=range leader=a-t-0-0 "
        "member=b-t-0-3",
    ]
    assert talk.group() == before


def test_a_first_join_that_is_repeated_is_no_consent() -> None:
    """A late duplicate must not let go of what the member still works on."""
    talk = preparing()
    before = talk.group()

    assert talk.send(join("b")) == refused(
        "answer b#j1 JoinGroup REBALANCE_IN_PROGRESS member=b-t-0-3",
        cause="r0-10",
        reason=JUDGED_BEFORE,
    )
    assert talk.group() == before


def test_a_parked_first_join_that_is_repeated_is_answered_once() -> None:
    """The answer names the newer record; the older has nobody who waits."""
    talk = preparing()
    assert talk.send(join("c")) == []
    again = talk.next_offset - 1
    talk.send(join("a", "j3", member=LEADER))
    talk.send(join("b", "j3", member=FOLLOWER))

    answers = [msgspec.json.decode(o.value or b"") for o in talk.outputs if o.topic == "responses"]
    assert [a["cause"] for a in answers if a.get("client") == "c"] == [f"r0-{again}"]


def test_a_late_first_join_does_not_take_the_place_of_a_newer_join() -> None:
    """The member has joined again already; its first JoinGroup arrives a second time."""
    talk = preparing()
    talk.send(join("b", "j3", member=FOLLOWER, generation=2))

    assert talk.send(join("b")) == refused(
        "answer b#j1 JoinGroup REBALANCE_IN_PROGRESS member=b-t-0-3",
        cause="r0-11",
        reason=JUDGED_BEFORE,
    )
    assert "answer b#j3 JoinGroup generation=3" in str(talk.send(join("a", "j3", member=LEADER)))


@pytest.mark.parametrize("make", [preparing, completing, stable])
def test_a_late_join_of_an_older_generation_does_nothing(make: Any) -> None:
    """Rule 12: an earlier producer instance delivers late."""
    talk = make()
    before = talk.group()

    assert talk.send(join("a", "j2", member=LEADER, generation=1)) == refused(
        "answer a#j2 JoinGroup ILLEGAL_GENERATION member=a-t-0-0",
        cause=f"r0-{talk.next_offset - 1}",
        reason=OTHER_GENERATION,
    )
    assert talk.group() == before


def test_of_two_joins_the_older_is_refused() -> None:
    """INV-17: a client that gave up waiting asks again under another id."""
    talk = preparing()
    talk.send(join("a", "j3", member=LEADER))

    assert talk.send(join("a", "j4", member=LEADER)) == [
        "answer a#j3 JoinGroup REBALANCE_IN_PROGRESS member=a-t-0-0"
    ]


def test_of_two_syncs_the_older_is_refused() -> None:
    """INV-17, likewise."""
    talk = completing()
    talk.send(sync("b", 2, FOLLOWER, "s1"))

    assert talk.send(sync("b", 2, FOLLOWER, "s2")) == [
        "answer b#s1 SyncGroup REBALANCE_IN_PROGRESS"
    ]


def test_a_join_under_the_id_of_a_parked_sync_answers_the_sync() -> None:
    """INV-17: a client that numbers each kind of request by itself."""
    talk = completing()
    talk.send(sync("b", 2, FOLLOWER, "7"))

    lines = talk.send(join("b", "7", member=FOLLOWER, protocols={"range": b"new"}))

    assert lines[0] == "answer b#7 SyncGroup REBALANCE_IN_PROGRESS"


def test_a_leave_is_answered_row_by_row() -> None:
    """KIP-345: one request for several members; the parked join of a leaver is answered.

    The second time it is gone, and a follower is removed by somebody else: it is told so.
    """
    talk = preparing()

    assert talk.send(leave("c", NEWCOMER, NEWCOMER, FOLLOWER)) == [
        "answer c#j1 JoinGroup UNKNOWN_MEMBER_ID member=c-t-0-8",
        "event MemberRemoved generation=2 member=c-t-0-8 cause=r0-10 reason=left client=c",
        "notify MemberRemoved member=c-t-0-8 reason=left",
        "assign c-t-0-8 gone",
        'event HandOverDelayed generation=2 member=b-t-0-3 cause=r0-10 reason="removed by c" '
        "client=b wait_ms=10000 wait_max_ms=20000",
        "event MemberRemoved generation=2 member=b-t-0-3 cause=r0-10 "
        'reason="removed by c" client=b',
        'notify MemberRemoved member=b-t-0-3 reason="removed by c"',
        "assign b-t-0-3 gone",
        "answer c#l LeaveGroup members=[(member=c-t-0-8 error=NONE), "
        "(member=c-t-0-8 error=UNKNOWN_MEMBER_ID), (member=b-t-0-3 error=NONE)]",
    ]


# -- quarantine ------------------------------------------------------------------------------


def break_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_draft: Any, request: Any) -> None:
        raise BrokenInvariant(f"a defect at {request.member}\ud800")

    monkeypatch.setitem(CLASSIC.handlers, api.Heartbeat, broken)


def test_a_defect_quarantines_its_group_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-42: the same record would break every replay; the job must live, and say so."""
    talk = preparing()
    talk.send(join("a", group="h"))
    kept = talk.group()
    break_heartbeats(monkeypatch)

    lines = talk.send(heartbeat("b", 2, FOLLOWER))

    at = talk.next_offset - 1
    assert lines == [
        f"event GroupQuarantined generation=2 cause=r0-{at} reason=BrokenInvariant",
        "answer b#h Heartbeat COORDINATOR_NOT_AVAILABLE",
    ]
    assert talk.group() == msgspec.structs.replace(kept, is_quarantined=True)
    assert talk.send(commit("a", 2, LEADER)) == [
        "answer a#c OffsetCommit COORDINATOR_NOT_AVAILABLE"
    ]
    assert talk.send(commit("a", group="h", generation=1, member="x"))[0] == (
        "answer[h] a#c OffsetCommit UNKNOWN_MEMBER_ID"
    )


def test_a_quarantined_group_has_no_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can heartbeat, so nobody may be expelled; and the shard's clock does not wait."""
    talk = preparing()
    break_heartbeats(monkeypatch)
    talk.send(heartbeat("b", 2, FOLLOWER))

    status = talk.shard.status()

    assert (status.has_deadline, status.owed) == (False, -1)
    assert status.cap_ms == limits.CLOCK_CAP_IDLE_MS
    assert talk.send(heartbeat("b", 2, FOLLOWER), after_ms=7_200_000) == [
        "answer b#h Heartbeat COORDINATOR_NOT_AVAILABLE"
    ]


def test_a_released_group_goes_on_with_full_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect was fixed, hours later: nobody is expelled for the time in between."""
    talk = preparing()
    with monkeypatch.context() as broken:
        break_heartbeats(broken)
        talk.send(heartbeat("b", 2, FOLLOWER))
    talk.end_batch()
    for _ in range(10):
        talk.tick(after_ms=600_000)

    lines = talk.send(release("ops"))

    at = talk.next_offset - 1
    assert lines == [
        f'event GroupReleased generation=2 cause=r0-{at} reason="released by ops"',
        "answer ops#q ReleaseQuarantine",
    ]
    assert talk.wait(9_000) == []
    talk.send(join("a", "j3", member=LEADER))
    assert "GenerationStarted generation=3" in str(talk.send(join("b", "j3", member=FOLLOWER)))


def test_only_a_quarantined_group_can_be_released() -> None:
    """An operator's typing error."""
    talk = settled()

    assert talk.send(release("ops")) == ["answer ops#q ReleaseQuarantine INVALID_REQUEST"]
    assert talk.send(release("ops", group="h")) == [
        "answer[h] ops#q ReleaseQuarantine GROUP_ID_NOT_FOUND"
    ]


def test_a_group_that_is_still_unsound_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be quarantined by its next request again."""
    talk = settled()
    break_heartbeats(monkeypatch)
    talk.send(heartbeat("b", 1, FOLLOWER))
    cell = talk.shard.groups["g"]
    cell._value = msgspec.structs.replace(talk.group(), leader="nobody")

    assert talk.send(release("ops")) == ["answer ops#q ReleaseQuarantine INVALID_REQUEST"]


def test_a_defect_in_a_deadline_quarantines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request caused it, so nobody is answered; every later record would meet it again."""

    def broken(_draft: Any, due: Any) -> None:
        raise ZeroDivisionError(due.kind)

    talk = settled()
    monkeypatch.setattr(CLASSIC, "fire", broken)

    assert talk.wait(12_000) == [
        "event GroupQuarantined generation=2 cause=r0-18 reason=ZeroDivisionError"
    ]


def test_a_first_request_that_meets_a_defect_makes_no_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is no state to keep."""
    break_heartbeats(monkeypatch)
    talk = Conversation()

    lines = talk.send(heartbeat("b", 1, "m"))

    assert lines[-1] == "answer b#h Heartbeat COORDINATOR_NOT_AVAILABLE"
    assert talk.shard.rows == {}


# -- the end of a batch ----------------------------------------------------------------------


def test_only_groups_that_changed_are_saved_and_progress_goes_to_members() -> None:
    """Healthy heartbeats cost one record per batch, not one each."""
    talk = settled()
    talk.send(commit("tool", group="other"))
    talk.end_batch()
    talk.send(heartbeat("a", 2, LEADER))

    assert talk.end_batch() == [f"progress offset={talk.next_offset - 1}"]


def test_a_batch_without_requests_tells_nothing() -> None:
    """Progress says that requests were judged."""
    talk = settled()
    talk.end_batch()

    assert talk.end_batch() == []


def test_the_order_of_commits_does_not_show_in_the_blob() -> None:
    """INV-03: what a rebuild reads from the compacted topic comes in another order."""
    rows = [api.CommittedOffset(topic, partition, 1) for topic in "ut" for partition in (2, 0, 1)]

    def offsets_of(rows: list[api.CommittedOffset]) -> bytes:
        talk = Conversation()
        talk.send(commit("tool", offsets=tuple(rows)))
        return bytes(talk.shard.groups["g"].encoded().tables["committed"].blocks)

    assert offsets_of(rows) == offsets_of(rows[::-1])


def test_a_blob_of_newer_code_is_refused() -> None:
    """An old job on a new checkpoint must not read numbers as other numbers."""
    blob = bytearray(fold(None, [], SETTINGS).blob)
    blob[1] = 99

    with pytest.raises(UnknownStateVersion, match="99"):
        Shard(bytes(blob), SETTINGS)


def test_an_empty_blob_is_no_new_shard() -> None:
    """A disk gave back a state of no bytes: all groups would be forgotten without a word."""
    with pytest.raises(msgspec.DecodeError):
        Shard(b"", SETTINGS)


def test_status_tells_what_the_driver_owes() -> None:
    """Rule 6: a tick is owed until it covers the newest output that somebody must react to."""
    talk = stable()
    assert (talk.shard.status().owed, talk.shard.status().has_deadline) == (7, True)

    talk.tick()
    assert (talk.shard.status().owed, talk.shard.status().has_deadline) == (-1, True)

    talk.send_all(leave("a", LEADER), leave("b", FOLLOWER))
    assert (talk.shard.status().owed, talk.shard.status().has_deadline) == (-1, False)


def test_records_without_value_are_rejected() -> None:
    """A tombstone in a topic that has none."""
    shard = Shard(None, SETTINGS)
    shard.judge(InputRecord("r", 0, 5, None))

    assert [output.topic for output in shard.outputs] == ["events"]


def test_a_record_without_the_brokers_time_is_refused_and_moves_no_clock():
    """Somebody set the topic to CreateTime for a minute: one event, and the job goes on."""
    before = fold(None, [InputRecord("r", 0, 1_000_000, b"{}")], SETTINGS)
    after = fold(before.blob, [InputRecord("r", 1, UNTRUSTED_TIME_MS, b"{}")], SETTINGS)

    assert after.status.position.clock_ms == before.status.position.clock_ms
    assert [b"LogAppendTime" in (output.value or b"") for output in after.outputs] == [True]


def test_a_blob_of_another_version_is_named_as_such():
    """An upgrade met a checkpoint of other code: one sentence, not a decoder's riddle."""
    with pytest.raises(UnknownStateVersion, match="--rebuild"):
        fold(msgspec.msgpack.encode([7, "whatever"]), [], SETTINGS)

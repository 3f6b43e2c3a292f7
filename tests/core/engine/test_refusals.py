"""What history keeps of refused requests: one line for each that wanted to change something."""

from typing import Any

import msgspec
import pytest

from coordlib import limits
from coordlib.core.wire import api
from coordlib.errors import ErrorCode
from tests.core.engine.refusals import refused
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    Conversation,
    commit,
    delete,
    delete_offsets,
    describe,
    fetch,
    find,
    heartbeat,
    join,
    leave,
    preparing,
    settings,
    settled,
    stable,
    sync,
)
from tests.tools.static_groups import guarded


def events(talk: Conversation) -> list[Any]:
    return [msgspec.json.decode(o.value or b"") for o in talk.outputs if o.topic == "events"]


def test_a_refused_join_tells_history_what_its_sender_was_told() -> None:
    """Why did this member not get in? The operator asks Delta, the developer has the exception:
    both read the same sentence."""
    talk = Conversation()
    talk.send(join("slow", session_timeout_ms=1_000))

    answer = msgspec.json.decode(talk.outputs[0].value or b"")
    (event,) = events(talk)
    assert event == {
        "v": 1,
        "event_id": "t-r0-0-0",
        "time_ms": talk.now_ms,
        "group": "g",
        "protocol": "classic",
        "type": "RequestRejected",
        "generation": -1,
        "member": "",
        "cause": "r0-0",
        "reason": "session_timeout_ms must be 6000 to 1800000.",
        "detail": {
            "error": "INVALID_SESSION_TIMEOUT",
            "request": "JoinGroup",
            "client": "slow",
        },
        "kind": "classic",
        "space": None,
    }
    assert event["reason"] == answer["message"]


@pytest.mark.parametrize(
    "request_",
    [
        join("x", session_timeout_ms=1),
        join("x", member="x-t-0-9"),
        join("x", protocols={}),
        sync("x", 2, "x-t-0-9"),
        delete("x"),
        delete_offsets("x", ("t", 0)),
    ],
)
def test_a_refusal_makes_no_group(request_: api.Request) -> None:
    """A client that asks for groups that are not there must not make any: not in the shard's
    state, not in the compacted topics."""
    talk = Conversation()

    answer, event = talk.send(request_)

    assert answer.startswith("answer x#")
    assert event.startswith("event RequestRejected ")
    assert " cause=r0-0 " in event
    assert talk.shard.rows == {}
    assert talk.end_batch() == []


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (heartbeat("x", 2, "x-t-0-9"), ErrorCode.UNKNOWN_MEMBER_ID),
        (heartbeat("b", 1, FOLLOWER), ErrorCode.ILLEGAL_GENERATION),
        (heartbeat("b", 2, FOLLOWER), ErrorCode.REBALANCE_IN_PROGRESS),
        (sync("b", 2, FOLLOWER), ErrorCode.REBALANCE_IN_PROGRESS),
    ],
)
def test_steps_of_the_protocol_are_no_history(request_: api.Request, error: ErrorCode) -> None:
    """A zombie heartbeats for ever: that it was removed stands in history once. And who is asked to
    join again is asked so by a rebalance, which is there too."""
    talk = preparing()
    before = len(events(talk))

    (answer,) = talk.send(request_)

    assert answer.endswith(error.name)
    assert len(events(talk)) == before


def test_an_id_that_is_announced_is_no_refusal() -> None:
    """KIP-394: it is told its id, and joins with it."""
    talk = Conversation(settings(requires_member_id=True))

    assert "MEMBER_ID_REQUIRED" in talk.send(join("x"))[-1]
    assert [event["type"] for event in events(talk)] == ["GroupCreated"]


def test_questions_are_no_history() -> None:
    """Nothing was to change: nobody asks later why it did not."""
    talk = settled()
    before = len(events(talk))
    talk.send_all(describe("x"), fetch("x"), find("x"), describe("x", group="h"))

    assert len(events(talk)) == before


def test_a_refused_commit_has_the_line_that_it_always_had() -> None:
    """CommitRefused, and not a second one of another type."""
    talk = settled()
    before = len(events(talk))
    talk.send(commit("x", 2, "x-t-0-9"))

    assert [event["type"] for event in events(talk)[before:]] == ["CommitRefused"]


@pytest.mark.parametrize(
    "request_",
    [
        join("b", "j9", member=FOLLOWER, instance="k"),
        sync("b", 2, FOLLOWER, instance="k"),
        join("b"),
    ],
)
def test_each_request_of_a_fenced_twin_is_told_once(request_: api.Request) -> None:
    """MemberFenced tells of the moment in which it was replaced; what it asks for afterwards, and
    does not get, is one line more."""
    talk = guarded()
    fenced = [event["type"] for event in events(talk)].count("MemberFenced")
    before = len(events(talk))
    talk.send(request_)

    (event,) = events(talk)[before:]
    assert fenced == 1
    assert (event["type"], event["detail"]["error"]) == ("RequestRejected", "FENCED_INSTANCE_ID")
    assert event["member"] == FOLLOWER


def test_a_parked_request_that_is_given_up_leaves_its_cause_and_nothing_else() -> None:
    """Whoever is removed while parked is told so; why stands in MemberRemoved."""
    talk = preparing()
    before = len(events(talk))
    talk.send(leave("c", "c-t-0-8"))

    assert [event["type"] for event in events(talk)[before:]] == ["MemberRemoved"]


def test_a_hostile_client_writes_at_most_one_line_per_request() -> None:
    """Nothing that it can send makes history grow faster than the log that it has to write, and
    the longest names make no long line."""
    talk = stable()
    before = len(events(talk))
    name = "€" * 50
    for number in range(limits.REFUSALS_REPORTED_MAX // 2):
        talk.send(join(name, f"j{number}", member="€" * 83, protocols={"€" * 83: b"m" * 1_000}))
        talk.send(sync(name, 2, "€" * 83, assignments={LEADER: b"p" * 100_000}))

    assert len(events(talk)) - before == limits.REFUSALS_REPORTED_MAX
    assert max(len(o.value or b"") for o in talk.outputs[-200:]) < 2_000


def test_rows_that_a_subscription_keeps_are_one_line_that_names_them() -> None:
    """An operator wonders later why these offsets are still there."""
    talk = stable()
    fields = {"protocol_type": "consumer", "protocols": {"range": b"unreadable"}, "group": "h"}
    talk.send(join("c", **fields))

    answer, event = talk.send(delete_offsets("ops", ("t", 1), ("u", 0), ("t", 0), group="h"))

    assert answer.count("GROUP_SUBSCRIBED_TO_TOPIC") == 3
    assert event == (
        f"event[h] RequestRejected generation=1 cause=r0-{talk.next_offset - 1} "
        "error=GROUP_SUBSCRIBED_TO_TOPIC request=OffsetDelete client=ops "
        "partitions=(t=[1, 0] u=[0])"
    )


def test_the_generation_is_that_of_the_group() -> None:
    """So that the refusal stands beside the generation in which it happened."""
    talk = settled()

    assert talk.send(sync("b", 1, FOLLOWER)) == refused(
        "answer b#s1 SyncGroup ILLEGAL_GENERATION", FOLLOWER, cause="r0-9"
    )

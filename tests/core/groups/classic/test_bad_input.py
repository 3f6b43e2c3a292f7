"""What bad input gets: Kafka's error and one sentence of what to do, or Kafka's indulgence.

Sizes, timeouts and offers of nothing stand in test_limits.py, fields that cannot be read in
core/wire/test_codec.py; here is what can be read and makes no sense. Where this coordinator is
stricter than Kafka, the docstring says so.
"""

import json
from typing import Any

import msgspec
import pytest

from coordlib import limits
from coordlib.config import load_config
from coordlib.core.engine.effects import REQUESTS, RESPONSES
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.groups.group import GroupSettings
from coordlib.core.wire import api, codec
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import ErrorCode, SetupError
from tests.core.engine.refusals import refused
from tests.tools import random_logs as logs
from tests.tools.core import Shard, set_value
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    SHARES,
    STATES,
    Conversation,
    commit,
    completing,
    delete,
    delete_offsets,
    fetch,
    heartbeat,
    join,
    leave,
    preparing,
    release,
    settings,
    settled,
    sync,
)
from tests.tools.static_groups import STATES as STATIC_STATES


def rejected(talk: Conversation, request: api.AnyRequest) -> tuple[str, str]:
    """How the format refuses a request: error and sentence."""
    talk.send(request)
    answer = json.loads(talk.outputs[-2].value or b"")
    assert answer["type"] == "Rejected"
    return answer["error"], answer["message"]


# -- every refusal says what to do ------------------------------------------------------------


def sentences(talk: Conversation) -> list[tuple[str, str]]:
    answers = [json.loads(o.value or b"") for o in talk.outputs if o.topic == RESPONSES]
    return [(a["error"], a["message"]) for a in answers if a.get("error", "NONE") != "NONE"]


@pytest.mark.parametrize("seed", range(20))
def test_every_refusal_is_a_kafka_error_and_a_sentence(seed: int) -> None:
    """INV-41: an error's name alone sends people to a search engine."""
    how = settings(requires_member_id=seed % 2 == 0, max_size=3, groups_per_shard_max=2)
    records, _ = logs.draw_log(seed, 150, how)
    talk = Conversation(how)
    for record in records:
        talk.now_ms = record.timestamp_ms
        if record.topic == REQUESTS:
            talk.send(record.value)

    said = sentences(talk)

    assert len(said) > 10
    for error, message in said:
        assert error in ErrorCode.__members__
        assert len(message.split()) >= 3
        assert message != error


def test_every_error_has_a_sentence_of_its_own() -> None:
    """What the coordinator says when it has nothing better to say."""
    whats = [code.what_to_do for code in ErrorCode]

    assert len(set(whats)) == len(whats)
    assert all(what.endswith(".") and len(what.split()) >= 3 for what in whats)


def message_of(talk: Conversation, request: api.AnyRequest) -> str:
    talk.send(request)
    return sentences(talk)[-1][1]


@pytest.mark.parametrize(
    ("state", "request_", "words"),
    [
        ("Stable", commit("tool"), "Stop the group's members first"),
        ("absent", commit("a", 1, LEADER), "generation -1"),
        ("Completing", commit("b", 2, FOLLOWER), "Sync first"),
        ("Stable", sync("b", 2, FOLLOWER, protocol="sticky"), "your JoinGroup's answer"),
        ("Stable", join("b", member=FOLLOWER, generation=1), "generation of your newest answer"),
        ("Stable", join("b", member="x"), "empty member id"),
        ("Stable", heartbeat("b", 1, FOLLOWER), "join again"),
        ("Stable", delete("ops"), "Stop the members first"),
        ("absent", delete("ops"), "Check the name"),
        ("Stable", delete_offsets("ops", ("t", 0)), "Stop the members first"),
        ("Stable", join("x", session_timeout_ms=1), "6000 to 1800000"),
        ("Stable", join("x", rebalance_timeout_ms=1), "6000 to 86400000"),
        ("Stable", join("x", protocol_type="connect"), "every member supports"),
        ("Stable", release("ops"), "not quarantined"),
    ],
)
def test_a_refusal_fits_its_case(state: str, request_: api.AnyRequest, words: str) -> None:
    """One error name stands for several mistakes; the sentence is for this one."""
    assert words in message_of(STATES[state](), request_)


def test_who_was_superseded_is_told_to_wait_for_the_newer_answer() -> None:
    """Told to join again it would supersede its own newer request, for ever."""
    talk = preparing()
    talk.send(join("b", "j8", member=FOLLOWER, generation=2))

    assert "newer request" in message_of(talk, join("b", "j9", member=FOLLOWER, generation=2))


def test_who_makes_one_group_too_many_is_told_which_bound_it_is() -> None:
    """The group itself is neither full nor quarantined."""
    talk = Conversation(settings(groups_per_shard_max=1))
    talk.send(commit("ops"))

    for request in (commit("ops", group="h"), join("a", group="h")):
        assert "groups_per_shard_max" in message_of(talk, request)


# -- assignments ------------------------------------------------------------------------------


def test_assignments_of_those_who_are_no_members_are_dropped() -> None:
    """A member left while the leader computed. Kafka asks for its own members' shares only."""
    talk = completing()

    lines = talk.send(sync("a", 2, LEADER, assignments={**SHARES, "ghost": b"p9"}))

    assert "ghost" not in str(lines)
    assert {m.member: m.assignment for m in talk.group().members.values()} == SHARES


def test_a_leader_that_forgets_everybody_empties_their_shares() -> None:
    """Its assignor returned nothing: all get nothing, and what they had before is not kept."""
    talk = settled()
    talk.send_all(
        join("a", "j3", member=LEADER, generation=2), join("b", "j3", member=FOLLOWER, generation=2)
    )
    talk.send(sync("a", 3, LEADER))

    assert talk.send(sync("b", 3, FOLLOWER)) == [
        f"answer b#s1 SyncGroup protocol_type=demo protocol=range fence={talk.next_offset - 2}"
    ]
    assert {m.assignment for m in talk.group().members.values()} == {b""}


def test_assignments_of_a_follower_are_not_looked_at() -> None:
    """A follower believes that it leads: it is parked as any follower, as in Kafka."""
    talk = completing()

    assert talk.send(sync("b", 2, FOLLOWER, assignments={FOLLOWER: b"all"})) == []
    assert talk.group().members[FOLLOWER].assignment == b""


def test_a_share_that_is_given_twice_is_refused() -> None:
    """Stricter than Kafka, where the last row wins: an assignor that contradicts itself is told."""
    talk = completing()
    rows = (api.MemberAssignment(FOLLOWER, b"p0"), api.MemberAssignment(FOLLOWER, b"p1"))
    request = msgspec.structs.replace(sync("a", 2, LEADER), assignments=rows)

    assert rejected(talk, request) == (
        "INVALID_REQUEST",
        "assignments names one member twice: give each one share.",
    )
    assert talk.group().state == "CompletingRebalance"


@pytest.mark.parametrize("share", [b"\x00", b"p0", b"\xff\xff\x00\x00\x00\x00"])
def test_a_share_that_no_consumer_can_read_is_handed_on(share: bytes) -> None:
    """Bytes are the members' own, also in a group of consumers; history says why it shows none."""
    talk = Conversation()
    talk.send(join("a", protocol_type="consumer", protocols={"range": b"no subscription"}))
    lines = talk.send(sync("a", 1, LEADER, assignments={LEADER: share}))

    (issued,) = [line for line in lines if "AssignmentIssued" in line]
    assert " unreadable=" in issued
    assert talk.group().members[LEADER].assignment == share
    answer = json.loads(talk.outputs[-1].value or b"")
    assert msgspec.convert(answer["assignment"], bytes) == share


def test_consumers_whose_metadata_nobody_can_read_form_a_group() -> None:
    """Kafka admits them too. What they subscribe to is unknown, so that nothing of theirs is
    deleted or expires: test_admin.py, test_retention.py."""
    talk = Conversation()

    lines = talk.send(join("a", protocol_type="consumer", protocols={"range": b"\x00"}))

    assert lines[-1].startswith("event GenerationStarted generation=1 ")


# -- offers -----------------------------------------------------------------------------------


def test_a_protocol_that_is_offered_twice_is_refused() -> None:
    """Stricter than Kafka, which would count one member twice among those that support it."""
    twice = (api.Protocol("range", b"1"), api.Protocol("range", b"2"))

    assert rejected(Conversation(), join("a", protocols=twice)) == (
        "INVALID_REQUEST",
        "protocols names one protocol twice: name each once.",
    )


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (join("x", member="x-t-0-99", protocols={"new": b""}), "UNKNOWN_MEMBER_ID"),
        (join("x", member="x-t-0-99", protocol_type="connect"), "UNKNOWN_MEMBER_ID"),
        (join("b", member=FOLLOWER, instance="i", protocols={}), "FENCED_INSTANCE_ID"),
    ],
)
def test_who_somebody_is_comes_before_what_it_offers(request_: api.JoinGroup, error: str) -> None:
    """Kafka looks at size and protocols first: a member that was expelled from a full group would
    read that the group is full, which is fatal, and not that it must join anew."""
    talk = STATIC_STATES["Stable"]()
    talk.use(settings(max_size=2))

    assert talk.send(request_)[0].split()[:4] == [
        "answer",
        f"{request_.client}#j1",
        "JoinGroup",
        error,
    ]


def test_a_lone_member_cannot_change_to_a_protocol_that_it_did_not_offer() -> None:
    """As in Kafka: the group supports what its members offered so far, this one included. It
    leaves and joins anew, or offers both for one rebalance."""
    talk = Conversation()
    talk.send_all(join("a"), sync("a", 1, LEADER))

    lines = talk.send(join("a", "j2", member=LEADER, generation=1, protocols={"new": b""}))
    accepted = talk.send(
        join("a", "j3", member=LEADER, generation=1, protocols={"new": b"", "range": b"m"})
    )

    assert lines == refused(
        "answer a#j2 JoinGroup INCONSISTENT_GROUP_PROTOCOL member=a-t-0-0",
        generation=1,
        cause="r0-2",
    )
    assert "protocol=new" in accepted[-1]


# -- timeouts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "longest_ms"),
    [("session_timeout_ms", 1_800_000), ("rebalance_timeout_ms", 86_400_000)],
)
@pytest.mark.parametrize(("value", "error"), [(0, "INVALID_SESSION_TIMEOUT"), (-1, None)])
def test_no_time_at_all_is_refused(
    field: str, longest_ms: int, value: int, error: str | None
) -> None:
    """Kafka bounds the session only; a rebalance timeout of nothing would expel everybody, and
    CAP is a fifth of it. Below zero the number itself is none."""
    request = join("a", **{field: value})
    talk = Conversation()
    if error is not None:
        assert talk.send(request) == refused(
            f"answer a#j1 JoinGroup {error}",
            generation=0,
            cause="r0-0",
            reason=f"{field} must be 6000 to {longest_ms}.",
        )
    else:
        assert rejected(talk, request) == (
            "INVALID_REQUEST",
            f"Expected `int` >= 0 - at `$.{field}`",
        )
    assert talk.shard.rows == {}


def test_a_member_may_not_ask_for_more_by_joining_again() -> None:
    """The bounds hold for every JoinGroup, and the refused one leaves the older ones in place."""
    talk = settled()
    request = join("b", "j9", member=FOLLOWER, rebalance_timeout_ms=limits.INT32_MAX)

    assert talk.send(request) == refused(
        "answer b#j9 JoinGroup INVALID_SESSION_TIMEOUT member=b-t-0-3",
        cause="r0-9",
        reason="rebalance_timeout_ms must be 6000 to 86400000.",
    )
    assert talk.group().rebalance_timeout_ms == 20_000


# -- positions --------------------------------------------------------------------------------


def test_positions_that_make_no_sense_are_kept_as_given() -> None:
    """As in Kafka's coordinator: below zero, of a partition that the topic does not have, of a
    leader epoch that never was. Whoever reads there meets offset-out-of-range, as always."""
    last = limits.INT32_MAX
    rows = (
        api.CommittedOffset("t", last, -(2**63), leader_epoch=last),
        api.CommittedOffset("no such topic", 0, 2**63 - 1),
    )
    talk = settled()
    talk.send(commit("b", 2, FOLLOWER, offsets=rows))

    assert talk.send(fetch("b")) == [
        'answer b#f OffsetFetch offsets=[(topic="no such topic" offset=9223372036854775807 '
        f"error=NONE), (topic=t partition={last} offset=-9223372036854775808 "
        f"leader_epoch={last} error=NONE)] parts=1"
    ]


@pytest.mark.parametrize(
    ("row", "where"),
    [
        ({"partition": -1}, "partition"),
        ({"partition": 2**31}, "partition"),
        ({"offset": 2**63}, "offset"),
        ({"leader_epoch": -2}, "leader_epoch"),
        ({"leader_epoch": 2**31}, "leader_epoch"),
        ({"topic": ""}, "topic"),
    ],
)
def test_numbers_that_are_none_are_refused(row: dict[str, Any], where: str) -> None:
    """Kafka's fields are int32 and int64; a partition below zero it refuses as unknown. Nothing
    else of the request is stored: it is no request."""
    fields = {"topic": "t", "partition": 0, "offset": 1, **row}
    request = json.loads(codec.encode(commit("a")))
    request["offsets"] = [{"topic": "t", "partition": 5, "offset": 1}, fields]
    talk = Conversation()

    lines = talk.send(json.dumps(request).encode())

    assert [line.split()[:4] for line in lines[:1]] == [
        ["answer", "a#c", "Rejected", "INVALID_REQUEST"]
    ]
    assert where in lines[0]
    assert talk.shard.rows == {}


@pytest.mark.parametrize(
    ("metadata", "accepted"),
    [
        ("m" * 4_096, True),
        ("m" * 4_097, False),
        ("\u20ac" * 4_096, True),
        ("\U0001f600" * 2_048, True),
        ("\U0001f600" * 2_049, False),
    ],
)
def test_metadata_is_measured_as_kafka_measures_it(metadata: str, accepted: bool) -> None:
    """testOffsetMetadataTooLarge: by Java's length, in which an emoji counts twice."""
    rows = (api.CommittedOffset("t", 0, 1, metadata=metadata),)

    lines = Conversation().send(commit("a", offsets=rows))

    assert ("OFFSET_METADATA_TOO_LARGE" in str(lines)) is not accepted


def test_a_member_that_is_named_twice_in_a_leave_is_gone_the_second_time() -> None:
    """As in Kafka: each row for itself, one rebalance."""
    lines = settled().send(leave("b", FOLLOWER, FOLLOWER))

    assert "(member=b-t-0-3 error=NONE), (member=b-t-0-3 error=UNKNOWN_MEMBER_ID)" in str(lines)
    assert sum("RebalanceStarted" in line for line in lines) == 1


# -- generations ------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [name for name in STATES if name not in ("absent", "Empty")])
@pytest.mark.parametrize("generation", [0, 3, limits.INT32_MAX])
def test_a_generation_of_another_time_is_illegal(state: str, generation: int) -> None:
    """Also one that is yet to come: nobody can know it."""
    for request in (
        heartbeat("b", generation, FOLLOWER),
        sync("b", generation, FOLLOWER),
        commit("b", generation, FOLLOWER),
        join("b", "j9", member=FOLLOWER, generation=generation),
    ):
        assert STATES[state]().send(request)[0].split()[3:4] == ["ILLEGAL_GENERATION"]


@pytest.mark.parametrize("generation", [-2, 2**31])
def test_a_number_that_no_generation_has_is_no_request(generation: int) -> None:
    """Kafka's generations are int32, and -1 means none."""
    for request in (heartbeat("b", generation, FOLLOWER), commit("b", generation, FOLLOWER)):
        error, message = rejected(settled(), request)
        assert (error, "generation" in message) == ("INVALID_REQUEST", True)


def with_generation(talk: Conversation, generation: int) -> Conversation:
    """The same group after very many rebalances."""
    changed = msgspec.structs.replace(talk.group(), generation=generation)
    set_value(talk.shard, "g", changed)
    talk.end_batch()
    return talk


def test_after_the_last_generation_comes_the_first() -> None:
    """INV-11. One rebalance a second for 68 years; Kafka's number would turn negative, and its
    members' requests would mean nobody's. Fences go on rising."""
    last = limits.INT32_MAX
    talk = with_generation(settled(), last)
    fence = talk.group().fence
    assert talk.send(heartbeat("a", last, LEADER)) == []
    assert talk.send(heartbeat("b", last, FOLLOWER)) == []

    talk.send(join("a", "j3", member=LEADER, generation=last))
    lines = talk.send(join("b", "j3", member=FOLLOWER, generation=last))

    assert "answer b#j3 JoinGroup generation=1 " in str(lines)
    CLASSIC.check(talk.group())
    assert "ILLEGAL_GENERATION" in str(talk.send(heartbeat("a", last, LEADER)))
    talk.send(sync("a", 1, LEADER, assignments=SHARES))
    assert talk.group().state == "Stable"
    assert talk.group().fence > fence
    assert talk.send(commit("a", 1, LEADER))[-1].startswith("event OffsetsCommitted generation=1 ")


# -- static members ---------------------------------------------------------------------------


def test_an_instance_id_without_a_name_is_no_request() -> None:
    """Kafka's client refuses it; here everybody who writes the topic may forget to."""
    error, message = rejected(Conversation(), join("a", instance=""))

    assert (error, message.split()[0]) == ("INVALID_REQUEST", "instance")


def test_nobody_leaves_under_an_empty_name() -> None:
    """Neither a member nor an instance: the row is refused, and the group stays as it is."""
    for states in (STATES, STATIC_STATES):
        talk = states["Stable"]()
        before = talk.group()

        assert talk.send(leave("ops", "")) == [
            "answer ops#l LeaveGroup members=[(error=UNKNOWN_MEMBER_ID)]"
        ]
        assert talk.group() == before


# -- settings ---------------------------------------------------------------------------------


def test_the_longest_retention_is_the_one_of_kafka() -> None:
    """testOffsetsRetentionMsIntegerOverflow: 2,147,483,647 minutes, four thousand years."""
    longest_ms = limits.INT32_MAX * 60_000
    config = load_config(None, [f"group.offsets_retention_ms={longest_ms}"])
    talk = Conversation(
        msgspec.structs.replace(
            settings(), bounds=config.shard, families={"group": GroupSettings(config.group)}
        )
    )
    talk.send(commit("tool"))
    for _ in range(3):
        assert talk.tick(after_ms=600_000) == []
    talk.end_batch()

    assert sum(Shard(talk.shard.encode(), talk.settings).groups["g"].counts.values()) == 1
    with pytest.raises(SetupError, match="offsets_retention_ms"):
        load_config(None, [f"group.offsets_retention_ms={longest_ms + 1}"])


def test_metadata_of_consumers_is_bounded_by_the_request_not_by_its_counts() -> None:
    """A subscription that claims two thousand million topics is unreadable at once."""
    huge = b"\x00\x00\x7f\xff\xff\xff"
    with pytest.raises(cp.Unreadable):
        cp.decode_topics(huge)
    talk = Conversation()
    talk.send(join("a", protocol_type="consumer", protocols={"range": huge}))

    assert "GROUP_SUBSCRIBED_TO_TOPIC" in talk.send(delete_offsets("ops", ("t", 0)))[-1]

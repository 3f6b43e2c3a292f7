"""What clients say of themselves beside the protocol: kept and shown, and it decides nothing."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine.effects import COMMITTED, EVENTS, RESPONSES, Output
from coordlib.core.engine.tables import name_bytes
from coordlib.core.groups.offsets.tables import offset_bytes
from coordlib.core.wire import api, codec
from coordlib.errors import ErrorCode
from tests.tools import assigned_groups, assigned_logs, driving, random_logs
from tests.tools.assigned_groups import subscribe
from tests.tools.core import InputRecord, ShardSettings, fold, offsets_of, restored
from tests.tools.driving import LEADER, Conversation, commit, describe, fetch, join

TIMED = api.CommittedOffset("t", 0, 5, timestamp_ms=1_795_243_200_000)
PLAIN = api.CommittedOffset("t", 0, 5)


def values(talk: Conversation, topic: str) -> list[dict[str, Any]]:
    return [json.loads(each.value or b"{}") for each in talk.outputs if each.topic == topic]


# -- the client's time of a position -------------------------------------------------------------


def test_a_commit_keeps_the_time_that_its_client_named() -> None:
    """How old is what the group has done? Only the client can tell, and asks later."""
    talk = Conversation()
    talk.send(commit("tool", offsets=(TIMED, api.CommittedOffset("t", 1, 6))))
    talk.send(fetch("tool"))

    rows = values(talk, RESPONSES)[-1]["offsets"]
    assert [row.get("timestamp_ms") for row in rows] == [1_795_243_200_000, None]
    assert [row.get("timestamp_ms") for row in values(talk, COMMITTED)] == [
        1_795_243_200_000,
        None,
    ]
    (line,) = [each for each in values(talk, EVENTS) if each["type"] == "OffsetsCommitted"]
    assert line["detail"]["offsets"] == [
        {"topic": "t", "partition": 0, "offset": 5, "timestamp_ms": 1_795_243_200_000},
        {"topic": "t", "partition": 1, "offset": 6},
    ]


def test_a_later_commit_without_a_time_has_none() -> None:
    """The time belongs to the position, not to the partition: an old one would be a lie."""
    talk = Conversation()
    talk.send_all(commit("tool", offsets=(TIMED,)), commit("tool", offsets=(PLAIN,)), fetch("tool"))

    (row,) = values(talk, RESPONSES)[-1]["offsets"]
    assert "timestamp_ms" not in row


@pytest.mark.parametrize("rows", [(TIMED,), (PLAIN,), (PLAIN, TIMED), (TIMED, PLAIN)], ids=len)
def test_the_bytes_of_a_time_are_counted_and_come_back(rows: tuple[Any, ...]) -> None:
    """INV-15: what was counted for a time would else stay counted when the time is gone."""
    talk = Conversation()
    for number, row in enumerate(rows):
        talk.send(commit("tool", offsets=(row,), id=f"c{number}"))

    entries = offsets_of(talk.shard.groups["g"])
    is_timed = rows[-1] is TIMED
    assert entries.size_bytes == offset_bytes("", "", is_timed) + name_bytes("t")


@given(
    timestamp_ms=st.integers(0, limits.INT64_MAX) | st.just(msgspec.UNSET),
    offset=st.integers(-limits.INT64_MAX - 1, limits.INT64_MAX),
    epoch=st.integers(-1, limits.INT32_MAX),
    partition=st.integers(0, limits.INT32_MAX),
    metadata=st.text(max_size=300),
)
@settings(max_examples=100)
def test_no_offset_is_larger_than_it_is_counted(
    timestamp_ms: Any, offset: int, epoch: int, partition: int, metadata: str
) -> None:
    """INV-43: the bound of a shard is a bound of its blob."""
    row = api.CommittedOffset("t", partition, offset, epoch, metadata, timestamp_ms)
    talk = Conversation()
    talk.send(commit("tool", offsets=(row,)))

    kept = offsets_of(talk.shard.groups["g"]).stored()
    assert len(kept.blocks) <= kept.size_bytes


@pytest.mark.parametrize("told", ["-1", "null", '"now"', "9223372036854775808"])
def test_a_time_that_is_none_is_refused(told: str) -> None:
    """A client that means "none" leaves it out; anything else is a mistake."""
    row = f'{{"topic":"t","partition":0,"offset":5,"timestamp_ms":{told}}}'
    talk = Conversation()
    talk.send(
        f'{{"v":1,"type":"OffsetCommit","id":"c","client":"a","group":"g","offsets":[{row}]}}'.encode()
    )

    (answer,) = values(talk, RESPONSES)
    assert answer["error"] == ErrorCode.INVALID_REQUEST.name
    assert "timestamp_ms" in answer["message"]


# -- the client's host ---------------------------------------------------------------------------


def hosts(talk: Conversation) -> list[str | None]:
    """As DescribeGroup shows them."""
    talk.send(describe("ops"))
    return [row.get("host") for row in values(talk, RESPONSES)[-1]["members"]]


@pytest.mark.parametrize("enter", [join, subscribe])
def test_members_are_described_with_their_hosts(enter: Callable[..., api.Request]) -> None:
    """On which machine runs the member that stands still? Its client id need not tell."""
    talk = Conversation()
    talk.send_all(enter("a", host="rack-1-7"), enter("b"))

    assert hosts(talk) == ["rack-1-7", None]
    joined = [each["detail"] for each in values(talk, EVENTS) if each["type"] == "MemberJoined"]
    assert [each.get("host") for each in joined] == ["rack-1-7", None]


def test_an_announced_member_has_the_host_that_it_joins_with() -> None:
    """KIP-394: the member is made by its second JoinGroup."""
    talk = Conversation(driving.settings(requires_member_id=True))
    talk.send(join("a", host="one"))
    member = values(talk, RESPONSES)[-1]["member"]
    talk.send(join("a", "j2", member=member, host="two"))

    assert hosts(talk) == ["two"]


def test_a_static_member_that_comes_back_elsewhere_has_its_new_host() -> None:
    """A pod that is scheduled to another node: same instance, other machine."""
    talk = Conversation()
    talk.send(join("a", instance="i", host="one"))
    talk.wait(7_000)
    talk.send(join("a2", instance="i", host="two"))

    assert hosts(talk) == ["two"]


def test_another_host_in_a_rejoin_is_no_change_of_the_member() -> None:
    """INV-83: a machine that was renamed must not cost the group a rebalance."""
    talk = driving.settled()
    before = talk.group().state
    member = next(each for each in talk.group().members if each != LEADER)
    again = join("b", "again", member=member, generation=talk.group().generation, host="renamed")
    lines = talk.send(again)

    assert talk.group().state is before
    assert not [line for line in lines if "RebalanceStarted" in line]
    assert hosts(talk) == [None, None]


def test_another_host_in_a_subscribe_makes_no_new_division() -> None:
    """INV-83"""
    talk = assigned_groups.stable()
    generation = talk.group().generation
    talk.send(subscribe("a", "2", member=assigned_groups.A, generation=generation, host="renamed"))

    assert talk.group().generation == generation


@pytest.mark.parametrize("host", ["", "a\nb", "h" * (limits.NAME_LENGTH_MAX + 1)], ids=len)
@pytest.mark.parametrize("enter", [join, subscribe])
def test_a_host_is_a_name(enter: Callable[..., api.Request], host: str) -> None:
    """It is shown on terminals."""
    talk = Conversation()
    talk.send(enter("a", host=host))

    (answer,) = values(talk, RESPONSES)
    assert answer["error"] == "INVALID_REQUEST"
    assert "host" in answer["message"]


def test_the_saved_heads_keep_hosts_and_times() -> None:
    """A rebuild must show what was shown before."""
    talk = driving.settled()
    talk.send(join("c", host="rack-1-7"))
    talk.send(commit("tool", group="tools", offsets=(TIMED,)))
    talk.end_batch()
    position = talk.shard.status().position
    blob = restored(talk.outputs, position)
    assert blob is not None
    talk.load(blob)
    talk.send(fetch("tool", group="tools"))

    assert values(talk, RESPONSES)[-1]["offsets"][0]["timestamp_ms"] == TIMED.timestamp_ms
    assert hosts(talk) == [None, None, "rack-1-7"]


# -- it decides nothing --------------------------------------------------------------------------


def with_own_words(record: InputRecord) -> InputRecord:
    """The same record of a client that names its host, and its time of each position."""
    request = codec.decode_request(record.value)
    if isinstance(request, api.JoinGroup | api.Subscribe):
        request = replace(request, host=f"host-{record.offset}")
    elif isinstance(request, api.OffsetCommit | api.Release):
        rows = (replace(row, timestamp_ms=record.offset) for row in request.offsets)
        request = replace(request, offsets=tuple(rows))
    else:
        return record
    return replace(record, value=codec.encode(request))


#: The two fields, and the number of bytes that a saved head has by them.
OWN_WORDS = ("host", "timestamp_ms", "size_bytes")


def without(tree: Any) -> Any:
    """A value without them, wherever they stand."""
    if isinstance(tree, dict):
        return {name: without(value) for name, value in tree.items() if name not in OWN_WORDS}
    return [without(each) for each in tree] if isinstance(tree, list) else tree


def plain(outputs: list[Output]) -> list[tuple[Any, ...]]:
    return [
        (o.topic, o.partition, o.key, None if o.value is None else without(json.loads(o.value)))
        for o in outputs
    ]


def assert_decides_nothing(log: list[InputRecord], how: ShardSettings) -> None:
    told = [with_own_words(each) for each in log]
    one, other = fold(None, log, how), fold(None, told, how)

    assert plain(other.outputs) == plain(one.outputs)
    assert other.status == one.status


@given(seed=st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_what_clients_say_of_themselves_decides_nothing(seed: int) -> None:
    """INV-83: two logs that differ in it alone give the same answers, owners and history."""
    log, _ = random_logs.draw_log(seed, 150, driving.SETTINGS, positions=True)
    assert any(with_own_words(each) != each for each in log)
    assert_decides_nothing(log, driving.SETTINGS)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_nor_does_it_in_server_assigned_groups(seed: int) -> None:
    """INV-83"""
    log, talk = assigned_logs.draw_log(seed, 150)
    assert any(with_own_words(each) != each for each in log)
    assert_decides_nothing(log, talk.settings)

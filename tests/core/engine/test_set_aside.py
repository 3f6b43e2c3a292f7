"""INV-144: a request that is set aside is rejected, whoever judges it, and nothing else changes."""

from typing import Any

import msgspec
import pytest

from coordlib.core.engine.effects import COMMITTED, EVENTS, REQUESTS, RESPONSES
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from tests.core.engine.test_control import state_of
from tests.tools.core import InputRecord, ShardSettings, fold
from tests.tools.driving import (
    LEADER,
    SETTINGS,
    START_MS,
    Conversation,
    commit,
    heartbeat,
    join,
    settled,
    stable,
)

WHY = "It has ended the job."


def aside(*records: str) -> ShardSettings:
    return msgspec.structs.replace(SETTINGS, set_aside=dict.fromkeys(records, WHY))


def values(talk: Conversation, topic: str) -> list[Any]:
    return [msgspec.json.decode(o.value or b"") for o in talk.outputs if o.topic == topic]


@pytest.mark.parametrize("topic", [REQUESTS, COMMITS])
def test_its_sender_is_answered_and_history_has_a_line(topic: str) -> None:
    """Positions of no member, too large for the job: nobody may wait for an answer for ever."""
    talk = Conversation(aside(f"{topic}0-1"))
    talk.send(commit("c", offset=7), topic=topic)
    told = talk.send_raw(commit("c", offset=9, id="big"), topic=topic)

    assert [each.topic for each in told] == [RESPONSES, EVENTS]
    answer, line = (msgspec.json.decode(each.value or b"") for each in told)
    assert (answer["id"], answer["error"], answer["message"]) == ("big", "POLICY_VIOLATION", WHY)
    assert (line["type"], line["cause"], line["reason"]) == (
        "RequestRejected",
        f"{topic}0-1",
        WHY,
    )
    (kept,) = values(talk, COMMITTED)
    assert kept["offset"] == 7


def test_it_is_judged_alike_in_any_cut_and_when_it_is_judged_again() -> None:
    """A batch ran, was not committed, and runs again; a rebuild folds on behind it."""
    how = aside("r0-2", "o0-0")
    talk = Conversation(how)
    for name in "abcd":
        talk.send(join(name), after_ms=10)
    talk.send(commit("c", offset=9), topic=COMMITS)
    in_pieces, told = None, []
    for record in sorted(talk.log, key=lambda each: each.topic == COMMITS):
        done = fold(in_pieces, [record], how)
        in_pieces = done.blob
        told += [each for each in done.outputs if each.topic == EVENTS]

    assert in_pieces == talk.shard.encode()
    assert told == [each for each in talk.outputs if each.topic == EVENTS]
    rejected = [each for each in told if WHY.encode() in (each.value or b"")]
    assert len(rejected) == 2


def test_time_goes_on_with_it() -> None:
    """What is due at its time is done before it is rejected: the clock is the log's."""
    talk = settled()
    talk.wait(9_500, 500)
    talk.use(aside(f"r0-{talk.next_offset}"))
    lines = talk.send(commit("z", group="other"), after_ms=500)

    assert "MemberRemoved" in " ".join(lines)
    assert "POLICY_VIOLATION" in lines[-2]


def test_a_heartbeat_that_is_set_aside_proves_nothing() -> None:
    """The quick way of heartbeats passes by no rejection."""
    talk = settled()
    talk.use(aside(f"r0-{talk.next_offset}"))
    (answer, line) = talk.send(heartbeat("a", 2, LEADER))

    assert "POLICY_VIOLATION" in answer
    assert "RequestRejected" in line


@pytest.mark.parametrize(
    "record",
    [
        api.Tick(v=1, published=5),
        api.FromShard(v=1, source=0, seq=1, body=msgspec.Raw(b"{}")),
        api.TopicMetadata(v=1, topics={}),
    ],
)
def test_what_the_job_has_written_is_never_set_aside(record: api.Control) -> None:
    """A message between shards that is not judged would hold up its channel for ever."""
    plain, talk = stable(), stable()
    talk.use(aside(f"r0-{talk.next_offset}"))
    for each in (plain, talk):
        each.send(record)

    assert [o.value for o in talk.outputs] == [o.value for o in plain.outputs]
    assert state_of(talk.shard) == state_of(plain.shard)


@pytest.mark.parametrize("value", [None, b"", b"\xff", b'{"id":"i","client":"c","type":"Nothing"}'])
def test_what_cannot_be_read_is_refused_as_ever(value: bytes | None) -> None:
    """Its sender is told what is wrong with it."""
    record = InputRecord(REQUESTS, 0, START_MS, value)

    assert fold(None, [record], aside("r0-0")) == fold(None, [record], SETTINGS)

"""Rows of a commit that are not stored: one line of history, and nothing else, comes of them."""

import json
from typing import Any

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine.effects import COMMITTED, EVENTS
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from tests.tools import assigned_groups as assigned
from tests.tools.core import ShardSettings
from tests.tools.driving import (
    LEADER,
    Conversation,
    commit,
    describe,
    ended,
    fetch,
    pending_commit,
    settings,
    settled,
)

SHORT = settings(offset_metadata_length_max=1)
TOO_LONG = api.CommittedOffset("t", 0, 1, metadata="long")
TOO_LONG_TOO = api.CommittedOffset("t", 1, 1, metadata="long")


def events(talk: Conversation) -> list[dict[str, Any]]:
    return [json.loads(o.value or b"") for o in talk.outputs if o.topic == EVENTS]


def in_production(how: ShardSettings) -> ShardSettings:
    return msgspec.structs.replace(how, checks_invariants=False)


@pytest.mark.parametrize("topic", ["r", COMMITS])
@pytest.mark.parametrize("how", [SHORT, in_production(SHORT)], ids=["checked", "production"])
@pytest.mark.parametrize("rows", [(TOO_LONG,), (TOO_LONG, TOO_LONG_TOO)], ids=len)
def test_a_commit_of_which_nothing_is_stored_makes_no_group(
    rows: tuple[api.CommittedOffset, ...], how: ShardSettings, topic: str
) -> None:
    """INV-24: a tool with a wrong setting, and a group of that name counted against the shard's."""
    talk = Conversation(how)

    lines = talk.send(commit("tool", offsets=rows), topic=topic)

    assert lines[0].startswith("answer tool#c OffsetCommit")
    assert [line.split()[1] for line in lines[1:]] == ["CommitRefused"]
    assert talk.shard.rows == {}
    assert talk.end_batch() in ([], ["notify Progress"])
    assert talk.send(describe("x")) == ["answer x#d DescribeGroup state=Dead"]


def test_it_books_no_place_of_the_new_groups() -> None:
    """The rate of new groups is for those that are made."""
    talk = Conversation(settings(offset_metadata_length_max=1, new_groups_per_second_max=1))
    for number in range(20):
        talk.send(commit("tool", group=f"g{number}", offsets=(TOO_LONG,)))

    assert talk.send(commit("tool", group="h"))[0].startswith("event[h] GroupCreated")


def test_one_row_that_is_stored_makes_the_group() -> None:
    """Row by row, as at Kafka's coordinator."""
    talk = Conversation(SHORT)

    lines = talk.send(commit("tool", offsets=(TOO_LONG, api.CommittedOffset("t", 1, 5))))

    assert lines == [
        'event GroupCreated cause=r0-0 reason="first commit"',
        "commit t/1 offset=5",
        "answer tool#c OffsetCommit failed=[(topic=t error=OFFSET_METADATA_TOO_LARGE)]",
        "event OffsetsCommitted cause=r0-0 client=tool offsets=[(topic=t partition=1 offset=5)]",
        "event CommitRefused cause=r0-0 reason=OFFSET_METADATA_TOO_LARGE client=tool "
        "offsets=[(topic=t offset=1 error=OFFSET_METADATA_TOO_LARGE)]",
    ]


def test_history_names_each_refused_row_with_its_error() -> None:
    """Who tried to commit what was not his, and how far? Only the history can tell afterwards."""
    talk = assigned.stable(SHORT)
    rows = (
        api.CommittedOffset("t", 2, 77),
        api.CommittedOffset("t", 0, 5),
        api.CommittedOffset("t", 1, 6, metadata="long"),
    )
    talk.send(commit("a", 2, assigned.A, offsets=rows))

    stored_line, refused_line = events(talk)[-2:]
    assert stored_line["type"] == "OffsetsCommitted"
    assert stored_line["detail"]["offsets"] == [{"topic": "t", "partition": 0, "offset": 5}]
    del refused_line["event_id"]
    assert refused_line == {
        "v": 1,
        "time_ms": talk.now_ms,
        "group": "g",
        "protocol": "assigned",
        "type": "CommitRefused",
        "generation": 2,
        "member": assigned.A,
        "cause": f"r0-{talk.next_offset - 1}",
        "reason": "OFFSET_METADATA_TOO_LARGE, PARTITION_NOT_OWNED",
        "detail": {
            "client": "a",
            "request_generation": 2,
            "offsets": [
                {"topic": "t", "partition": 2, "offset": 77, "error": "PARTITION_NOT_OWNED"},
                {"topic": "t", "partition": 1, "offset": 6, "error": "OFFSET_METADATA_TOO_LARGE"},
            ],
        },
        "kind": "assigned",
        "space": None,
    }


def test_offsets_of_a_release_that_are_refused_are_told_too() -> None:
    """A member that lets go commits, in the same record, what is another's."""
    talk = assigned.halved()
    rows = (api.CommittedOffset("t", 0, 7), api.CommittedOffset("t", 3, 8))
    talk.send(assigned.let_go("a", 2, assigned.A, cause=3, offsets=rows))

    (line,) = [event for event in events(talk) if event["type"] == "CommitRefused"]
    assert (line["member"], line["reason"]) == (assigned.A, "PARTITION_NOT_OWNED")
    assert line["detail"] == {
        "client": "a",
        "request_generation": 2,
        "offsets": [{"topic": "t", "partition": 0, "offset": 7, "error": "PARTITION_NOT_OWNED"}],
        "request": "Release",
    }


def test_a_flood_of_refused_rows_is_thinned_like_other_refusals() -> None:
    """A zombie commits in a loop what was given to another."""
    talk = assigned.stable()
    before = talk.send(fetch("x"))
    for number in range(limits.REFUSALS_REPORTED_MAX + 30):
        row = api.CommittedOffset("t", 2, number)
        talk.send(commit("a", 2, assigned.A, offsets=(row,)))
    talk.wait(2 * limits.REFUSALS_WINDOW_MS)
    talk.send(commit("x", 9, "nobody"))

    told = [event for event in events(talk) if event["type"] == "CommitRefused"]
    assert len(told) == limits.REFUSALS_REPORTED_MAX + 1
    assert told[-1]["detail"]["untold"] == 30
    assert talk.send(fetch("x")) == before


def test_the_largest_refused_commit_can_be_written() -> None:
    """INV-43: as many rows as a request may have, and almost as many bytes."""
    rows = tuple(
        api.CommittedOffset(f"{number:05}", 0, limits.INT32_MAX)
        for number in range(limits.OFFSETS_PER_REQUEST_MAX)
    )
    talk = settled(settings(offsets_per_group_max=1))
    talk.send(commit("a", 2, LEADER, offsets=(api.CommittedOffset("t", 0, 5),)))
    talk.send(commit("a", 2, LEADER, offsets=rows))

    (line,) = [event for event in events(talk) if event["type"] == "CommitRefused"]
    assert len(line["detail"]["offsets"]) == limits.OFFSETS_PER_REQUEST_MAX
    assert max(len(o.value or b"") for o in talk.outputs) < limits.OUTPUT_BYTES_MAX // 2


@pytest.mark.parametrize("topic", ["r", COMMITS])
def test_a_commit_of_no_member_keeps_no_member_in_its_rows(topic: str) -> None:
    """While the group is empty nobody looks at the name: 249 bytes in each of 10,000 records."""
    talk = Conversation()
    rows = tuple(api.CommittedOffset("t", partition, 1) for partition in range(3))

    talk.send(commit("tool", member="m" * limits.NAME_LENGTH_MAX, offsets=rows), topic=topic)
    at = talk.next_offset
    name = "m" * limits.NAME_LENGTH_MAX
    talk.send(pending_commit("tool", member=name, offsets=rows, group="h"))
    talk.send(ended(committed=[at]))

    kept = [json.loads(o.value or b"") for o in talk.outputs if o.topic == COMMITTED]
    assert [(each["member"], each["generation"]) for each in kept] == [("", -1)] * 6


def test_a_members_commit_keeps_its_member() -> None:
    """Of it the name is true."""
    talk = settled()

    talk.send(commit("a", talk.group().generation, LEADER))

    (kept,) = [json.loads(o.value or b"") for o in talk.outputs if o.topic == COMMITTED]
    assert (kept["member"], kept["generation"]) == (LEADER, 2)

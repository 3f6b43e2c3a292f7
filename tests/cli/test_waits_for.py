"""Whom a group waits for: the command reads from the topic what the coordinator would answer."""

from collections.abc import Callable

import msgspec
import pytest

from coordlib.cli.group_view import _group
from coordlib.coordinators.classic import machine
from coordlib.records import responses as rs
from coordlib.testing.driving import (
    FOLLOWER,
    LEADER,
    STATES,
    Conversation,
    completing,
    describe,
    join,
    leave,
    settings,
    settled,
    sync,
)
from tests.coordinators.classic import static_states


def announced() -> Conversation:
    """x was told its id; nobody has noticed."""
    talk = settled()
    talk.settings = talk.shard.settings = settings(requires_member_id=True)
    talk.send(join("x"))
    return talk


def removed() -> Conversation:
    """An operator removed b, who works; a has joined again, c is new."""
    talk = settled()
    talk.send_all(leave("ops", FOLLOWER), join("c"))
    talk.send(join("a", "j9", member=LEADER, generation=2))
    return talk


def half_synced() -> Conversation:
    """The leader has spoken, b has not asked yet."""
    talk = completing()
    talk.send(sync("a", 2, LEADER))
    return talk


WAITING: dict[str, tuple[Callable[[], Conversation], list[tuple[str, str]]]] = {
    "quiet": (settled, []),
    "announced": (announced, [("x-t-0-9", rs.NOT_JOINED)]),
    "replaced": (static_states.guarded, [(FOLLOWER, rs.NOT_STOPPED)]),
    "removed": (removed, [(FOLLOWER, rs.NOT_STOPPED)]),
    "preparing": (STATES["Preparing"], [(LEADER, rs.NOT_REJOINED), (FOLLOWER, rs.NOT_REJOINED)]),
    "completing": (completing, [(LEADER, rs.NOT_SYNCED), (FOLLOWER, rs.NOT_SYNCED)]),
    "half synced": (half_synced, [(FOLLOWER, rs.NOT_SYNCED)]),
}


@pytest.mark.parametrize("name", WAITING)
def test_the_topic_tells_what_the_coordinator_answers(name: str) -> None:
    """The job may be down just when an operator wants to know what holds a group up."""
    make, expected = WAITING[name]
    talk = make()

    seen = _group(b"g", machine.encode_saved(talk.group()))
    assert seen is not None
    talk.send(describe("ops"))
    answer = msgspec.json.decode(talk.outputs[-1].value or b"", type=rs.DescribeGroupResponse)

    assert [(each.member, each.reason) for each in seen.waits_for] == expected
    assert seen.waits_for == answer.waits_for
    assert {each.client for each in seen.waits_for} <= {"a", "b", "x"}

"""Whom a group waits for: the command reads from the topic what the coordinator would answer."""

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest

from coordlib.cli.groups import app
from coordlib.cli.groups.view import GroupView, _group, _named
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.wire import api
from tests.tools import static_groups
from tests.tools.driving import (
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


def announced() -> Conversation:
    """x was told its id; nobody has noticed."""
    talk = settled()
    talk.use(settings(requires_member_id=True))
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
    "announced": (announced, [("x-t-0-9", api.NOT_JOINED)]),
    "replaced": (static_groups.guarded, [(FOLLOWER, api.NOT_STOPPED)]),
    "removed": (removed, [(FOLLOWER, api.NOT_STOPPED)]),
    "preparing": (STATES["Preparing"], [(LEADER, api.NOT_REJOINED), (FOLLOWER, api.NOT_REJOINED)]),
    "completing": (completing, [(LEADER, api.NOT_SYNCED), (FOLLOWER, api.NOT_SYNCED)]),
    "half synced": (half_synced, [(FOLLOWER, api.NOT_SYNCED)]),
}


@pytest.mark.parametrize("name", WAITING)
def test_the_topic_tells_what_the_coordinator_answers(name: str) -> None:
    """The job may be down just when an operator wants to know what holds a group up."""
    make, expected = WAITING[name]
    talk = make()

    seen = _group(b"g", CLASSIC.save(talk.group()))
    assert seen is not None
    talk.send(describe("ops"))
    answer = msgspec.json.decode(talk.outputs[-1].value or b"", type=api.DescribeGroupResponse)

    assert [(each.member, each.reason) for each in seen.waits_for] == expected
    assert seen.waits_for == answer.waits_for
    assert {each.client for each in seen.waits_for} <= {"a", "b", "x"}


def failed() -> GroupView:
    talk = completing()
    why = {"error": "INCONSISTENT_GROUP_PROTOCOL", "message": "no such\x1b[2J customer"}
    talk.send(sync("a", 2, LEADER, **why))
    seen = _group(b"g", CLASSIC.save(talk.group()))
    assert seen is not None
    return GroupView(seen, shard=0, lines=(), as_of=None)


def test_describe_says_that_the_leader_could_not_assign(capsys: pytest.CaptureFixture[str]) -> None:
    """The group is Stable and has members, and every partition is without an owner."""
    app._print(failed(), datetime(2026, 3, 2, tzinfo=UTC))

    assert capsys.readouterr().err == (
        "Group g has no assignment: its leader could not assign partitions: "
        "INCONSISTENT_GROUP_PROTOCOL no such\\x1b[2J customer\n"
    )
    assert app._as_json(failed())["failure"] == {
        "error": "INCONSISTENT_GROUP_PROTOCOL",
        "message": "no such\x1b[2J customer",
    }


def test_describe_names_topics_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt topic looked like an empty one for ever."""
    seen = failed().group
    assert _named(seen) == frozenset(), "its metadata are no subscription"

    app._print(GroupView(seen, 0, (), None, ("late", "x\x1b")), datetime(2026, 3, 2, tzinfo=UTC))
    told = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["TOPICS-NOT-FOUND", "late, x\\x1b"] in told
    assert app._as_json(GroupView(seen, 0, (), None, ("late",)))["missing-topics"] == ["late"]

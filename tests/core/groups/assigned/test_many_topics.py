"""Offsets of thousands of topics: whether somebody reads each is asked once of all members."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from coordlib.core.groups.assigned.group import Group, Partitions
from coordlib.core.wire import api
from tests.tools.assigned_groups import stable, subscribe, told
from tests.tools.driving import Conversation, commit, delete_offsets, settings

#: The check of the invariants asks, too.
UNCHECKED = replace(settings(check_interval_ms=1_000), checks_invariants=False)
NAMES = tuple(f"x{number}" for number in range(500))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Group]:
    """The groups of which somebody asked for all that members hold, as often as that happened."""
    found: list[Group] = []
    held = Group.held

    def counted(group: Group) -> Iterator[Partitions]:
        found.append(group)
        return held(group)

    monkeypatch.setattr(Group, "held", counted)
    return found


def test_a_deletion_of_many_topics_looks_at_the_members_once(looks: list[Group]) -> None:
    """With 300 members of 100 topics it took five seconds, and anybody may send it."""
    talk = stable(UNCHECKED)
    looks.clear()

    said = talk.send(delete_offsets("ops", *((name, 0) for name in NAMES), ("t", 0)))

    assert len(looks) == 1
    assert "failed=[(topic=t error=GROUP_SUBSCRIBED_TO_TOPIC)]" in said[0]


def test_retention_of_many_topics_looks_at_the_members_once(looks: list[Group]) -> None:
    """They were committed before there were members, and each new generation asks for all."""
    talk = with_offsets_of_many_topics()
    looks.clear()

    talk.tick(after_ms=1_000)

    assert len(looks) == 1


def with_offsets_of_many_topics() -> Conversation:
    """A member has come since they were committed; the next check looks at the group."""
    talk = told(UNCHECKED)
    rows = tuple(api.CommittedOffset(name, 0, 5) for name in NAMES)
    talk.send(commit("tool", offsets=rows))
    talk.send(subscribe("a"), after_ms=1)
    talk.tick()
    return talk

"""A group that goes leaves no entry behind, in whichever table of its family it has one.

Here is a table beside those of today: who adds one need not look for the places at which a group
ends.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from coordlib.core.engine.effects import COMMITTED
from coordlib.core.engine.protocol import Registry
from coordlib.core.engine.tables import Table
from coordlib.core.groups.kind import GroupKind
from coordlib.core.groups.offsets.tables import OFFSETS
from coordlib.core.groups.protocol import Groups
from tests.tools import assigned_groups as assigned
from tests.tools import core
from tests.tools.driving import Conversation, commit, delete, empty, settings, settled

MINUTE_MS = 60_000
HOW = settings(offsets_retention_ms=10 * MINUTE_MS, check_interval_ms=MINUTE_MS)


class Promise(msgspec.Struct, frozen=True):
    """An offset that is to count when a transaction is committed."""

    offset: int


PROMISED = Table("promised", "assignments", Promise, Promise, lambda each: each, lambda _: 16)


@pytest.fixture(autouse=True)
def _tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of consumer groups, with one table more."""
    monkeypatch.setattr(GroupKind, "TABLES", (OFFSETS, PROMISED))
    monkeypatch.setattr(core, "REGISTRY", Registry(Groups))


def promise(step: Any) -> None:
    for number in (3, 700):
        step.put_entry(PROMISED, ("t", number), Promise(number))


def with_promises(make: Callable[..., Conversation]) -> Conversation:
    """A group that has an entry in each block of the other table; they survive a batch."""
    talk = make(HOW)
    talk.shard._let(talk.shard._here(), ("group", "g"), promise)
    talk.outputs += talk.shard.outputs
    talk.end_batch_raw()
    assert talk.shard.row("g").count(PROMISED) == 2
    return talk


def with_offsets(how: core.ShardSettings) -> Conversation:
    talk = Conversation(how)
    talk.send(commit("tool"))
    return talk


def tombstones(talk: Conversation, since: int) -> dict[str, list[bytes]]:
    """The keys of entries that were forgotten, by topic, in their order."""
    found: dict[str, list[bytes]] = {}
    for each in talk.outputs[since:]:
        if each.value is None and each.topic in (COMMITTED, PROMISED.topic):
            found.setdefault(each.topic, []).append(each.key)
    return found


PROMISES = [b'["g","t",3]', b'["g","t",700]']


def assert_nothing_is_left(talk: Conversation) -> None:
    """Neither here nor for a job that has lost its checkpoint, nor for the next of that name."""
    assert talk.shard.rows == {}
    position = talk.shard.status().position
    talk.end_batch_raw()
    talk.load(core.restored(talk.outputs, position))
    assert talk.shard.rows == {}
    talk.send(commit("tool"))
    assert talk.shard.row("g").count(PROMISED) == 0
    assert talk.shard.row("g").count(OFFSETS) == 1


@pytest.mark.parametrize("make", [empty, assigned.empty, with_offsets])
def test_a_deleted_group_leaves_no_entry(make: Callable[..., Conversation]) -> None:
    """Each is forgotten once: a second tombstone would be one more record for all who read."""
    talk = with_promises(make)
    offsets = [OFFSETS.key("g", each[:2]) for each in talk.shard.row("g").entries(OFFSETS)]
    before = len(talk.outputs)
    talk.send(delete("ops"))

    expected = {PROMISED.topic: PROMISES} | ({COMMITTED: offsets} if offsets else {})
    assert tombstones(talk, before) == expected
    assert_nothing_is_left(talk)


@pytest.mark.parametrize("make", [empty, assigned.empty, with_offsets])
def test_a_group_that_expires_leaves_no_entry(make: Callable[..., Conversation]) -> None:
    """With its last offset, or without any."""
    talk = with_promises(make)
    offsets = [OFFSETS.key("g", each[:2]) for each in talk.shard.row("g").entries(OFFSETS)]
    before = len(talk.outputs)
    for _ in range(21):
        talk.tick(after_ms=MINUTE_MS)

    expected = {PROMISED.topic: PROMISES} | ({COMMITTED: offsets} if offsets else {})
    assert tombstones(talk, before) == expected
    assert_nothing_is_left(talk)


def test_a_group_that_is_refused_to_go_keeps_them() -> None:
    """It has members."""
    talk = with_promises(settled)
    before = len(talk.outputs)
    talk.send(delete("ops"))

    assert tombstones(talk, before) == {}
    assert talk.shard.row("g").count(PROMISED) == 2

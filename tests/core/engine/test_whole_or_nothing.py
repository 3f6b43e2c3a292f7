"""A step is stored whole or not at all, whatever breaks; and heads and tables share a topic.

The kinds are those of test_least_kinds.py.
"""

from typing import Any, ClassVar

import msgspec
import pytest

from coordlib.core.engine import state
from coordlib.core.engine.effects import Output
from coordlib.core.engine.protocol import Registry
from coordlib.core.engine.step import UnknownSavedVersion
from coordlib.core.engine.tables import Place, Table
from coordlib.core.groups.protocol import Groups
from tests.core.engine.test_least_kinds import (
    NOTES,
    Club,
    ClubFamily,
    Clubs,
    CounterFamily,
    Counters,
    Enter,
    Line,
    Note,
    asks,
    rebuilt,
    said,
)
from tests.core.engine.test_least_kinds import Count as CountRequest
from tests.tools import core
from tests.tools.driving import Conversation


def with_families(monkeypatch: pytest.MonkeyPatch, *families: Any) -> None:
    monkeypatch.setattr(core, "REGISTRY", Registry(Groups, *families))


def _outputs(talk: Conversation) -> list[Output]:
    return [*talk.outputs, *(each for each in talk.shard.outputs if each not in talk.outputs)]


def broke(talk: Conversation) -> list[str]:
    """For what entities were set aside, in order."""
    lines = [msgspec.json.decode(each.value) for each in _outputs(talk) if each.topic == "events"]
    return [line["reason"] for line in lines if line["type"] == "GroupQuarantined"]


def breaking(value: Line) -> Line:
    if value.text == "broken":
        raise ZeroDivisionError("keep")
    return value


class BreakingFamily(ClubFamily):
    """Entries of one text cannot be kept."""

    @classmethod
    def tables(cls) -> dict[str, Table]:
        return {"notes": NOTES._replace(keep=breaking)}


def test_entries_that_cannot_be_kept_leave_the_entity_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-44: neither the value of the step stays, nor the entries that came before in it."""
    with_families(monkeypatch, BreakingFamily)
    talk = Conversation()
    said(talk, asks(Enter))
    said(talk, asks(Note, page="p", text="one"))
    talk.end_batch_raw()  # what was read by now has the table's own way to keep
    row, size_bytes = talk.shard.row("g", "club"), talk.shard._agenda.size_bytes

    def several(step: Any) -> None:
        step.change(generation=7)
        step.touched.append("a")
        step.put_entry(NOTES, ("p", 0), None)
        step.put_entry(NOTES, ("q", 0), Line("two"))
        step.put_entry(NOTES, ("r", 0), Line("broken"))

    heard = dict(row.heard)
    talk.shard.clock_ms += 5
    talk.shard._let(talk.shard._here(), ("club", "g"), several)

    assert broke(talk) == ["ZeroDivisionError"]
    assert row.value.generation == 1
    assert row.heard == heard
    assert [(name, entry.text) for name, _, entry in row.entries(NOTES)] == [("p", "one")]
    assert talk.shard._agenda.size_bytes == size_bytes
    talk.end_batch_raw()
    assert [each[2].text for each in talk.shard.row("g", "club").entries(NOTES)] == ["one"]


def test_facts_that_break_after_the_entries_were_put_take_them_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The facts of what was put are asked for last."""
    with_families(monkeypatch, ClubFamily)
    talk = Conversation()
    said(talk, asks(Enter))
    said(talk, asks(Note, page="p", text="one"))
    facts = Clubs.facts
    monkeypatch.setattr(
        Clubs,
        "facts",
        lambda self, value, known: 1 / 0 if known.put else facts(self, value, known),
    )
    said(talk, asks(Note, page="p", text="two"))
    said(talk, asks(Note, page="q", text="three"))

    row = talk.shard.row("g", "club")
    assert row.is_quarantined
    assert [(name, entry.text) for name, _, entry in row.entries(NOTES)] == [("p", "one")]
    assert row.counts == {"notes": 1}


def test_a_deadline_that_is_due_again_sets_its_entity_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-42: a kind that does not do what is due must not hold up the shard for ever."""
    with_families(monkeypatch, ClubFamily)
    talk = Conversation()
    said(talk, asks(Enter))
    said(talk, asks(Enter, name="h"))
    monkeypatch.setattr(Clubs, "fire", lambda *_, **__: None)
    for _ in range(8):
        talk.tick(after_ms=2_000)

    assert broke(talk) == ["BrokenInvariant"] * 2
    assert talk.shard.row("g", "club").is_quarantined
    assert talk.shard.row("h", "club").is_quarantined


@pytest.mark.parametrize("broken", ["save", "encode"])
def test_an_entity_that_nobody_can_write_or_make_ends_no_batch(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-67: the topic gets nothing; the row stays if it can."""
    with_families(monkeypatch, CounterFamily)
    talk = Conversation()
    said(talk, asks(CountRequest))
    said(talk, asks(CountRequest, name="h"))
    monkeypatch.setattr(Counters, "create", lambda *_: 1 / 0)

    def write(value: Any) -> bytes:
        if value.group == "g":
            raise ZeroDivisionError(broken)
        return msgspec.json.encode(value) if broken == "save" else msgspec.msgpack.encode(value)

    monkeypatch.setattr(Counters, broken, property(lambda _: write))
    outputs = talk.end_batch_raw()

    heads = {each.key: each.value for each in outputs if each.topic == "counters"}
    assert b"g" not in heads
    assert heads[b"h"] is not None
    assert (("counter", "g") in talk.shard.rows) == (broken == "save")


@pytest.mark.parametrize("broken", ["save", "encode"])
def test_an_entity_that_was_there_stays_whatever_cannot_be_written(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-67: neither the row nor the topic loses what it has."""
    with_families(monkeypatch, CounterFamily)
    talk = Conversation()
    said(talk, asks(CountRequest))
    talk.end_batch_raw()

    def write(_: Any) -> bytes:
        raise ZeroDivisionError(broken)

    with monkeypatch.context() as defect:
        said(talk, asks(CountRequest))
        defect.setattr(Counters, broken, property(lambda _: write))
        outputs = talk.end_batch_raw()

    assert not [each for each in outputs if each.topic == "counters"]
    row = talk.shard.row("g", "counter")
    assert row.value.count == (2 if broken == "save" else 1)
    assert row.facts == row.facts.at_rest()


# -- heads and tables in one topic -------------------------------------------------------------


class TaggedTable(Table):
    """Keys `["name","club",page]`, beside heads `["club",name]`."""

    __slots__ = ()

    def key(self, entity: str, place: Place) -> bytes:
        return msgspec.json.encode([self.name, entity, place[0]])

    def place(self, key: bytes) -> tuple[str, Place] | None:
        name, *rest = msgspec.json.decode(key)
        return (rest[0], (rest[1], 0)) if name == self.name else None


TAGGED = TaggedTable(*NOTES._replace(topic="clubs"))
OTHERS = TaggedTable(*NOTES._replace(topic="clubs", name="others"))


class OneTopic(ClubFamily):
    HEADS: ClassVar[str] = "clubs"

    @classmethod
    def tables(cls) -> dict[str, Table]:
        return {"notes": TAGGED, "others": OTHERS}

    @classmethod
    def head_key(cls, name: str) -> bytes:
        return msgspec.json.encode(["club", name])

    @classmethod
    def head_name(cls, key: bytes) -> str | None:
        what, *rest = msgspec.json.decode(key)
        return str(rest[0]) if what == "club" else None


def test_heads_and_two_tables_of_one_topic_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-38: each key is of the heads or of one table."""
    with_families(monkeypatch, OneTopic)
    talk = Conversation()
    said(talk, asks(Enter))

    def both(step: Any) -> None:
        step.put_entry(TAGGED, ("p", 0), Line("one"))
        step.put_entry(OTHERS, ("p", 0), Line("other"))

    talk.shard._let(talk.shard._here(), ("club", "g"), both)
    rebuilt(talk)

    row = talk.shard.row("g", "club")
    assert isinstance(row.value, Club)
    assert [each[2].text for each in row.entries(TAGGED)] == ["one"]
    assert [each[2].text for each in row.entries(OTHERS)] == ["other"]


def test_a_key_of_no_table_refuses_the_rebuild(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer code has written it: older code would lose it."""
    with_families(monkeypatch, OneTopic)
    talk = Conversation()
    said(talk, asks(Enter))
    position = talk.shard.status().position
    topics = {"clubs": {b'["newer","g"]': b"{}"}}

    with pytest.raises(UnknownSavedVersion, match="which this code lacks"):
        state.restore(topics, position, core.REGISTRY)

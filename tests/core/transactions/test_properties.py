"""Whatever is asked, in whatever order and cut: decisions stand, and all parts agree."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coordlib.core.engine.effects import COMMITTED, EVENTS, RESPONSES, TRANSACTIONS, Output
from coordlib.core.engine.state import decode_blob
from coordlib.core.transactions.transaction import AT_REST, DECIDED, State, Transaction
from coordlib.core.wire import api
from coordlib.core.wire.transactions import TRANSACTION
from tests.tools import core
from tests.tools import producers as p

IDS = ("one", "two")
#: Near the last epoch, so that it is reached.
FIRST_EPOCH = 32_763

OPS = st.one_of(
    st.tuples(
        st.sampled_from(
            ["init", "init", "add", "group", "group", "offsets", "offsets", "commit", "abort"]
        ),
        st.sampled_from(IDS),
        st.sampled_from(["now", "now", "now", "before", "new", "stranger"]),
    ),
    st.tuples(st.sampled_from(["written", "operator", "near"]), st.sampled_from(IDS), st.none()),
    st.tuples(st.sampled_from(["feed", "hear", "cut", "wait", "settle"]), st.none(), st.none()),
)
COURSES = st.lists(OPS, max_size=60)


class Life:
    """A shard with two ids, and clients that know what they were answered."""

    def __init__(self) -> None:
        self.talk = p.Talk()

    def play(self, course: list[Any], cuts: bool = True) -> None:
        for what, name, who in course:
            if name is not None:
                self._ask(what, name, who)
            elif what == "wait":
                self.talk.wait(p.TIMEOUT_MS // 2)
            elif what == "cut":
                if cuts:
                    self.talk.end_batch_raw()
            else:
                getattr(self.talk, what)()

    def value(self, name: str) -> Transaction | None:
        row = self.talk.shard.rows.get((TRANSACTION, name))
        return row.value if row else None

    def _ask(self, what: str, name: str, who: str | None) -> None:
        value = self.value(name)
        if what == "near" and value is not None:
            if value.epoch < FIRST_EPOCH and value.state in AT_REST:
                # As after thousands of transactions; the same in every cut.
                row = self.talk.shard.row(name, TRANSACTION)
                self.talk.shard._settle(row, replace(value, epoch=FIRST_EPOCH), [])
        elif what == "written" and value is not None and value.ended is not None:
            ended = value.ended.producer_id, value.ended.epoch
            self.talk.send(p.written(*ended, group=name))
        elif what == "operator":
            self.talk.send(p.abort(group=name))
        elif who is not None:
            self._as(what, name, who, value)

    def _as(self, what: str, name: str, who: str, value: Transaction | None) -> None:
        producer: tuple[int, int] = (999, 3)
        if value is not None and who == "now":
            producer = value.next_producer
        elif value is not None and who == "before" and value.ended is not None:
            producer = value.ended.producer_id, value.ended.epoch
        if producer[1] > 32_766:
            return
        offset = self.talk.next_offset
        match what:
            case "init" if who == "new" or value is None:
                self.talk.send(p.init(group=name, id=f"i{offset}", client=f"c{offset % 2}"))
            case "init":
                self.talk.send(p.init(*producer, group=name, id=f"i{offset}"))
            case "add":
                self.talk.send(p.add(*producer, group=name))
            case "group":
                self.talk.send(p.add_group(*producer, group=name, of_group="h"))
            case "offsets":
                number = value.commits if value is not None else 0
                # Each with an offset of its own: its place in the log.
                rows = (api.CommittedOffset("t", 0, offset),)
                request = p.offsets(*producer, number, group=name, id=f"o{offset}", offsets=rows)
                self.talk.send(request)
            case _:
                accepted = value.commits if value is not None else 0
                self.talk.send(p.end(*producer, what, group=name, accepted=accepted))


def lines(outputs: list[Output]) -> Iterator[dict[str, Any]]:
    for each in outputs:
        if each.topic == EVENTS and each.value is not None:
            yield json.loads(each.value)


#: Both ids have an open transaction with offsets: courses that draw all of it are rare.
OPEN = [(what, name, "now") for name in IDS for what in ("init", "group", "offsets")]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([[], OPEN]), COURSES)
@example(OPEN, [("commit", "one", "now"), ("abort", "two", "now")])
@example(OPEN, [("abort", "one", "now"), ("commit", "two", "now")])
@example(OPEN, [("commit", "two", "now"), ("settle", None, None), ("commit", "one", "now")])
def test_a_decision_stands_and_all_parts_agree(lead: list[Any], course: list[Any]) -> None:
    """INV-91, INV-92: a group commits what was committed, drops what was aborted, and each
    transaction is decided once. When all messages have arrived, the group's offset is the newest
    that was committed: no part is missing, and none is there without a decision."""
    life = Life()
    life.play([*lead, *course])
    while life.talk.settle():
        pass
    decided: dict[str, str] = {}
    parts: dict[str, set[str]] = {}
    accepted: dict[str, list[int]] = {}
    for line in lines(life.talk.outputs):
        detail = line["detail"]
        if line["type"] == "TransactionPrepared":
            key = f"{detail['producer_id']}-{detail['epoch']}"
            assert key not in decided
            decided[key] = detail["result"]
        elif line["type"] == "OffsetsPending":
            offsets = [row["offset"] for row in detail["offsets"]]
            accepted.setdefault(detail["transaction"], []).extend(offsets)
        elif line["type"] in ("OffsetsCommitted", "OffsetsDropped") and "transaction" in detail:
            assert detail["transaction"] in decided, "it was told before it was decided"
            is_committed = line["type"] == "OffsetsCommitted"
            parts.setdefault(detail["transaction"], set()).add(
                "commit" if is_committed else "abort"
            )
    assert {key: results for key, results in parts.items() if results != {decided[key]}} == {}
    assert parts.keys() >= accepted.keys() & decided.keys()
    to_commit = [
        at for key, each in accepted.items() if decided.get(key) == "commit" for at in each
    ]
    life.talk.end_batch_raw()
    saved = [
        json.loads(each.value or b"{}") for each in life.talk.outputs if each.topic == COMMITTED
    ]
    assert {each["offset"] for each in saved} <= set(to_commit)
    assert saved[-1:] == [] or saved[-1]["offset"] == max(to_commit)
    assert bool(saved) == bool(to_commit)


@settings(max_examples=60, deadline=None)
@given(COURSES)
def test_producer_ids_are_given_once_and_epochs_rise(course: list[Any]) -> None:
    """INV-98; epochs of which a transaction was decided never come again."""
    life, given_by = Life(), {}
    newest: dict[int, int] = {}
    for op in course:
        life.play([op])
        for name in IDS:
            if (value := life.value(name)) is not None:
                producer_id, epoch = value.producer_id, value.epoch
                assert given_by.setdefault(producer_id, name) == name
                assert epoch >= newest.get(producer_id, 0)
                newest[producer_id] = epoch
    answers = [
        json.loads(each.value or b"") for each in life.talk.outputs if each.topic == RESPONSES
    ]
    assert all(each.get("epoch", 0) <= 32_766 for each in answers if "id" in each)


@settings(max_examples=40, deadline=None)
@given(COURSES)
def test_any_cut_gives_the_same_bytes(course: list[Any]) -> None:
    """INV-02."""
    whole, cut = Life(), Life()
    whole.play(course, cuts=False)
    cut.play(course)
    for life in (whole, cut):
        life.talk.end_batch_raw()

    assert cut.talk.shard.encode() == whole.talk.shard.encode()
    assert _said(cut) == _said(whole)


def _said(life: Life) -> list[Output]:
    """All that is not written once per batch."""
    return [
        each
        for each in life.talk.outputs
        if each.topic != "groups"
        and not each.key.startswith((b'["id"', b'["sent"', b'["heard"'))
        and b'"type":"Progress"' not in (each.value or b"")
    ]


@settings(max_examples=40, deadline=None)
@given(COURSES)
def test_the_topics_are_the_state(course: list[Any]) -> None:
    """INV-38: heads, pending offsets and channels; a rebuilt job goes on with the same numbers."""
    life = Life()
    life.play(course)
    position = life.talk.shard.status().position
    life.talk.end_batch_raw()
    was = decode_blob(life.talk.shard.encode(), core.REGISTRY)
    again = decode_blob(core.restored(life.talk.outputs, position), core.REGISTRY)

    assert again.channels == was.channels
    assert [(row.name, row.kind, row.head) for row in again.rows] == [
        (row.name, row.kind, row.head) for row in was.rows
    ]
    assert [row.tables for row in again.rows] == [row.tables for row in was.rows]


@settings(max_examples=40, deadline=None)
@given(COURSES)
def test_everything_ends(course: list[Any]) -> None:
    """INV-96: when messages are fed and told, markers written and time passes, nothing is open."""
    life = Life()
    life.play(course)
    life.talk.wait(3 * p.TIMEOUT_MS)
    life.talk.settle()
    for name in IDS:
        value = life.value(name)
        if value is not None and value.ended is not None:
            ended = value.ended.producer_id, value.ended.epoch
            life.talk.send(p.written(*ended, group=name))
    life.talk.settle()

    for name in IDS:
        value = life.value(name)
        assert value is None or value.state not in (*DECIDED, State.ONGOING)
    assert life.talk.outbox() == {}
    kept = {each.key: each.value for each in life.talk.outputs if each.topic == TRANSACTIONS}
    assert [key for key, value in kept.items() if key.startswith(b'["pending"') and value] == []

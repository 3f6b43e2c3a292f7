"""The literal tables say what the code does: each cell is tried, and no transition is met else."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from coordlib.core.engine.effects import RESPONSES, BrokenInvariant
from coordlib.core.transactions import transaction
from coordlib.core.transactions.tables import (
    ABORTS,
    INIT,
    TABLE,
    Ask,
    Init,
    Sender,
    Then,
    init_of,
    sender_of,
)
from coordlib.core.transactions.transaction import VALID_PREVIOUS_STATES, State, Transaction
from coordlib.errors import ErrorCode
from tests.tools import producer_diagram, state_diagram
from tests.tools import producers as p

#: A producer id that nothing gave.
STRANGER = (999, 0)

ASKS: dict[Ask, Any] = {
    Ask.ADD: p.add,
    Ask.COMMIT: lambda producer, epoch: p.end(producer, epoch, "commit"),
    Ask.ABORT: lambda producer, epoch: p.end(producer, epoch, "abort"),
    Ask.MARKERS: p.written,
}


def senders(value: Transaction | None) -> Iterator[tuple[int, int]]:
    """One of each kind that there is for an id."""
    yield STRANGER
    if value is not None:
        yield value.next_producer
        yield value.producer_id, 30_000
        if value.ended is not None:
            yield value.ended.producer_id, value.ended.epoch


def error_of(talk: p.Talk, request: Any) -> str:
    """The error with which a request is answered; "": it is sent on."""
    before = len(talk.outputs)
    talk.send(request)
    told = [
        json.loads(each.value or b"") for each in talk.outputs[before:] if each.topic == RESPONSES
    ]
    return next((each["error"] for each in told if "id" in each), "")


def value_of(talk: p.Talk) -> Transaction | None:
    try:
        return talk.producer(p.ID)
    except KeyError:
        return None


CELLS = [
    (name, ask, number)
    for name, make in p.STATES.items()
    for ask in Ask
    for number, _ in enumerate(senders(value_of(make())))
]


@pytest.mark.parametrize(("name", "ask", "number"), CELLS)
def test_a_cell_of_the_table_is_what_happens(name: str, ask: Ask, number: int) -> None:
    """A table beside the code would be believed and be wrong.  # INV-94"""
    talk = p.STATES[name]()
    before = value_of(talk)
    sender = list(senders(before))[number]
    state = State.DEAD if before is None else before.state
    then = TABLE[ask][sender_of(before, *sender)][state]

    error = error_of(talk, ASKS[ask](*sender))
    after = value_of(talk)

    if isinstance(then, ErrorCode):
        assert (error, after) == (then.name, before)
        return
    assert error == ErrorCode.NONE.name
    assert before is not None
    assert after is not None
    wanted = "commit" if ask is Ask.COMMIT else "abort"
    match then:
        case Then.BEGIN:
            assert (after.state, after.started_clock_ms) == (State.ONGOING, talk.shard.clock_ms)
        case Then.JOIN:
            assert after == before  # the partition is there already
        case Then.PREPARE:
            assert after.state.value == f"Prepare{wanted.capitalize()}"
            assert after.epoch == before.epoch + 1
        case Then.END_NOTHING:
            assert (after.state, after.epoch) == (State.COMPLETE_ABORT, before.epoch + 1)
        case Then.STRIKE:
            assert before.unwritten
            assert not after.unwritten
        case Then.NEXT | Then.NONE:
            assert after == before
        case _:
            raise AssertionError(then)


def test_every_sender_and_every_state_was_tried() -> None:
    """A cell that no conversation reaches proves nothing. Some cannot be: who ended a transaction
    decides which states can follow."""
    tried = set()
    for name, ask, number in CELLS:
        value = value_of(p.STATES[name]())
        state = State.DEAD if value is None else value.state
        tried.add((ask, sender_of(value, *list(senders(value))[number]), state))

    assert {sender for _, sender, _ in tried} == set(Sender)
    assert {state for _, _, state in tried} == set(State)
    live = set(State) - {State.DEAD}
    for ask in Ask:
        for sender in (Sender.UNKNOWN, Sender.CURRENT, Sender.OTHER):
            assert {state for a, s, state in tried if (a, s) == (ask, sender)} >= live


@pytest.mark.parametrize("name", p.STATES)
def test_an_operator_ends_what_the_table_says(name: str) -> None:
    """Somebody aborts a transaction that commits at the same moment: the decision stands."""
    talk = p.STATES[name]()
    before = value_of(talk)
    error = error_of(talk, p.abort())

    if before is None:
        assert error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name
        return
    then, after = ABORTS[before.state], value_of(talk)
    if isinstance(then, ErrorCode):
        assert (error, after) == (then.name, before)
    elif then is Then.NONE:
        assert (error, after) == ("NONE", before)
    else:
        assert after is not None
        assert (error, after.state, after.last_epoch) == ("NONE", State.PREPARE_ABORT, before.epoch)


# -- InitProducerId ----------------------------------------------------------------------------

#: How far an id may have come with its epochs.
EPOCHS = (1, 32_766, 32_767)
#: States with an epoch that only fences: the transaction before had the last one.
WITH_A_FENCE = (State.PREPARE_COMMIT, State.PREPARE_ABORT, State.COMPLETE_ABORT)


def _ids() -> Iterator[Transaction]:
    for make in p.STATES.values():
        value = value_of(make())
        for epoch in EPOCHS if value is not None else ():
            assert value is not None
            if epoch > 32_766 and value.state not in WITH_A_FENCE:
                continue
            for last in (-1, epoch - 1):
                yield replace(value, epoch=epoch, last_epoch=last)
                yield replace(value, epoch=0, last_epoch=32_766, previous_producer_id=77)


def _inits(value: Transaction) -> Iterator[Any]:
    yield p.init()
    yield p.init(id="another", client="another")
    for producer_id in (value.producer_id, value.previous_producer_id, 999):
        for epoch in {value.epoch, value.last_epoch, 5, 32_766}:
            if producer_id >= 0 and epoch >= 0:
                yield p.init(producer_id, epoch, id="another")


def test_each_rung_decides_somewhere() -> None:
    """A case that is never the first one is dead, or hidden by one above it."""
    met = set()
    for value in _ids():
        for asked in _inits(value):
            met.add(next(place for place, rung in enumerate(INIT) if rung.holds(value, asked)))

    assert met == set(range(len(INIT)))


def test_no_epoch_beyond_int16_is_given() -> None:
    """A Kafka-shaped client holds epochs in 16 bits: 32,767 fences, and is nobody's.  # INV-98"""
    for value in _ids():
        for asked in _inits(value):
            then = init_of(value, asked)
            if then is Init.BUMP:
                assert value.epoch < 32_766
            if then is Init.AGAIN:
                assert value.epoch <= 32_766


# -- states ------------------------------------------------------------------------------------


def test_what_is_not_in_the_table_breaks_the_step() -> None:
    """INV-92: a defect puts one id into quarantine, and no decision is changed."""
    for before, after in product((None, *State), State):
        if before in VALID_PREVIOUS_STATES[after]:
            transaction.check_transition(before, after)
        else:
            with pytest.raises(BrokenInvariant):
                transaction.check_transition(before, after)


def test_all_transitions_of_the_table_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other: those of all conversations here, of time, and of expiry."""
    met: set[tuple[State | None, State]] = set()
    really = transaction.check_transition

    def move(before: State | None, after: State) -> None:
        met.add((before, after))
        really(before, after)

    monkeypatch.setattr(transaction, "check_transition", move)
    for name, ask, number in CELLS:
        talk = p.STATES[name]()
        talk.send(ASKS[ask](*list(senders(value_of(talk)))[number]))
    for make in p.STATES.values():
        talk = make()
        if (value := value_of(talk)) is None:
            continue
        talk.send(p.init(*value.next_producer, id="same process"))
        talk.send_all(
            p.add_group(*talk.producer().next_producer), p.add(*talk.producer().next_producer)
        )
        talk.wait(2 * p.TIMEOUT_MS)
        forgotten = make()
        forgotten.wait(9 * 24 * 3_600_000, step_ms=600_000)

    assert met == {(b, a) for a, before in VALID_PREVIOUS_STATES.items() for b in before}


def test_the_page_is_drawn_of_the_tables() -> None:
    """Whoever changes a table runs `make diagrams`."""
    page = producer_diagram.PAGE.read_text()

    assert page == state_diagram.between_marks(page, producer_diagram.drawn())

"""The states of a transactional producer: what each call does in each of them."""

import pytest

from coordlib.client.transactions.machine import (
    CALLS,
    DONE,
    HEARD,
    VALID_PREVIOUS_STATES,
    Call,
    Machine,
    Severity,
    State,
    TransactionError,
    severity_of,
)
from coordlib.errors import ErrorCode

_PATHS: dict[State, tuple[Call | Severity, ...]] = {
    State.UNINIT: (),
    State.INITIALIZING: (Call.INIT,),
    State.READY: (Call.INIT, Call.INIT),
    State.IN_TRANSACTION: (Call.INIT, Call.INIT, Call.BEGIN),
    State.COMMITTING: (Call.INIT, Call.INIT, Call.BEGIN, Call.COMMIT),
    State.ABORTING: (Call.INIT, Call.INIT, Call.BEGIN, Call.ABORT),
    State.ABORTABLE_ERROR: (Call.INIT, Call.INIT, Call.BEGIN, Severity.ABORTABLE),
    State.FATAL_ERROR: (Severity.FATAL,),
}


def error(severity: Severity) -> TransactionError:
    return TransactionError(severity, "why", "where", "hint")


def in_state(state: State) -> Machine:
    """A machine that got there as programs do: the second INIT says that the first went well."""
    machine, called = Machine("here"), set()
    for step in _PATHS[state]:
        if isinstance(step, Severity):
            machine.failed(error(step))
        elif step in called:
            machine.done(step)
        else:
            called.add(step)
            machine.call(step)
    assert machine.state is state
    return machine


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("call", Call)
def test_a_call_that_the_state_does_not_allow_changes_nothing(state: State, call: Call) -> None:
    machine = in_state(state)
    if state in CALLS[call]:
        machine.call(call)
        assert machine.state is CALLS[call][state]
        return

    with pytest.raises(TransactionError) as refused:
        machine.call(call)

    assert machine.state is state
    wanted = {
        State.ABORTABLE_ERROR: Severity.ABORTABLE,
        State.FATAL_ERROR: Severity.FATAL,
    }.get(state, Severity.WRONG_STATE)
    assert refused.value.severity is wanted


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("severity", [Severity.RETRIABLE, Severity.ABORTABLE, Severity.FATAL])
def test_a_failure_leads_where_the_program_can_go_on(state: State, severity: Severity) -> None:
    """What may be tried again changes nothing; nothing is aborted where nothing is open."""
    machine = in_state(state)
    has_open = state in (State.IN_TRANSACTION, State.COMMITTING, State.ABORTABLE_ERROR)

    machine.failed(error(severity))

    if severity is Severity.RETRIABLE or state is State.FATAL_ERROR:
        assert machine.state is state
    elif severity is Severity.ABORTABLE and has_open:
        assert machine.state is State.ABORTABLE_ERROR
    else:
        assert machine.state is State.FATAL_ERROR


@pytest.mark.parametrize("call", Call)
def test_a_call_that_went_well_leads_on(call: Call) -> None:
    for before in CALLS[call]:
        machine = in_state(before)
        machine.call(call)
        machine.done(call)
        assert machine.state is DONE[call]


def test_the_calls_lead_as_the_seed_draws_them() -> None:
    """Written out, since a test that reads the tables holds whatever they have."""
    machine = Machine("here")
    met = []
    for call in (Call.INIT, Call.BEGIN, Call.COMMIT, Call.BEGIN, Call.ABORT):
        machine.call(call)
        met.append(machine.state.value)
        machine.done(call)
        met.append(machine.state.value)

    assert met == [
        *("Initializing", "Ready"),
        *("InTransaction", "InTransaction"),
        *("CommittingTxn", "Ready"),
        *("InTransaction", "InTransaction"),
        *("AbortingTxn", "Ready"),
    ]


def test_an_error_with_nothing_to_abort_is_fatal_to_all_later_calls() -> None:
    """A program that aborts and begins again on each abortable error would do so for ever."""
    machine = in_state(State.INITIALIZING)
    machine.failed(error(Severity.ABORTABLE))

    for call in (Call.BEGIN, Call.ABORT):
        with pytest.raises(TransactionError) as told:
            machine.call(call)
        assert told.value.fatal()
        assert "new one" in told.value.hint


def test_the_first_reason_of_a_fatal_error_stays() -> None:
    machine = in_state(State.IN_TRANSACTION)
    machine.failed(TransactionError(Severity.FATAL, "fenced"))
    machine.failed(TransactionError(Severity.FATAL, "closed"))

    with pytest.raises(TransactionError, match="fenced"):
        machine.call(Call.ABORT)


def test_while_an_abort_has_not_ended_it_is_what_a_program_is_told_to_call() -> None:
    """Told of the error before it, a program would begin another unit, and again, for ever."""
    machine = in_state(State.ABORTABLE_ERROR)
    machine.call(Call.ABORT)
    machine.failed(error(Severity.RETRIABLE))

    with pytest.raises(TransactionError, match="Call abort_transaction again") as refused:
        machine.call(Call.BEGIN)

    assert not refused.value.txn_requires_abort()


def test_an_aborted_transaction_is_forgotten() -> None:
    machine = in_state(State.ABORTABLE_ERROR)
    machine.call(Call.ABORT)
    machine.done(Call.ABORT)

    assert (machine.state, machine.error) == (State.READY, None)


def test_a_producer_is_replaced_between_transactions_alone() -> None:
    machine = in_state(State.READY)
    machine.replaced()
    assert machine.state is State.UNINIT
    with pytest.raises(AssertionError):
        in_state(State.IN_TRANSACTION).replaced()


def test_every_transition_of_the_table_is_met() -> None:
    """A literal table that nobody goes through would be a wish."""
    met = {(State.READY, State.UNINIT)}  # replaced
    for before in State:
        for call in Call:
            if before in CALLS[call]:
                met |= {(before, CALLS[call][before]), (CALLS[call][before], DONE[call])}
        for severity in (Severity.ABORTABLE, Severity.FATAL):
            machine = in_state(before)
            machine.failed(error(severity))
            met.add((before, machine.state))

    assert {(a, b) for a, b in met if a is not b} == {
        (before, after) for after, some in VALID_PREVIOUS_STATES.items() for before in some
    }


def test_errors_are_the_coordinator_s_own_and_their_words_agree() -> None:
    """What the coordinator calls retriable is asked again."""
    for name, severity in HEARD.items():
        if severity is Severity.RETRIABLE:
            assert ErrorCode[name].retriable, name
    assert severity_of("NOBODY_KNOWS") is Severity.ABORTABLE
    told = error(Severity.ABORTABLE)
    assert (told.retriable(), told.txn_requires_abort(), told.fatal()) == (False, True, False)

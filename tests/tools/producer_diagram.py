"""The states of transactional ids and the two tables of requests, drawn from the code's own.

`python -m tests.tools.state_diagram` (make diagrams) writes them into the page about transactions.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from coordlib.core.transactions import transaction
from coordlib.core.transactions.tables import ABORTS, INIT, TABLE, Sender
from coordlib.core.transactions.transaction import State
from tests.tools.broker_diagram import states_drawn

PAGE: Final = Path(__file__).parents[2] / "docs/explanation/transactions.md"
_LIVE: Final = tuple(state for state in State if state is not State.DEAD)


def drawn() -> str:
    """All that stands between the marks of the page."""
    parts = (
        states_drawn("States", State, transaction.VALID_PREVIOUS_STATES),
        _init(),
        _requests(),
        _operators(),
    )
    return "\n".join(line for part in parts for line in part)


def _init() -> Iterator[str]:
    yield "### InitProducerId"
    yield "The first case that holds decides. An id that is not there is made."
    yield ""
    yield "| case | answer |"
    yield "|---|---|"
    for rung in INIT:
        yield f"| {rung.when} | {_cell(rung.then)} |"
    yield ""


def _requests() -> Iterator[str]:
    yield "### Requests of a producer"
    yield f"| request | from | {' | '.join(state.value for state in _LIVE)} |"
    yield f"|---|---|{'---|' * len(_LIVE)}"
    for ask, by_sender in TABLE.items():
        for sender in Sender:
            row = by_sender[sender]
            cells = " | ".join(_cell(row[state]) for state in _LIVE)
            yield f"| {ask.value} | {sender.value} | {cells} |"
    yield ""


def _operators() -> Iterator[str]:
    yield "### AbortTransaction"
    yield f"| {' | '.join(state.value for state in _LIVE)} |"
    yield f"|{'---|' * len(_LIVE)}"
    yield f"| {' | '.join(_cell(ABORTS[state]) for state in _LIVE)} |"
    yield ""


def _cell(outcome: Any) -> str:
    return str(getattr(outcome, "value", outcome)) if isinstance(outcome, str) else outcome.name

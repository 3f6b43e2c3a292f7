"""The states of a transactional id, and which may follow which, as a literal table.

Source: TransactionState of Apache Kafka. Kafka's PrepareEpochFence, and its pending state, do not
exist here: a step goes through as a whole.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from coordlib.core.engine.step import BrokenInvariant


class State(StrEnum):
    """The state of a transactional id."""

    EMPTY = "Empty"
    """A producer has its id and epoch, and has begun nothing.
    action: Add*, InitProducerId
    transition: Add* -> ONGOING; EndTxn(abort) -> COMPLETE_ABORT; expires -> DEAD
    """
    ONGOING = "Ongoing"
    """A transaction is open.
    action: Add*; its timeout runs
    transition: EndTxn -> PREPARE_COMMIT, PREPARE_ABORT; InitProducerId, timeout, AbortTransaction
        -> PREPARE_ABORT
    """
    PREPARE_COMMIT = "PrepareCommit"
    """Committed, for ever; groups and partitions are being told.
    action: TxnMarkersWritten
    transition: the last group and the last partition have it -> COMPLETE_COMMIT
    """
    PREPARE_ABORT = "PrepareAbort"
    """Aborted, for ever; groups and partitions are being told.
    action: TxnMarkersWritten
    transition: the last group and the last partition have it -> COMPLETE_ABORT
    """
    COMPLETE_COMMIT = "CompleteCommit"
    """All parts of the newest transaction are committed.
    action: Add*, InitProducerId
    transition: Add* -> ONGOING; InitProducerId -> EMPTY; EndTxn(abort) -> COMPLETE_ABORT; expires
        -> DEAD
    """
    COMPLETE_ABORT = "CompleteAbort"
    """All parts of the newest transaction are dropped.
    action: Add*, InitProducerId
    transition: Add* -> ONGOING; InitProducerId -> EMPTY; EndTxn(abort) -> COMPLETE_ABORT; expires
        -> DEAD
    """
    DEAD = "Dead"
    """There is no such id any more.
    action: none
    transition: none
    """


#: Nothing is open, and nothing has to be told.
AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
#: A decision stands and is being told.
DECIDED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})

#: None: there was no such id. Each change of a state is held against it.  # INV-92
VALID_PREVIOUS_STATES: Final[Mapping[State, frozenset[State | None]]] = {
    State.EMPTY: frozenset({None, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
    State.ONGOING: frozenset(
        {State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
    ),
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: frozenset({State.ONGOING}),
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset(
        {State.EMPTY, State.PREPARE_ABORT, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
    ),
    State.DEAD: frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
}


def move(before: State | None, after: State) -> None:
    """Raises BrokenInvariant when an id must not go from the one state to the other."""
    if before not in VALID_PREVIOUS_STATES[after]:
        raise BrokenInvariant(f"transactional id: {before} to {after}")

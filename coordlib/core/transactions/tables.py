"""What requests lead to, as literal tables: the page is drawn from them, and handlers ask them.

Two questions come first. Who sends it: the producer of now, the one whose transaction ended (and by
whom), or another one. And in which state the id is.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import UNSET

from coordlib import limits
from coordlib.core.transactions.transaction import (
    CLIENT,
    DECIDED,
    FENCED,
    OPERATOR,
    TIMEOUT,
    State,
    Transaction,
)
from coordlib.core.wire import api
from coordlib.errors import ErrorCode


class Sender(StrEnum):
    """Who names a producer id and an epoch."""

    UNKNOWN = "no such id, or a producer id that is not its own"
    CURRENT = "the producer"
    #: Its transaction is the newest that ended, by ...
    ENDED_BY_ITSELF = "its transaction ended, by itself"
    ENDED_FOR_IT = "its transaction ended, by a timeout or an operator"
    ENDED_BY_FENCE = "its transaction ended, by a newer producer"
    OTHER = "another epoch"


class Then(StrEnum):
    """What a request leads to, where it is not refused."""

    BEGIN = "→ Ongoing, the timeout begins"
    JOIN = "joined; what is there already changes nothing"
    PREPARE = "→ Prepare*, one epoch more; NONE with the next producer"
    END_NOTHING = "→ CompleteAbort, one epoch more"
    NEXT = "NONE with the next producer"
    STRIKE = "struck off"
    NONE = "NONE, nothing changes"
    FENCE = "→ PrepareAbort, one epoch more"


class Init(StrEnum):
    """What an InitProducerId leads to, where it is not refused."""

    AGAIN = "the same again"
    CREATE = "made: a new producer id, epoch 0"
    FENCE = "→ PrepareAbort, one epoch more; CONCURRENT_TRANSACTIONS"
    NEW_ID = "→ Empty, a new producer id, epoch 0"
    BUMP = "→ Empty, one epoch more"


class Ask(StrEnum):
    """What is asked, by those who name a producer id and an epoch, or by an operator."""

    ADD = "AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit"
    COMMIT = "EndTxn(commit)"
    ABORT = "EndTxn(abort)"
    MARKERS = "TxnMarkersWritten"


Outcome = Then | ErrorCode
ByState = Mapping[State, Outcome]

_FENCED: Final = ErrorCode.PRODUCER_FENCED
_UNKNOWN: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING
_STATE: Final = ErrorCode.INVALID_TXN_STATE
_LATER: Final = ErrorCode.CONCURRENT_TRANSACTIONS
_ABORTABLE: Final = ErrorCode.TRANSACTION_ABORTABLE

#: Whatever the state is.
ALWAYS_FENCED: Final[ByState] = dict.fromkeys(State, _FENCED)
ALWAYS_UNKNOWN: Final[ByState] = dict.fromkeys(State, _UNKNOWN)

# INV-94: in no row but that of the producer of now does anything begin, join or end.

#: A transaction that was aborted for its producer: by the next one all is as it was.
ABORTED_FOR_IT: Final[ByState] = {
    State.EMPTY: _FENCED,
    State.ONGOING: _FENCED,
    State.PREPARE_COMMIT: _FENCED,
    State.PREPARE_ABORT: _ABORTABLE,
    State.COMPLETE_COMMIT: _FENCED,
    State.COMPLETE_ABORT: _ABORTABLE,
}
MARKERS_OF_ENDED: Final[ByState] = {
    State.EMPTY: Then.NONE,
    State.ONGOING: _FENCED,
    State.PREPARE_COMMIT: Then.STRIKE,
    State.PREPARE_ABORT: Then.STRIKE,
    State.COMPLETE_COMMIT: Then.NONE,
    State.COMPLETE_ABORT: Then.NONE,
}

TABLE: Final[Mapping[Ask, Mapping[Sender, ByState]]] = {
    Ask.ADD: {
        Sender.UNKNOWN: ALWAYS_UNKNOWN,
        Sender.CURRENT: {
            State.EMPTY: Then.BEGIN,
            State.ONGOING: Then.JOIN,
            State.PREPARE_COMMIT: _LATER,
            State.PREPARE_ABORT: _LATER,
            State.COMPLETE_COMMIT: Then.BEGIN,
            State.COMPLETE_ABORT: Then.BEGIN,
        },
        Sender.ENDED_BY_ITSELF: ALWAYS_FENCED,
        Sender.ENDED_FOR_IT: ABORTED_FOR_IT,
        Sender.ENDED_BY_FENCE: ALWAYS_FENCED,
        Sender.OTHER: ALWAYS_FENCED,
    },
    Ask.COMMIT: {
        Sender.UNKNOWN: ALWAYS_UNKNOWN,
        Sender.CURRENT: {
            State.EMPTY: _STATE,
            State.ONGOING: Then.PREPARE,
            State.PREPARE_COMMIT: _FENCED,
            State.PREPARE_ABORT: _FENCED,
            State.COMPLETE_COMMIT: _STATE,
            State.COMPLETE_ABORT: _STATE,
        },
        Sender.ENDED_BY_ITSELF: {
            State.EMPTY: _FENCED,
            State.ONGOING: _FENCED,
            State.PREPARE_COMMIT: _LATER,
            State.PREPARE_ABORT: _STATE,
            State.COMPLETE_COMMIT: Then.NEXT,
            State.COMPLETE_ABORT: _STATE,
        },
        Sender.ENDED_FOR_IT: ABORTED_FOR_IT,
        Sender.ENDED_BY_FENCE: ALWAYS_FENCED,
        Sender.OTHER: ALWAYS_FENCED,
    },
    Ask.ABORT: {
        Sender.UNKNOWN: ALWAYS_UNKNOWN,
        Sender.CURRENT: {
            State.EMPTY: Then.END_NOTHING,
            State.ONGOING: Then.PREPARE,
            State.PREPARE_COMMIT: _FENCED,
            State.PREPARE_ABORT: _FENCED,
            State.COMPLETE_COMMIT: Then.END_NOTHING,
            State.COMPLETE_ABORT: Then.END_NOTHING,
        },
        Sender.ENDED_BY_ITSELF: {
            State.EMPTY: _FENCED,
            State.ONGOING: _FENCED,
            State.PREPARE_COMMIT: _STATE,
            State.PREPARE_ABORT: _LATER,
            State.COMPLETE_COMMIT: _STATE,
            State.COMPLETE_ABORT: Then.NEXT,
        },
        Sender.ENDED_FOR_IT: {
            **ABORTED_FOR_IT,
            State.PREPARE_ABORT: Then.NEXT,
            State.COMPLETE_ABORT: Then.NEXT,
        },
        Sender.ENDED_BY_FENCE: ALWAYS_FENCED,
        Sender.OTHER: ALWAYS_FENCED,
    },
    Ask.MARKERS: {
        Sender.UNKNOWN: ALWAYS_UNKNOWN,
        Sender.CURRENT: ALWAYS_FENCED,
        Sender.ENDED_BY_ITSELF: MARKERS_OF_ENDED,
        Sender.ENDED_FOR_IT: MARKERS_OF_ENDED,
        Sender.ENDED_BY_FENCE: MARKERS_OF_ENDED,
        Sender.OTHER: ALWAYS_FENCED,
    },
}

#: AbortTransaction of an operator.
ABORTS: Final[ByState] = {
    State.EMPTY: _STATE,
    State.ONGOING: Then.FENCE,
    State.PREPARE_COMMIT: Then.NONE,
    State.PREPARE_ABORT: Then.NONE,
    State.COMPLETE_COMMIT: _STATE,
    State.COMPLETE_ABORT: _STATE,
}

_ENDED: Final = {
    CLIENT: Sender.ENDED_BY_ITSELF,
    TIMEOUT: Sender.ENDED_FOR_IT,
    OPERATOR: Sender.ENDED_FOR_IT,
    FENCED: Sender.ENDED_BY_FENCE,
}


def sender_of(value: Transaction | None, producer_id: int, epoch: int) -> Sender:
    """Who names this producer id and epoch."""
    if value is None:
        return Sender.UNKNOWN
    ended = value.ended
    if ended is not None and (ended.producer_id, ended.epoch) == (producer_id, epoch):
        return _ENDED[ended.reason]
    if not value.knows(producer_id, epoch):
        return Sender.UNKNOWN
    is_current = (producer_id, epoch) == value.next_producer
    return Sender.CURRENT if is_current else Sender.OTHER


# -- InitProducerId ----------------------------------------------------------------------------


class Rung(NamedTuple):
    """A case of InitProducerId for an id that is there."""

    when: str
    holds: Callable[[Transaction, api.InitProducerId], bool]
    then: Init | ErrorCode


def _is_same(value: Transaction, asked: api.InitProducerId) -> bool:
    return (value.client, value.init_id) == (asked.client, asked.id)


def _is_stranger(value: Transaction, asked: api.InitProducerId) -> bool:
    if asked.producer_id is UNSET or asked.epoch is UNSET:
        return False
    if value.knows(asked.producer_id, asked.epoch):
        return False
    is_before = asked.producer_id == value.previous_producer_id
    return not (is_before and asked.epoch >= limits.EPOCH_MAX)


def _is_new(_value: Transaction, asked: api.InitProducerId) -> bool:
    return asked.epoch is UNSET


def _is_producer(value: Transaction, asked: api.InitProducerId) -> bool:
    return (asked.producer_id, asked.epoch) == (value.producer_id, value.epoch)


def _was_producer(value: Transaction, asked: api.InitProducerId) -> bool:
    return (asked.producer_id, asked.epoch) == (value.last_producer_id, value.last_epoch)


#: The first that holds decides.
INIT: Final = (
    Rung(
        "it comes again, and the id is Empty",
        lambda value, asked: _is_same(value, asked) and value.state is State.EMPTY,
        Init.AGAIN,
    ),
    # Its process has the answer: this copy is late, and would fence the process that sent it.
    Rung(
        "it comes again, names no epoch, and its producer has begun a transaction since",
        lambda value, asked: _is_same(value, asked) and _is_new(value, asked),
        _FENCED,
    ),
    Rung("the producer id that it names is not known", _is_stranger, _FENCED),
    Rung("Prepare*", lambda value, _: value.state in DECIDED, _LATER),
    Rung(
        "Ongoing, and it names another epoch",
        lambda value, asked: (
            value.state is State.ONGOING
            and not _is_new(value, asked)
            and not _is_producer(value, asked)
        ),
        _FENCED,
    ),
    Rung("Ongoing", lambda value, _: value.state is State.ONGOING, Init.FENCE),
    Rung(
        "the epochs are used up, and it names none, this one, or the one before a fence",
        lambda value, asked: (
            value.epoch >= limits.EPOCH_MAX
            and (
                _is_new(value, asked)
                or _is_producer(value, asked)
                or (value.epoch > limits.EPOCH_MAX and _was_producer(value, asked))
            )
        ),
        Init.NEW_ID,
    ),
    Rung("it names no epoch", _is_new, Init.BUMP),
    Rung("it names this epoch", _is_producer, Init.BUMP),
    Rung("it names the epoch before", _was_producer, Init.AGAIN),
    Rung("it names another one", lambda _value, _asked: True, _FENCED),
)


def init_of(value: Transaction | None, asked: api.InitProducerId) -> Init | ErrorCode:
    """What an InitProducerId leads to."""
    if value is None:
        return Init.CREATE
    return next(rung.then for rung in INIT if rung.holds(value, asked))

"""The life of a transactional producer as a pure state machine: seed 004's TxnManager.

    Uninit ─▶ Initializing ─▶ Ready ─▶ InTransaction ─▶ CommittingTxn ─▶ Ready
      ▲                         │           │  │              │
      └── producer replaced ────┘           │  └──▶ AbortingTxn ─▶ Ready
                                            ▼              ▲
                                      AbortableError ──────┘

A call that a state does not allow raises and changes nothing. A call that ran out of time stays
open: the same call goes on with it. What was heard becomes a state by one table (`HEARD`).

The seed also goes from AbortingTxn to Initializing, for a new epoch. Here the answer to the abort
has it (where the coordinator decides), or a new producer gets it (where Kafka does).

Here are, too, the errors that calls raise, in the shape of confluent-kafka's, and what
`CoordinatedProducer` asks of whoever decides its transactions.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Protocol, Self

from coordlib.client.kit.offsets import GroupMetadata
from coordlib.core.wire import api
from coordlib.errors import CoordError, NotAllowed


class Severity(Enum):
    """What the program can do."""

    #: Call the same again: it goes on where it was.
    RETRIABLE = "retriable"
    #: Abort the transaction, then begin another one.
    ABORTABLE = "abortable"
    #: End: a newer process uses the transactional id, or the producer cannot go on.
    FATAL = "fatal"
    #: The call is not allowed in this state, and has changed nothing.
    WRONG_STATE = "wrong state"


class TransactionError(CoordError):
    """A call of a transactional producer has failed."""

    def __init__(self, severity: Severity, what: str, where: str = "", hint: str = "") -> None:
        self.severity = severity
        super().__init__(what, where, hint)

    def retriable(self) -> bool:
        """Whether the same call may be made again."""
        return self.severity is Severity.RETRIABLE

    def txn_requires_abort(self) -> bool:
        """Whether the transaction must be aborted before another one."""
        return self.severity is Severity.ABORTABLE

    def fatal(self) -> bool:
        """Whether this producer can do nothing any more."""
        return self.severity is Severity.FATAL


class TransactionNotAllowed(TransactionError, NotAllowed):
    """The brokers have refused something, because the principal lacks a right."""

    @classmethod
    def of(cls, severity: Severity, denied: NotAllowed) -> Self:
        """The same, with what the program can do."""
        return cls(severity, denied.what, denied.where, denied.hint)


class State(Enum):
    """Where a producer stands; each state's action and transition."""

    #: Action: none. Transition: init_transactions -> Initializing.
    UNINIT = "Uninit"
    #: Action: get an epoch; what is older is fenced. Transition: it is there -> Ready.
    INITIALIZING = "Initializing"
    #: Action: none. Transition: begin_transaction -> InTransaction; another producer is needed ->
    #: Uninit.
    READY = "Ready"
    #: Action: records and offsets. Transition: commit, abort; a failure -> AbortableError.
    IN_TRANSACTION = "InTransaction"
    #: Action: wait for the end. Transition: -> Ready; a failure -> AbortableError.
    COMMITTING = "CommittingTxn"
    #: Action: wait for the end. Transition: -> Ready.
    ABORTING = "AbortingTxn"
    #: Action: refuse everything but abort. Transition: abort -> AbortingTxn.
    ABORTABLE_ERROR = "AbortableError"
    #: Action: refuse everything. Transition: none.
    FATAL_ERROR = "FatalError"


_LIVE: Final = frozenset(State) - {State.FATAL_ERROR}
#: Which states may come before which.
VALID_PREVIOUS_STATES: Final[Mapping[State, frozenset[State]]] = {
    State.UNINIT: frozenset({State.READY}),
    State.INITIALIZING: frozenset({State.UNINIT}),
    State.READY: frozenset({State.INITIALIZING, State.COMMITTING, State.ABORTING}),
    State.IN_TRANSACTION: frozenset({State.READY}),
    State.COMMITTING: frozenset({State.IN_TRANSACTION}),
    State.ABORTING: frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.IN_TRANSACTION, State.COMMITTING}),
    State.FATAL_ERROR: _LIVE,
}


class Call(Enum):
    """What the program asks for."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    PRODUCE = "produce"
    SEND_OFFSETS = "send_offsets_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


#: In which states a call is allowed, and the state that it leads to.
CALLS: Final[Mapping[Call, Mapping[State, State]]] = {
    Call.INIT: {
        State.UNINIT: State.INITIALIZING,
        State.INITIALIZING: State.INITIALIZING,
    },
    Call.BEGIN: {State.READY: State.IN_TRANSACTION},
    Call.PRODUCE: {State.IN_TRANSACTION: State.IN_TRANSACTION},
    Call.SEND_OFFSETS: {State.IN_TRANSACTION: State.IN_TRANSACTION},
    Call.COMMIT: {
        State.IN_TRANSACTION: State.COMMITTING,
        State.COMMITTING: State.COMMITTING,
    },
    Call.ABORT: {
        State.IN_TRANSACTION: State.ABORTING,
        State.ABORTABLE_ERROR: State.ABORTING,
        State.ABORTING: State.ABORTING,
    },
}
#: The state in which a call that went well leaves the producer.
DONE: Final[Mapping[Call, State]] = {
    Call.INIT: State.READY,
    Call.BEGIN: State.IN_TRANSACTION,
    Call.PRODUCE: State.IN_TRANSACTION,
    Call.SEND_OFFSETS: State.IN_TRANSACTION,
    Call.COMMIT: State.READY,
    Call.ABORT: State.READY,
}

_RETRIABLE: Final = (
    "CONCURRENT_TRANSACTIONS",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "THROTTLING_QUOTA_EXCEEDED",
)
_ABORTABLE: Final = (
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "FENCED_INSTANCE_ID",
    "PARTITION_NOT_OWNED",
    "OFFSET_METADATA_TOO_LARGE",
    "INVALID_COMMIT_OFFSET_SIZE",
    "TRANSACTION_ABORTABLE",
    "INVALID_PRODUCER_ID_MAPPING",
)
_FATAL: Final = ("PRODUCER_FENCED", "INVALID_TXN_STATE", "INVALID_TRANSACTION_TIMEOUT")
#: What an answer's error makes of a call; other errors are abortable: the group has refused.
HEARD: Final[Mapping[str, Severity]] = {
    **dict.fromkeys(_RETRIABLE, Severity.RETRIABLE),
    **dict.fromkeys(_ABORTABLE, Severity.ABORTABLE),
    **dict.fromkeys(_FATAL, Severity.FATAL),
}


def severity_of(error: str) -> Severity:
    """What an error of the coordinator's means for the transaction."""
    return HEARD.get(error, Severity.ABORTABLE)


class Machine:
    """One producer's state."""

    def __init__(self, where: str = "") -> None:
        self.state = State.UNINIT
        #: Why it stands in an error state.
        self.error: TransactionError | None = None
        self._where = where

    def call(self, call: Call) -> None:
        """Begin a call. Raises TransactionError when the state does not allow it."""
        after = CALLS[call].get(self.state)
        if after is None:
            raise self._refused(call)
        self._become(after)

    def done(self, call: Call) -> None:
        """A call has succeeded."""
        self._become(DONE[call])

    def failed(self, error: TransactionError) -> None:
        """A call has failed. A retriable error leaves the state as it is."""
        is_abortable = self.state in VALID_PREVIOUS_STATES[State.ABORTABLE_ERROR]
        is_abortable |= self.state is State.ABORTABLE_ERROR
        if error.severity is Severity.ABORTABLE and is_abortable:
            self._fail(State.ABORTABLE_ERROR, error)
        elif error.severity in (Severity.ABORTABLE, Severity.FATAL):
            self._fail(State.FATAL_ERROR, error)  # nothing is open that could be aborted

    def replaced(self) -> None:
        """The producer is thrown away, so that a newer epoch fences all that it has under way."""
        self.error = None
        self._become(State.UNINIT)

    def _fail(self, state: State, error: TransactionError) -> None:
        if self.state is State.FATAL_ERROR:
            return  # the first reason is the one that counts
        if state is not self.state:
            self._become(state)
        self.error = error

    def _become(self, state: State) -> None:
        if state is self.state:
            return
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise AssertionError(f"{self.state} -> {state} is no transition of a producer")
        self.state = state
        if state not in (State.ABORTABLE_ERROR, State.FATAL_ERROR, State.ABORTING):
            self.error = None

    def _refused(self, call: Call) -> TransactionError:
        """Why a call is not allowed: the error before it, or the state.

        While an abort has not ended, the state: the error before it may be one after which the
        program is to begin another transaction, and it would for ever.
        """
        if self.error is not None and self.state is not State.ABORTING:
            error = self.error
            is_denied = isinstance(error, TransactionNotAllowed)
            kind = TransactionNotAllowed if is_denied else TransactionError
            severity, hint = error.severity, error.hint
            if self.state is State.FATAL_ERROR and severity is not Severity.FATAL:
                # Nothing was open that an abort could end: a program that aborts would loop.
                severity, hint = Severity.FATAL, _HINTS[self.state]
            return kind(severity, error.what, error.where, hint)
        what = f"{call.value} is not allowed in the state {self.state.value}."
        return TransactionError(Severity.WRONG_STATE, what, self._where, _HINTS[self.state])


_HINTS: Final[Mapping[State, str]] = {
    State.UNINIT: "Call init_transactions first.",
    State.INITIALIZING: "Call init_transactions again: it has not ended.",
    State.READY: "Call begin_transaction first.",
    State.IN_TRANSACTION: "Commit or abort the transaction first.",
    State.COMMITTING: "Call commit_transaction again: it has not ended.",
    State.ABORTING: "Call abort_transaction again: it has not ended.",
    State.ABORTABLE_ERROR: "Call abort_transaction.",
    State.FATAL_ERROR: "Close this producer, and make a new one.",
}


#: Called with an error, or None, and the record.
OnDelivery = Callable[[Any, Any], None]


class TransactionBackend(Protocol):
    """One producer over one backend; calls come in an order that the state machine allows.

    Its calls raise TransactionError; after a retriable one the same call goes on.
    """

    #: For errors: which producer.
    where: str

    def init(self, timeout: float) -> None:
        """Get an epoch; older processes of the id are fenced, and aborted."""

    @property
    def needs_renewal(self) -> bool:
        """Whether the next transaction needs another epoch."""

    def renew(self) -> None:
        """Prepare for `init`, which is called next."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(
        self, rows: tuple[api.CommittedOffset, ...], metadata: GroupMetadata, timeout: float
    ) -> None:
        """Let a group's positions wait for the end; wait until it has accepted them."""

    @property
    def unaccepted(self) -> str:
        """Whose offsets are not accepted; empty: all are."""

    def commit(self, timeout: float) -> None:
        """Commit, and wait for the end."""

    def abort(self, timeout: float) -> None:
        """Abort, and wait for the end."""

    def produce(
        self, topic: str, args: tuple[Any, ...], named: dict[str, Any], on_delivery: OnDelivery
    ) -> None:
        """Write a record, later."""

    def lost(self, error: Any) -> TransactionError:
        """What it means that a record was not delivered."""

    def poll(self, timeout: float) -> int:
        """Call the callbacks of delivered records; how many."""

    def flush(self, timeout: float) -> int:
        """Wait for all records; how many are left."""

    def close(self, is_usable: bool) -> None:
        """End; `is_usable`: it has not failed for ever."""

"""What the calls of a transactional producer raise, in the shape of confluent-kafka's errors."""

from enum import Enum
from typing import Self

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

    def __init__(self, severity: Severity, what: str, where: str = "", mend: str = "") -> None:
        self.severity = severity
        super().__init__(what, where, mend)

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
        return cls(severity, denied.what, denied.where, denied.mend)

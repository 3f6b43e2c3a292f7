"""Offsets that become true together with something else, or never: pending commits."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire.checks import is_name, no_name, optional_names_fault
from coordlib.core.wire.envelope import Generation, Name, Reason, Request, Response, Waits
from coordlib.core.wire.offsets import CommittedOffset, FailedPartition, rows_fault
from coordlib.errors import ErrorCode

#: Who decides about pending offsets: the commit of a transaction of Kafka, a commit of a Delta
#: table, EndTxn at the transaction coordinator.
KAFKA: Final = "kafka"
DELTA: Final = "delta"
COORDINATOR: Final = "coordinator"


#: Header of a PendingCommit: the transactional id of Kafka's under which it was written. Nothing is
#: judged by it; it tells an operator whose transaction holds up the others.
TRANSACTIONAL_ID: Final = "coord-transactional-id"


class PendingCommit(Request, tag="PendingCommit", kw_only=True, frozen=True):
    """Store positions as pending: until the Kafka transaction of which this record is part ends, or

    until a DecidePending says whether the Delta table has the commit whose `txnVersion` is the
    offset of this record. As in Kafka's TxnOffsetCommit, generation -1 is from a client that is no
    member. One row that cannot be stored refuses all rows: half of a commit is no unit.
    """

    WAITS: ClassVar[Waits] = Waits.AS_A_COMMIT

    generation: Generation = -1
    member: Name = ""
    instance: Name | None = None
    decided_by: Literal["kafka", "delta"]
    #: The Delta table that decides, as every client can open it; only with `delta`.
    table: str | UnsetType = UNSET
    offsets: Annotated[
        tuple[CommittedOffset, ...],
        Meta(min_length=1, max_length=limits.OFFSETS_PER_REQUEST_MAX),
    ]

    def fault(self) -> str | None:
        """Each partition has one position; a Delta table is named exactly where one decides."""
        return (
            rows_fault(self.offsets)
            or optional_names_fault("member", [self.member])
            or _table_fault(self.decided_by, self.table)
        )


def _table_fault(decided_by: str, table: str | UnsetType) -> str | None:
    if decided_by != DELTA:
        return None if table is UNSET else "table belongs to commits that delta decides."
    if table is UNSET or not is_name(table, limits.TABLE_LENGTH_MAX):
        return no_name("table", limits.TABLE_LENGTH_MAX)
    return None


class PendingCommitResponse(Response, tag="PendingCommit", frozen=True, kw_only=True):
    """NONE: the offsets are pending under the key `pending`."""

    pending: str | UnsetType = UNSET
    #: The rows for which the whole commit is refused.
    failed: tuple[FailedPartition, ...] | UnsetType = UNSET


class DecidePending(Request, tag="DecidePending", kw_only=True, frozen=True):
    """Say how pending offsets are decided; who may, stands in `offsets/decide_pending.py`."""

    #: What comes too late is a normal case: two members may find out the same.
    UNTOLD_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset(
        {ErrorCode.INVALID_TXN_STATE}
    )

    #: The key of the entry.
    pending: Name
    result: Literal["commit", "abort"]
    #: The sender, if it is a member; an operator leaves both out.
    member: Name = ""
    generation: Generation = -1
    #: Why an operator decides, for history. A member needs none.
    reason: Reason = ""

    def fault(self) -> str | None:
        """An entry is named."""
        if not is_name(self.pending, limits.NAME_LENGTH_MAX):
            return no_name("pending")
        return optional_names_fault("member", [self.member])


class DecidePendingResponse(Response, tag="DecidePending", frozen=True, kw_only=True):
    """NONE: it is decided so. INVALID_TXN_STATE: nothing waits under this key (any more)."""


class DescribedPending(msgspec.Struct, frozen=True, kw_only=True):
    """Pending offsets in the answer to DescribeGroup."""

    key: str
    decided_by: str
    client: str
    member: str
    generation: int
    #: Log time of the commit, epoch milliseconds.
    since_ms: int
    #: How many partitions still wait for it; a later commit of the same partition takes it out.
    partitions: int
    #: The Delta table; left out where another decides.
    table: str | UnsetType = UNSET
    #: What was decided while the group was quarantined; left out: nothing yet.
    decision: str | UnsetType = UNSET

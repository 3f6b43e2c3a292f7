"""Offsets: written, read, deleted; pending ones become true together with something else."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire.envelope import (
    NAMED_TWICE,
    Generation,
    Int32,
    Name,
    Part,
    Reason,
    Request,
    Response,
    TopicId,
    Waits,
    is_name,
    names_fault,
    no_name,
    optional_names_fault,
)
from coordlib.errors import ErrorCode

LeaderEpoch = Annotated[int, Meta(ge=-1, le=limits.INT32_MAX)]
Offset = Annotated[int, Meta(ge=-limits.INT64_MAX - 1, le=limits.INT64_MAX)]
Text = Annotated[str, Meta(max_length=limits.REQUEST_BYTES_MAX)]
Timestamp = Annotated[int, Meta(ge=0, le=limits.INT64_MAX)]


class CommittedOffset(Part, frozen=True):
    """One partition's position: the next offset to read, as in Kafka."""

    topic: Name
    partition: Int32
    offset: Offset
    leader_epoch: LeaderEpoch = -1
    metadata: Text = ""
    #: The client's own time of this position, epoch milliseconds (seed 000, TimeStamp). Kept and
    #: shown, and decides nothing. Left out where it is not set.
    timestamp_ms: Timestamp | UnsetType = UNSET
    #: The id of the topic that was read, as Kafka's describe_topics has it. An offset of one topic
    #: means nothing in another one of the same name. Not written where it is not known.
    topic_id: TopicId | UnsetType = UNSET


def rows_fault(rows: tuple[CommittedOffset, ...]) -> str | None:
    """What is wrong with positions to be stored: each partition has one."""
    if fault := names_fault("offsets.topic", [row.topic for row in rows]):
        return fault
    if len(rows) > 1 and len({(row.topic, row.partition) for row in rows}) < len(rows):
        return NAMED_TWICE.format("offsets")
    return None


class OffsetCommit(Request, tag="OffsetCommit", kw_only=True, frozen=True):
    """Store positions; with generation -1 from a client that is no member."""

    WAITS: ClassVar[Waits] = Waits.AS_A_COMMIT

    generation: Generation = -1
    member: Name = ""
    instance: Name | None = None
    offsets: Annotated[
        tuple[CommittedOffset, ...],
        Meta(min_length=1, max_length=limits.OFFSETS_PER_REQUEST_MAX),
    ]

    def fault(self) -> str | None:
        """Each partition has one position."""
        return rows_fault(self.offsets) or optional_names_fault("member", [self.member])


class FailedPartition(msgspec.Struct, frozen=True):
    """A partition that was refused in a commit or delete that otherwise went well."""

    topic: str
    partition: int
    error: str


class OffsetCommitResponse(Response, tag="OffsetCommit", frozen=True, kw_only=True):
    """Partitions that were not stored; a refusal of the whole commit is `error`."""

    #: Empty when every partition was stored.
    failed: tuple[FailedPartition, ...] | UnsetType = UNSET


class TopicPartitions(Part, frozen=True):
    """Some partitions of one topic."""

    topic: Name
    partitions: Annotated[tuple[Int32, ...], Meta(max_length=limits.FETCH_PARTITIONS_MAX)]


def _topics_fault(rows: tuple[TopicPartitions, ...], partitions_max: int) -> str | None:
    """What is wrong with named partitions: each stands once, and there are not too many."""
    count = sum(len(row.partitions) for row in rows)
    if count > partitions_max:
        return (
            f"topics names more than {partitions_max} partitions: ask for them in several requests."
        )
    if fault := names_fault("topics.topic", [row.topic for row in rows]):
        return fault
    if len({(row.topic, each) for row in rows for each in row.partitions}) < count:
        return NAMED_TWICE.format("topics")
    return None


class OffsetFetch(Request, tag="OffsetFetch", kw_only=True, frozen=True):
    """Read positions: of the named partitions, or of all (`topics` null)."""

    topics: tuple[TopicPartitions, ...] | None = None
    #: Whether partitions with pending offsets are answered UNSTABLE_OFFSET_COMMIT (KIP-447).
    require_stable: bool = False

    def fault(self) -> str | None:
        """Each partition stands once; a large answer comes in parts."""
        return _topics_fault(self.topics or (), limits.FETCH_PARTITIONS_MAX)


class AwaitedDecision(msgspec.Struct, frozen=True):
    """Whose decision a partition's offset waits for."""

    #: Of the pending offsets.
    key: str
    decided_by: str
    #: The Delta table; left out where another decides.
    table: str | UnsetType = UNSET
    #: With a table: the sender's member id, of which the table's `txnAppId` is made.
    member: str | UnsetType = UNSET
    #: With a table: log time of the commit, epoch milliseconds.
    since_ms: int | UnsetType = UNSET
    #: With a table: the metadata of the offset that waits, by which a client tells the table from
    #: another one at the same place. Left out where it is longer than such metadata can be.
    metadata: str | UnsetType = UNSET


class FetchedOffset(msgspec.Struct, frozen=True):
    """One partition's committed offset; -1 when there is none."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: str = ErrorCode.NONE.name
    #: As the commit named it; left out where it named none.
    timestamp_ms: int | UnsetType = UNSET
    #: With UNSTABLE_OFFSET_COMMIT: the oldest of the pending offsets of this partition.
    pending: AwaitedDecision | UnsetType = UNSET
    #: As the commit named it; left out where it named none.
    topic_id: str | UnsetType = UNSET


class OffsetFetchResponse(Response, tag="OffsetFetch", frozen=True, kw_only=True):
    """Large answers come in `parts`; `part` counts from 0."""

    offsets: tuple[FetchedOffset, ...] | UnsetType = UNSET
    part: int | UnsetType = UNSET
    parts: int | UnsetType = UNSET


class OffsetDelete(Request, tag="OffsetDelete", kw_only=True, frozen=True):
    """Delete positions of topics that no member of the group subscribes to (KIP-496)."""

    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset()

    topics: tuple[TopicPartitions, ...]

    def fault(self) -> str | None:
        """Each partition stands once. One answer lists all refused ones: fewer than in a fetch."""
        return _topics_fault(self.topics, limits.OFFSETS_PER_REQUEST_MAX)


class OffsetDeleteResponse(Response, tag="OffsetDelete", frozen=True, kw_only=True):
    """Partitions that were kept; missing ones are no fault.

    A member subscribes to them, or they have pending offsets.
    """

    #: Empty when none of the named partitions is left.
    failed: tuple[FailedPartition, ...] | UnsetType = UNSET


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
    """How pending offsets are decided. Who may send it: `core/groups/offsets/pending.py`."""

    #: What comes too late is a normal case: two members may find out the same.
    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset(
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

"""Transactional producers and their coordinator: producer ids, transactions, how they ended.

Source: KIP-98 and KIP-890 (seed 004), KIP-360 for `producer_id` and `epoch` of InitProducerId. A
transactional id has names of its own: the space `transaction`; requests name it in
`transactional_id`. Pending offsets of groups stand in `offsets.py`.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire.envelope import (
    NAMED_TWICE,
    Count,
    Generation,
    Int32,
    Message,
    Name,
    Part,
    Reason,
    Request,
    Response,
    Waits,
    names_fault,
    optional_names_fault,
)
from coordlib.core.wire.offsets import CommittedOffset, FailedPartition, rows_fault
from coordlib.errors import ErrorCode

TRANSACTION: Final = "transaction"
#: How a transaction ends.
COMMIT: Final = "commit"
ABORT: Final = "abort"
Result = Literal["commit", "abort"]
#: 32,767 is given to nobody: it fences (int16, as Kafka's clients have it).
Epoch = Annotated[int, Meta(ge=0, le=limits.EPOCH_MAX)]


class ProducerRequest(Request, frozen=True, kw_only=True):
    """A request about a transactional id; `group` is that id."""

    SPACE: ClassVar[str] = TRANSACTION
    WAITS: ClassVar[Waits] = Waits.WITH_ITS_GROUP

    group: Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)] = msgspec.field(
        name="transactional_id"
    )


class TransactionRequest(ProducerRequest, frozen=True, kw_only=True):
    """A request of a producer in one of its epochs."""

    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset(
        {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    )

    producer_id: Count
    epoch: Epoch


class ProducerResponse(Response, frozen=True, kw_only=True):
    """An answer about a transactional id."""

    group: str = msgspec.field(name="transactional_id")


class TopicsOfCluster(Part, frozen=True, kw_only=True):
    """Partitions of a topic in a cluster of Kafka, perhaps another one than the coordinator's."""

    cluster: Name
    topic: Name
    partitions: Annotated[tuple[Int32, ...], Meta(min_length=1)]


Rows = Annotated[
    tuple[TopicsOfCluster, ...], Meta(min_length=1, max_length=limits.TXN_PARTITIONS_MAX)
]


class InitProducerId(ProducerRequest, tag="InitProducerId", frozen=True, kw_only=True):
    """Ask for a producer id and an epoch, which fence every older producer of this id.

    Without transactional id: for an idempotent producer, of which nothing is kept.
    """

    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset(
        {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    )

    group: Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)] | None = msgspec.field(  # type: ignore[assignment]  # None is what makes it another request
        name="transactional_id", default=None
    )
    timeout_ms: Int32 = 0
    #: What the same process had before (KIP-360); left out: it is a new one.
    producer_id: Count | UnsetType = UNSET
    epoch: Epoch | UnsetType = UNSET

    @property
    def entity(self) -> tuple[str, str]:
        """Without transactional id the client's own shard answers."""
        return self.SPACE, self.client if self.group is None else self.group

    def fault(self) -> str | None:
        """A producer id and its epoch come together."""
        if self.group == "":
            return "transactional_id is empty: name one, or leave it out."
        if (self.producer_id is UNSET) != (self.epoch is UNSET):
            return "producer_id and epoch come together: name both, or none."
        return None


class InitProducerIdResponse(ProducerResponse, tag="InitProducerId", frozen=True, kw_only=True):
    """The producer id and the epoch; CONCURRENT_TRANSACTIONS: the transaction before still ends."""

    producer_id: int | UnsetType = UNSET
    epoch: int | UnsetType = UNSET
    #: Partitions that lack the marker of that transaction.
    unwritten: tuple[TopicsOfCluster, ...] | UnsetType = UNSET
    #: The transaction of which it is.
    ended: "EndedTransaction | UnsetType" = UNSET


class EndedTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """The newest transaction of an id that was decided."""

    producer_id: int
    epoch: int
    result: Result
    #: client, timeout, fenced or operator.
    reason: str


class AddPartitionsToTxn(TransactionRequest, tag="AddPartitionsToTxn", frozen=True, kw_only=True):
    """Partitions to which the transaction is going to write."""

    partitions: Rows

    def fault(self) -> str | None:
        """Each partition is named once."""
        return places_fault("partitions", self.partitions)


class AddPartitionsToTxnResponse(
    ProducerResponse, tag="AddPartitionsToTxn", frozen=True, kw_only=True
):
    """NONE: write to them."""


class AddOffsetsToTxn(TransactionRequest, tag="AddOffsetsToTxn", frozen=True, kw_only=True):
    """A group whose offsets are going to be committed in the transaction."""

    of_group: Name = msgspec.field(name="group")

    def fault(self) -> str | None:
        """The group has a name."""
        return names_fault("group", [self.of_group])


class AddOffsetsToTxnResponse(ProducerResponse, tag="AddOffsetsToTxn", frozen=True, kw_only=True):
    """NONE: commit its offsets."""


class TxnOffsetCommit(TransactionRequest, tag="TxnOffsetCommit", frozen=True, kw_only=True):
    """Offsets of a group that become true when the transaction commits.

    The group's shard answers. Generation -1 is from a client that is no member.
    """

    of_group: Name = msgspec.field(name="group")
    #: Which one of the transaction's commits this is, from 0. It comes again under its number.
    number: Int32
    generation: Generation = -1
    member: Name = ""
    instance: Name | None = None
    offsets: Annotated[
        tuple[CommittedOffset, ...], Meta(min_length=1, max_length=limits.OFFSETS_PER_REQUEST_MAX)
    ]

    def fault(self) -> str | None:
        """Each partition has one position."""
        names = optional_names_fault("member", [self.member])
        return names_fault("group", [self.of_group]) or rows_fault(self.offsets) or names


class TxnOffsetCommitResponse(ProducerResponse, tag="TxnOffsetCommit", frozen=True, kw_only=True):
    """NONE: the offsets wait for the end of the transaction."""

    #: The rows for which the whole commit is refused.
    failed: tuple[FailedPartition, ...] | UnsetType = UNSET


class EndTxn(TransactionRequest, tag="EndTxn", frozen=True, kw_only=True):
    """Commit or abort the transaction."""

    result: Result
    #: Of a commit: how many TxnOffsetCommits were answered NONE.
    accepted: Int32 = 0


class EndTxnResponse(ProducerResponse, tag="EndTxn", frozen=True, kw_only=True):
    """NONE: it is decided, for ever. The producer id and epoch are those of the next one."""

    producer_id: int | UnsetType = UNSET
    epoch: int | UnsetType = UNSET


class TxnMarkersWritten(TransactionRequest, tag="TxnMarkersWritten", frozen=True, kw_only=True):
    """Partitions that have the marker of a transaction, which `producer_id` and `epoch` name."""

    partitions: Rows

    def fault(self) -> str | None:
        """Each partition is named once."""
        return places_fault("partitions", self.partitions)


class TxnMarkersWrittenResponse(
    ProducerResponse, tag="TxnMarkersWritten", frozen=True, kw_only=True
):
    """NONE: they are struck off."""


class AbortTransaction(ProducerRequest, tag="AbortTransaction", frozen=True, kw_only=True):
    """End the open transaction, by order of an operator."""

    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset()

    reason: Reason | None = None


class AbortTransactionResponse(ProducerResponse, tag="AbortTransaction", frozen=True, kw_only=True):
    """NONE: a transaction is ending; `result` is how."""

    result: Result | UnsetType = UNSET


class DescribeTransaction(ProducerRequest, tag="DescribeTransaction", frozen=True, kw_only=True):
    """Ask how a transactional id stands."""

    WAITS: ClassVar[Waits] = Waits.ALWAYS


class DescribeTransactionResponse(
    ProducerResponse, tag="DescribeTransaction", frozen=True, kw_only=True
):
    """All that is kept of the id."""

    state: str | UnsetType = UNSET
    producer_id: int | UnsetType = UNSET
    epoch: int | UnsetType = UNSET
    #: By the log's time, epoch milliseconds; -1: no transaction is open.
    started_ms: int | UnsetType = UNSET
    timeout_ms: int | UnsetType = UNSET
    #: Of the newest InitProducerId.
    owner: str | UnsetType = UNSET
    groups: tuple[str, ...] | UnsetType = UNSET
    partitions: tuple[TopicsOfCluster, ...] | UnsetType = UNSET
    #: Partitions that lack the marker of the transaction that ended.
    unwritten: tuple[TopicsOfCluster, ...] | UnsetType = UNSET
    ended: EndedTransaction | UnsetType = UNSET


class TransactionCompleted(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """All groups and partitions of a transaction have its end: the next one may begin."""

    v: int = 1
    group: str = msgspec.field(name="transactional_id")
    cause: str
    #: Of the transaction that is over.
    producer_id: int
    epoch: int
    result: Result


# -- messages to the shards of groups --------------------------------------------------------


class TxnOffsets(Message, tag="TxnOffsets", frozen=True, kw_only=True):
    """A TxnOffsetCommit for the shard of its group, which answers it."""

    request: TxnOffsetCommit


class TxnMarker(Message, tag="TxnMarker", frozen=True, kw_only=True):
    """A transaction is decided: its offsets of this group are committed, or dropped."""

    transactional_id: Name
    producer_id: int
    epoch: int
    result: Result


# -- checks ----------------------------------------------------------------------------------


def places_of(rows: Iterable[TopicsOfCluster]) -> Iterator[tuple[str, str, int]]:
    """Cluster, topic and partition of each."""
    for row in rows:
        for partition in row.partitions:
            yield row.cluster, row.topic, partition


def rows_of_places(places: Iterable[tuple[str, str, int]]) -> tuple[TopicsOfCluster, ...]:
    """The same the other way round, in order: equal partitions give equal bytes."""
    topics: dict[tuple[str, str], list[int]] = {}
    for cluster, topic, partition in sorted(places):
        topics.setdefault((cluster, topic), []).append(partition)
    return tuple(
        TopicsOfCluster(cluster=cluster, topic=topic, partitions=tuple(some))
        for (cluster, topic), some in topics.items()
    )


def places_fault(field: str, rows: tuple[TopicsOfCluster, ...]) -> str | None:
    """What is wrong with the partitions that a request names."""
    places = list(places_of(rows))
    if len(places) > limits.TXN_PARTITIONS_MAX:
        return f"{field} has {len(places)} rows: send at most {limits.TXN_PARTITIONS_MAX}."
    if len(set(places)) < len(places):
        return NAMED_TWICE.format(field)
    names = dict.fromkeys(name for row in rows for name in (row.cluster, row.topic))
    return names_fault(field, names)

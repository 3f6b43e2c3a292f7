"""The tables of a group's offsets: committed ones, and those that wait for a decision.

Committed offsets have one entry per topic and partition, in `coord.committed`. Pending offsets have
one entry per transaction, in `coord.transactions`. An entry's rows stay bytes until somebody needs
them: a group may have a thousand entries, and most questions are about the entries and not about
their rows.
"""

from collections.abc import Iterable
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec import UNSET

from coordlib.core.engine.effects import COMMITTED, TRANSACTIONS, At
from coordlib.core.engine.tables import NAME_BYTES, Place, Table, name_bytes
from coordlib.core.wire import codec
from coordlib.core.wire.offsets import CommittedOffset
from coordlib.core.wire.stored import CommittedValue, PendingOffset, PendingValue

#: An offset without its texts and its timestamp, and its share of a block, at most.
OFFSET_BYTES: Final = 56
#: A timestamp beside the one byte that says that there is none.
TIMESTAMP_BYTES: Final = 8
#: A topic's id beside the one byte that says that there is none.
TOPIC_ID_BYTES: Final = 22
#: A kept offset whose commit named no timestamp. One that is named decides nothing.  # INV-83
NO_TIMESTAMP: Final = -1
#: A kept offset whose commit named no topic's id.
NO_ID: Final = ""


class KeptOffset(msgspec.Struct, frozen=True, array_like=True):
    """A `CommittedValue` as the shard's blob keeps it: without the names of its fields."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    commit_clock_ms: int
    generation: int
    member: str
    timestamp_ms: int = NO_TIMESTAMP
    topic_id: str = NO_ID


def committed_value(
    at: At, row: CommittedOffset | PendingOffset, generation: int, member: str
) -> CommittedValue:
    """An offset that is committed by this step; its age counts from here, also if it waited.

    Without a generation the member that a commit names is ignored, and may be any text: it is not
    kept, once for each row.
    """
    return CommittedValue(
        offset=row.offset,
        leader_epoch=row.leader_epoch,
        metadata=row.metadata,
        commit_ms=at.time_ms,
        commit_clock_ms=at.clock_ms,
        generation=generation,
        member=kept_member(generation, member),
        timestamp_ms=row.timestamp_ms,
        topic_id=row.topic_id,
    )


def kept_member(generation: int, member: str) -> str:
    """The member that an offset is kept with; empty: the commit was of no member."""
    return member if generation >= 0 else ""


def offset_bytes(metadata: str, member: str, is_timed: bool = False, has_id: bool = False) -> int:
    """The share of one offset in the encoded table, at most.

    By the content alone, and without timestamp and id as before there were any: shards of then
    have summed up these numbers.

    Args:
        is_timed: it has a timestamp.
        has_id: it names its topic's id.
    """
    texts_bytes = len(metadata.encode()) + len(member.encode())
    extra_bytes = (TIMESTAMP_BYTES if is_timed else 0) + (TOPIC_ID_BYTES if has_id else 0)
    return OFFSET_BYTES + texts_bytes + extra_bytes


def size_of(kept: KeptOffset) -> int:
    """The same of an offset that is kept."""
    is_timed, has_id = kept.timestamp_ms != NO_TIMESTAMP, kept.topic_id != NO_ID
    return offset_bytes(kept.metadata, kept.member, is_timed, has_id)


def _keep(value: CommittedValue) -> KeptOffset:
    return KeptOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_ms,
        value.commit_clock_ms,
        value.generation,
        value.member,
        NO_TIMESTAMP if value.timestamp_ms is UNSET else value.timestamp_ms,
        value.topic_id or NO_ID,
    )


OFFSETS: Final = Table("committed", COMMITTED, CommittedValue, KeptOffset, _keep, size_of)


#: First part of the keys of its records; `coord.transactions` has others, too.
PENDING_KEY: Final = "pending"
#: An entry without its texts and rows, and its share of a block, at most.
ENTRY_BYTES: Final = 96
#: What each row reserves at least.
ROW_BYTES_MIN: Final = OFFSET_BYTES + NAME_BYTES
#: An offset of one partition: what it is of.
Partition = tuple[str, int]
NOT_DECIDED: Final = ""
COMMIT: Final = "commit"
ABORT: Final = "abort"


class KeptPending(msgspec.Struct, frozen=True, array_like=True):
    """A `PendingValue` as the shard's blob keeps it."""

    decided_by: str
    client: str
    id: str
    member: str
    generation: int
    since_ms: int
    table: str
    #: COMMIT or ABORT: decided while the group was quarantined.
    decision: str
    #: How many rows it has.
    partitions: int
    #: What the offsets may need that it may become.
    reserved_bytes: int
    #: Of KeptRow.
    rows: msgspec.Raw


class KeptRow(msgspec.Struct, frozen=True, array_like=True):
    """A `PendingOffset` as the shard's blob keeps it; the same fields in the same order."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    record: int
    timestamp_ms: int | None = None
    topic_id: str = NO_ID

    @property
    def place(self) -> Partition:
        """Topic and partition."""
        return self.topic, self.partition


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_rows: Final = msgspec.msgpack.Decoder(tuple[KeptRow, ...]).decode
_decode_key: Final = msgspec.json.Decoder(list[str]).decode


class PendingTable(Table):
    """A table in `coord.transactions`, which others share."""

    def key(self, entity: str, place: Place) -> bytes:
        return codec.encode([PENDING_KEY, entity, place[0]])

    def place(self, key: bytes) -> tuple[str, Place] | None:
        parts = _decode_key(key)
        if not parts or parts[0] != PENDING_KEY:
            return None
        if len(parts) != 3:
            raise msgspec.ValidationError(f"No key of coord.{TRANSACTIONS}: {key!r}")
        return parts[1], place_of(parts[2])


def place_of(key: str) -> Place:
    """Where the entry of this key stands."""
    return key, 0


def rows_of(entry: KeptPending) -> tuple[KeptRow, ...]:
    """The rows of an entry, in the order of its commit."""
    return _decode_rows(entry.rows)


def saved(entry: KeptPending, rows: Iterable[KeptRow], decision: str = NOT_DECIDED) -> PendingValue:
    """An entry with these rows, as `coord.transactions` has it."""
    return PendingValue(
        decided_by=entry.decided_by,
        client=entry.client,
        id=entry.id,
        member=entry.member,
        generation=entry.generation,
        since_ms=entry.since_ms,
        offsets=tuple(_saved_row(row) for row in rows),
        table=entry.table or UNSET,
        decision=decision or entry.decision or UNSET,
    )


def named_row(row: CommittedOffset | KeptRow) -> dict[str, Any]:
    """A row in a line of history."""
    return {"topic": row.topic, "partition": row.partition, "offset": row.offset}


def _saved_row(row: KeptRow) -> PendingOffset:
    return PendingOffset(
        topic=row.topic,
        partition=row.partition,
        offset=row.offset,
        leader_epoch=row.leader_epoch,
        metadata=row.metadata,
        record=row.record,
        timestamp_ms=UNSET if row.timestamp_ms is None else row.timestamp_ms,
        topic_id=row.topic_id or UNSET,
    )


def keep_pending(value: PendingValue) -> KeptPending:
    """An entry as the blob has it."""
    rows = tuple(_kept_row(row) for row in value.offsets)
    return KeptPending(
        decided_by=value.decided_by,
        client=value.client,
        id=value.id,
        member=value.member,
        generation=value.generation,
        since_ms=value.since_ms,
        table=value.table or "",
        decision=value.decision or NOT_DECIDED,
        partitions=len(rows),
        reserved_bytes=sum(_reserved_bytes(row, value.member) for row in rows),
        rows=msgspec.Raw(_encode(rows)),
    )


def _kept_row(row: PendingOffset) -> KeptRow:
    return KeptRow(
        topic=row.topic,
        partition=row.partition,
        offset=row.offset,
        leader_epoch=row.leader_epoch,
        metadata=row.metadata,
        record=row.record,
        timestamp_ms=None if row.timestamp_ms is UNSET else row.timestamp_ms,
        topic_id=row.topic_id or NO_ID,
    )


def _reserved_bytes(row: KeptRow, member: str) -> int:
    is_timed, has_id = row.timestamp_ms is not None, row.topic_id != NO_ID
    return offset_bytes(row.metadata, member, is_timed, has_id) + name_bytes(row.topic)


def pending_size_of(entry: KeptPending) -> int:
    """The share of an entry in the encoded table, and of the offsets that it may become."""
    texts = (entry.decided_by, entry.client, entry.id, entry.member, entry.table, entry.decision)
    texts_bytes = sum(len(text.encode()) for text in texts)
    return ENTRY_BYTES + texts_bytes + len(entry.rows) + entry.reserved_bytes


def marks(entry: KeptPending) -> Iterable[int]:
    """The partitions of which it has offsets, as numbers."""
    return [mark_of(row.place) for row in rows_of(entry)]


def mark_of(place: Partition) -> int:
    """Two partitions may have one number; a search looks at the rows."""
    topic, partition = place
    return crc32(f"{topic}/{partition}".encode())


PENDING: Final = PendingTable(
    "pending", TRANSACTIONS, PendingValue, KeptPending, keep_pending, pending_size_of, marks
)

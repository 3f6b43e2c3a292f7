"""The table of committed offsets: one entry per topic and partition, in `coord.committed`."""

from typing import Final

import msgspec
from msgspec import UNSET

from coordlib.core.engine.routing import COMMITTED
from coordlib.core.engine.table import Table
from coordlib.core.engine.transition import At
from coordlib.core.wire.offsets import CommittedOffset
from coordlib.core.wire.stored import CommittedValue, PendingOffset

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

    Without a generation nobody looks at the member that a commit names, and it may be any text: it
    is not kept, once for each row.
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

"""The table of committed offsets: one entry per topic and partition, in `coord.committed`."""

from typing import Final

import msgspec

from coordlib.coordinators.shard.table import Table
from coordlib.effects.routing import COMMITTED
from coordlib.records.stored import CommittedValue

#: An offset without its texts, and its share of a block, at most.
OFFSET_BYTES: Final = 56


class KeptOffset(msgspec.Struct, frozen=True, array_like=True):
    """A `CommittedValue` as the shard's blob keeps it: without the names of its fields."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    commit_clock_ms: int
    generation: int
    member: str


def offset_bytes(metadata: str, member: str) -> int:
    """The share of one offset in the encoded table, at most."""
    return OFFSET_BYTES + len(metadata.encode()) + len(member.encode())


def _size(kept: KeptOffset) -> int:
    return offset_bytes(kept.metadata, kept.member)


def _keep(value: CommittedValue) -> KeptOffset:
    return KeptOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_ms,
        value.commit_clock_ms,
        value.generation,
        value.member,
    )


OFFSETS: Final = Table("committed", COMMITTED, CommittedValue, KeptOffset, _keep, _size)

"""Blobs of state version 1, in which every row was a group's, as blobs of version 2.

Nothing that they hold is lost, and the log goes on from them as it would have.
"""

from typing import Any, Final

import msgspec

from coordlib.core.engine.blob import STATE_VERSION, StoredShard
from coordlib.core.engine.family import Registry
from coordlib.core.engine.kind import Facts
from coordlib.core.engine.refusal_lines import Refusals
from coordlib.core.engine.row import StoredRow
from coordlib.core.engine.table import StoredTable
from coordlib.core.engine.transition import REQUESTS
from coordlib.core.groups.family import Groups, GroupsState
from coordlib.core.groups.kind import UNKNOWN_WISHES
from coordlib.core.groups.offsets.positions import COMMITS
from coordlib.core.groups.offsets.table import OFFSETS


class _Row(msgspec.Struct, array_like=True):
    name: str
    kind: str
    quiet_generation: int
    next_due_ms: int
    uncovered_min: int
    uncovered_max: int
    timeout_ms: int
    replies: tuple[int, ...]
    heard: msgspec.Raw
    expires_ms: int
    hard: msgspec.Raw
    offset_count: int
    offsets: msgspec.Raw
    kept_bytes: int
    offset_bytes: int
    instances: dict[str, str] = {}
    refusals: Refusals = msgspec.field(default_factory=Refusals)
    wishes: msgspec.Raw = UNKNOWN_WISHES
    answered: int = -1


class _Shard(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    clock_ms: int
    previous_ms: int
    offset: int
    commits_offset: int
    published: int
    retention_ms: int
    cells: list[_Row]
    topics: dict[str, int] = {}
    refusals: Refusals = msgspec.field(default_factory=Refusals)
    free_us: int = 0
    answered: tuple[tuple[int, int], ...] = ()
    offsets_free_us: int = 0
    control: tuple[int, int] = (0, 0)


_decode: Final = msgspec.msgpack.Decoder(_Shard).decode


def migrate(blob: bytes, registry: Registry) -> StoredShard:
    """A blob of version 1 as one of today. Raises msgspec.MsgspecError."""
    before = _decode(blob)
    assert registry.families[Groups.SPACE] is Groups
    state = GroupsState(before.topics, before.retention_ms, before.free_us, before.offsets_free_us)
    return StoredShard(
        version=STATE_VERSION,
        clock_ms=before.clock_ms,
        previous_ms=before.previous_ms,
        offsets={REQUESTS: before.offset, COMMITS: before.commits_offset},
        published=before.published,
        rows=[_row(each) for each in before.cells],
        families={Groups.SPACE: msgspec.Raw(msgspec.msgpack.encode(state))},
        refusals=before.refusals,
        answered=before.answered,
        control=before.control,
    )


def _row(row: _Row) -> StoredRow:
    tables: dict[str, Any] = {}
    if row.offset_count:
        tables[OFFSETS.name] = StoredTable(row.offset_count, row.offset_bytes, row.offsets)
    return StoredRow(
        row.name,
        row.kind,
        Facts(
            quiet=row.quiet_generation,
            next_due_ms=row.next_due_ms,
            waits_from=row.uncovered_min,
            waits_to=row.uncovered_max,
            timeout_ms=row.timeout_ms,
            replies=row.replies,
            look_at_ms=row.expires_ms,
            size_bytes=row.kept_bytes,
            instances=row.instances,
            index=row.wishes,
        ),
        row.heard,
        row.hard,
        tables,
        row.refusals,
        row.answered,
    )

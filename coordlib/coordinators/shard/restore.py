"""From the compacted topics back to a shard: what makes a lost checkpoint an inconvenience.

# INV-38

Rule 4: clock, previous timestamp and uncovered causes are kept, sessions are re-armed, because
nobody knows any more when a member was last heard.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from coordlib.coordinators.shard.blob import ShardSettings, encode_blob
from coordlib.coordinators.shard.clock import NEVER
from coordlib.coordinators.shard.family import Family, Registry
from coordlib.coordinators.shard.kind import Kind, Known, UnknownSavedVersion
from coordlib.coordinators.shard.refusal_lines import Refusals
from coordlib.coordinators.shard.row import Row, StoredRow
from coordlib.coordinators.shard.table import Place
from coordlib.coordinators.shard.transition import Key
from coordlib.records.stored import ShardPosition

#: Topic without the prefix -> newest value by key, no tombstones.
Topics = Mapping[str, Mapping[bytes, bytes]]

#: Facts that depend on settings are found anew when the shard is loaded (`must_look_again`).
_NO_SETTINGS: Final = ShardSettings(shard=-1, shards=1, reply_partitions=1, incarnation="")


class _Tagged(msgspec.Struct):
    """As much of any saved head as every kind has."""

    kind: str


_decode_kind = msgspec.json.Decoder(_Tagged).decode


def topics_of(registry: Registry) -> list[str]:
    """The compacted topics, without the prefix, from which shards are restored."""
    found: dict[str, None] = {}
    for family in registry.families.values():
        found[family.HEADS] = None
        found |= dict.fromkeys(table.topic for table in family.tables().values())
    return list(found)


def restore(topics: Topics, position: ShardPosition, registry: Registry) -> bytes:
    """The blob of one shard.

    Entries of an entity that is not there are left out: see `orphans`.

    Args:
        topics: the shard's partition of each of `topics_of`.
        position: where the shard stood, from the progress marker of the same transaction.

    Raises:
        UnknownSavedVersion: a head was saved by newer code.
        msgspec.MsgspecError: a value was not written by this coordinator.
    """
    rows: dict[Key, Row] = {}
    families: dict[str, Any] = {}
    for space, family in registry.families.items():
        heads = _heads(family, topics.get(family.HEADS, {}), registry)
        families[space] = family.restored(heads)
        for name, (kind, value) in heads.items():
            row = Row(StoredRow(name, kind.NAME), kind)
            row.set_value(value, _known(row, position))
            rows[space, name] = row
        _put_entries(family, topics, rows, position)
    for row in rows.values():
        if row.facts.look_at_ms < NEVER:
            row.look_at_once()  # the bound was found without the job's settings
    return encode_blob(position, rows, families, Refusals())


def _known(row: Row, position: ShardPosition) -> Known:
    return Known(row, _NO_SETTINGS, position.clock_ms, row.value, row.facts, row.entry_count)


def _heads(
    family: type[Family], saved: Mapping[bytes, bytes], registry: Registry
) -> dict[str, tuple[Kind, Any]]:
    heads: dict[str, tuple[Kind, Any]] = {}
    for key, value in saved.items():
        name = _decode_kind(value).kind
        kind = registry.kinds.get(name)
        if kind is None or kind not in family.KINDS:
            raise UnknownSavedVersion(f"A group was saved as {name!r}, which this code lacks.")
        heads[family.head_name(key)] = kind, kind.load(value)
    return heads


def _put_entries(
    family: type[Family],
    topics: Topics,
    rows: Mapping[Key, Row],
    position: ShardPosition,
) -> None:
    for table in family.tables().values():
        found: dict[str, list[tuple[Place, Any]]] = {}
        for key, value in topics.get(table.topic, {}).items():
            name, place = table.place(key)
            if (family.SPACE, name) in rows:
                found.setdefault(name, []).append((place, table.load(value)))
        for name, entries in found.items():
            row = rows[family.SPACE, name]
            known = _known(row, position)
            row.apply(table, entries)
            row.renew_by_entries(known._replace(has_put=True))


def orphans(topics: Topics, registry: Registry) -> list[str]:
    """The names of entities that have entries and no saved head, in order.

    Both are written in one transaction, so only another program, or a defect, can have left them.

    Raises:
        msgspec.MsgspecError: a key was not written by this coordinator.
    """
    found: set[str] = set()
    for family in registry.families.values():
        heads = topics.get(family.HEADS, {})
        for table in family.tables().values():
            names = {table.place(key)[0] for key in topics.get(table.topic, {})}
            found |= {name for name in names if family.head_key(name) not in heads}
    return sorted(found)

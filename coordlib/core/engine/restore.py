"""From the compacted topics back to a shard: what makes a lost checkpoint an inconvenience.

# INV-38

Rule 4: clock, previous timestamp and uncovered causes are kept, sessions are re-armed, because
nobody knows any more when a member was last heard.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from coordlib.core.engine import channels
from coordlib.core.engine.blob import encode_blob
from coordlib.core.engine.clock import NEVER
from coordlib.core.engine.family import Family, Registry
from coordlib.core.engine.kind import Kind, Known, UnknownSavedVersion
from coordlib.core.engine.refusal_lines import Refusals
from coordlib.core.engine.routing import OUTBOX
from coordlib.core.engine.row import Row, StoredRow
from coordlib.core.engine.table import Place
from coordlib.core.engine.transition import Key
from coordlib.core.wire.stored import ShardPosition

#: Beside the topics of `topics_of`: as much of it as families are restored from.
PROGRESS: Final = "progress"
#: Topic without the prefix -> newest value by key, no tombstones.
Topics = Mapping[str, Mapping[bytes, bytes]]


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
    return [*found, OUTBOX] if registry.has_messages else list(found)


def restore(topics: Topics, position: ShardPosition, registry: Registry) -> bytes:
    """The blob of one shard.

    Entries of an entity that is not there are left out: see `orphans`.

    Args:
        topics: the shard's partition of each of `topics_of`, and PROGRESS.
        position: where the shard stood, from the progress marker of the same transaction.

    Raises:
        UnknownSavedVersion: a head was saved by newer code.
        msgspec.MsgspecError: a value was not written by this coordinator.
    """
    rows: dict[Key, Row] = {}
    families: dict[str, Any] = {}
    _refuse_foreign_keys(topics, registry)
    for space, family in registry.families.items():
        heads = _heads(family, topics.get(family.HEADS, {}), registry)
        if (
            space in registry.stateful
            and (state := family.restored(heads, topics.get(PROGRESS, {}))) is not None
        ):
            families[space] = state
        for name, (kind, value) in heads.items():
            row = Row(StoredRow(name, kind.NAME), kind)
            row.set_value(value, _known(row, family, position))
            rows[space, name] = row
        _put_entries(family, topics, rows, position)
    for row in rows.values():
        if row.facts.look_at_ms < NEVER:
            row.look_at_once()  # the bound was found without the job's settings
    used = channels.restored(topics.get(OUTBOX, {})).stored()
    return encode_blob(position, rows, families, Refusals(), used)


def _known(row: Row, family: type[Family], position: ShardPosition) -> Known:
    # Facts that depend on settings are found anew when the shard is loaded (`must_look_again`).
    return Known(row, family.SETTINGS(), position.clock_ms, row.value, row.facts, row.counts)


def _refuse_foreign_keys(topics: Topics, registry: Registry) -> None:
    """Heads and tables may share a topic; each of its keys is of one of them."""
    takers: dict[str, list[Callable[[bytes], object]]] = {}
    for family in registry.families.values():
        takers.setdefault(family.HEADS, []).append(family.head_name)
        for table in family.tables().values():
            takers.setdefault(table.topic, []).append(table.place)
    for topic, names in takers.items():
        for key in topics.get(topic, {}):
            if all(name(key) is None for name in names) and not _is_published(topic, key, registry):
                raise UnknownSavedVersion(f"{topic} has the key {key!r}, which this code lacks.")


def _is_published(topic: str, key: bytes, registry: Registry) -> bool:
    return any(family.is_published(topic, key) for family in registry.families.values())


def _heads(
    family: type[Family], saved: Mapping[bytes, bytes], registry: Registry
) -> dict[str, tuple[Kind, Any]]:
    heads: dict[str, tuple[Kind, Any]] = {}
    for key, value in saved.items():
        name = family.head_name(key)
        if name is None:
            continue
        kind_name = _decode_kind(value).kind
        kind = registry.kinds.get(kind_name)
        if kind is None or kind not in family.KINDS:
            why = f"An entity was saved as {kind_name!r}, which this code lacks."
            raise UnknownSavedVersion(why)
        heads[name] = kind, kind.load(value)
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
            at = table.place(key)
            if at is not None and (family.SPACE, at[0]) in rows:
                found.setdefault(at[0], []).append((at[1], table.load(value)))
        for name, entries in found.items():
            row = rows[family.SPACE, name]
            row.settle(row.value, row.kind, _known(row, family, position), (), [(table, entries)])


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
            places = (table.place(key) for key in topics.get(table.topic, {}))
            names = {at[0] for at in places if at is not None}
            found |= {name for name in names if family.head_key(name) not in heads}
    return sorted(found)

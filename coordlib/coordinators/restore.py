"""From the compacted topics back to a shard: what makes a lost checkpoint an inconvenience.

Rule 4: clock, previous timestamp and uncovered causes are kept, sessions are re-armed, because
nobody knows any more when a member was last heard.
"""

from collections.abc import Iterable

import msgspec

from coordlib.coordinators.cell import Cell
from coordlib.coordinators.machine import UnknownSavedVersion
from coordlib.coordinators.refusal_lines import Refusals
from coordlib.coordinators.registry import MACHINES
from coordlib.coordinators.shard_state import encode_blob
from coordlib.records.stored import CommittedValue, ShardPosition


class _Tagged(msgspec.Struct):
    """As much of any saved group as every kind has."""

    kind: str


_decode_kind = msgspec.json.Decoder(_Tagged).decode
_decode_key = msgspec.json.Decoder(tuple[str, str, int]).decode
_decode_value = msgspec.json.Decoder(CommittedValue).decode


def restore(
    saved_groups: Iterable[bytes],
    committed: Iterable[tuple[bytes, bytes]],
    position: ShardPosition,
) -> bytes:
    """The blob of one shard.

    Args:
        saved_groups: newest values of `coord.groups` in the shard's partition, no tombstones.
        committed: newest (key, value) pairs of `coord.committed` there, no tombstones.
        position: where the shard stood, from the progress marker of the same transaction.

    Raises:
        UnknownSavedVersion: a group was saved by newer code.
        msgspec.MsgspecError: a value was not written by this coordinator.
    """
    cells: dict[str, Cell] = {}
    topics: dict[str, int] = {}
    for value in saved_groups:
        kind = _decode_kind(value).kind
        if kind not in MACHINES:
            raise UnknownSavedVersion(f"A group was saved as {kind!r}, which this code lacks.")
        machine = MACHINES[kind]
        group = machine.decode_saved(value)
        topics.update(machine.known_topics(group))
        cell = Cell.empty(group.group, kind)
        cell.set_group(group, position.clock_ms, [])
        cells[group.group] = cell
    for key, value in committed:
        name, topic, partition = _decode_key(key)
        cells[name].apply_commit(topic, partition, _decode_value(value))
    # No retention: bounds of expiry are found when the shard is loaded.
    return encode_blob(position, 0, cells, topics, Refusals())

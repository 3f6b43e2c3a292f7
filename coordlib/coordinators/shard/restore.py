"""From the compacted topics back to a shard: what makes a lost checkpoint an inconvenience.

# INV-38

Rule 4: clock, previous timestamp and uncovered causes are kept, sessions are re-armed, because
nobody knows any more when a member was last heard.
"""

from collections.abc import Container, Iterable, Mapping

import msgspec

from coordlib.coordinators.groups.group import AnyGroup
from coordlib.coordinators.registry import MACHINES
from coordlib.coordinators.shard.blob import encode_blob
from coordlib.coordinators.shard.kind import UnknownSavedVersion
from coordlib.coordinators.shard.refusal_lines import Refusals
from coordlib.coordinators.shard.row import Row
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

    Offsets of a group that is not there are left out: see `orphans`.

    Args:
        saved_groups: newest values of `coord.groups` in the shard's partition, no tombstones.
        committed: newest (key, value) pairs of `coord.committed` there, no tombstones.
        position: where the shard stood, from the progress marker of the same transaction.

    Raises:
        UnknownSavedVersion: a group was saved by newer code.
        msgspec.MsgspecError: a value was not written by this coordinator.
    """
    cells: dict[str, Row] = {}
    groups: list[AnyGroup] = []
    for value in saved_groups:
        kind = _decode_kind(value).kind
        if kind not in MACHINES:
            raise UnknownSavedVersion(f"A group was saved as {kind!r}, which this code lacks.")
        machine = MACHINES[kind]
        group = machine.decode_saved(value)
        groups.append(group)
        cell = Row.empty(group.group, kind)
        cell.set_group(group, position.clock_ms, [])
        cells[group.group] = cell
    for key, value in committed:
        name, topic, partition = _decode_key(key)
        if name in cells:
            cells[name].apply_commit(topic, partition, _decode_value(value))
    # No retention: bounds of expiry are found when the shard is loaded.
    return encode_blob(position, 0, cells, _topics(cells, groups), Refusals())


def orphans(groups: Container[bytes], committed: Iterable[bytes]) -> list[str]:
    """The names of groups that have committed offsets and no saved state, in order.

    Both are written in one transaction, so only somebody else, or a defect, can have left them.

    Args:
        groups: keys of `coord.groups`, the names of the saved groups.
        committed: keys of `coord.committed`.

    Raises:
        msgspec.MsgspecError: a key was not written by this coordinator.
    """
    names = {name for name, _, _ in map(_decode_key, committed)}
    return sorted(name for name in names if name.encode() not in groups)


def _topics(cells: Mapping[str, Row], groups: Iterable[AnyGroup]) -> dict[str, int]:
    """The topics that the groups know, the best known count of each.

    Groups are told of every change that concerns them, so all of them agree. A quarantined one is
    told nothing: what it knows counts where no other knows more, and of several such that of the
    one whose state changed last.
    """
    topics: dict[str, int] = {}
    for group in sorted(groups, key=_newest_last):
        topics.update(cells[group.group].machine.known_topics(group))
    return topics


def _newest_last(group: AnyGroup) -> tuple[bool, int, str]:
    return not group.is_quarantined, group.state_since_ms, group.group

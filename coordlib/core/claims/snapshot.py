"""A world as bytes and back: for clients that begin exactly, and for the engine's state."""

from typing import TYPE_CHECKING, Final

import msgspec

from coordlib.core.claims.slot import Key, Slot

if TYPE_CHECKING:
    from coordlib.core.claims.slots import Slots

SNAPSHOT_VERSION: Final = 1


class UnreadableSnapshot(ValueError):
    """The bytes are no world that this code knows, or that of another coordination partition."""


class StoredWorld(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The form of a world. Fields are added at the end only."""

    version: int
    topic: str
    partition: int
    partitions: int
    is_late: bool
    offset: int
    clock_ms: int
    previous_ms: int
    #: By key.
    slots: list[tuple[Key, Slot]]
    pauses: list[tuple[str, int, str]]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(StoredWorld).decode


def written(slots: "Slots") -> bytes:
    """Canonical: equal worlds are equal bytes.  # INV-03"""
    return _encode(
        StoredWorld(
            SNAPSHOT_VERSION,
            slots.topic,
            slots.partition,
            slots.partitions,
            slots.is_late,
            slots.offset,
            slots.clock_ms,
            slots.previous_ms,
            sorted(slots.slots.items()),
            sorted((group, *pause) for group, pause in slots.pauses.items()),
        )
    )


def read_into(slots: "Slots", snapshot: bytes) -> None:
    """Fill a new world. Raises UnreadableSnapshot."""
    try:
        stored = _decode(snapshot)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise UnreadableSnapshot(f"The snapshot cannot be read: {problem}.") from problem
    if stored.version != SNAPSHOT_VERSION:
        raise UnreadableSnapshot(
            f"The snapshot has version {stored.version}, this code knows {SNAPSHOT_VERSION}."
        )
    belongs = (stored.topic, stored.partition, stored.partitions)
    if belongs != (slots.topic, slots.partition, slots.partitions):
        raise UnreadableSnapshot(
            f"The snapshot is of partition {stored.partition} of {stored.partitions} of "
            f"{stored.topic}."
        )
    slots.is_late = stored.is_late
    slots.offset, slots.clock_ms = stored.offset, stored.clock_ms
    slots.previous_ms = stored.previous_ms
    slots.slots = dict(stored.slots)
    slots.pauses = {group: (until_ms, client) for group, until_ms, client in stored.pauses}

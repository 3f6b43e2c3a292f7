"""A world as bytes and back; and snapshots as records, from which clients begin exactly.

A snapshot has pages of at most 1 MiB. All pages of one snapshot are written in one transaction, so
a reader of committed records finds them whole; each names the offset and the number of pages, so
that it can make sure.
"""

import zlib
from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from coordlib import limits
from coordlib.core.claims.slots import Key, Slot
from coordlib.core.engine import effects as fx

if TYPE_CHECKING:
    from coordlib.core.claims.slots import Slots

SNAPSHOT_VERSION: Final = 1


class UnreadableSnapshot(ValueError):
    """The bytes are no world of this version, or that of another coordination partition."""


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


PAGE_VERSION: Final = 1
#: Of a page, for what is not the world.
_HEAD_BYTES: Final = 1_024
_LEVEL: Final = 6
#: A world of 50,000 slots with the longest names; more is none that was written here.
_WORLD_BYTES_MAX: Final = 64 * limits.MIB


class Page(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The value of one record of the snapshots; its key is `page`, its partition the log's."""

    version: int
    #: Of the coordination topic: a topic that is made anew has other offsets.
    topic_id: str
    #: Of the coordination topic.
    partitions: int
    #: The newest record of the world.
    offset: int
    clock_ms: int
    page: int
    pages: int
    #: Its part of the world (`World.snapshot`), compressed with zlib as a whole.
    part: bytes


_encode_page: Final = msgspec.msgpack.Encoder().encode
_decode_page: Final = msgspec.msgpack.Decoder(Page).decode


def pages_of(
    world: bytes, topic_id: str, partitions: int, offset: int, clock_ms: int
) -> list[fx.SavePage]:
    """A world as records, at least one."""
    packed = zlib.compress(world, _LEVEL)
    size = limits.SNAPSHOT_PAGE_BYTES_MAX - _HEAD_BYTES
    parts = [packed[start : start + size] for start in range(0, len(packed), size)]
    return [
        fx.SavePage(
            n,
            _encode_page(
                Page(PAGE_VERSION, topic_id, partitions, offset, clock_ms, n, len(parts), part)
            ),
        )
        for n, part in enumerate(parts)
    ]


def surplus(pages: int, before: int) -> list[fx.SavePage]:
    """Tombstones of the pages that the snapshot before had and this one has not."""
    return [fx.SavePage(page, None) for page in range(pages, before)]


class Snapshot(msgspec.Struct, frozen=True):
    """What the pages of one coordination partition hold."""

    topic_id: str
    partitions: int
    offset: int
    clock_ms: int
    pages: int
    #: For `World.restore`.
    world: bytes


def read_pages(values: Iterable[bytes]) -> Snapshot | None:
    """The snapshot that these records are; None: there are none.

    Args:
        values: the newest one under each key, of one partition, in any order.

    Raises UnreadableSnapshot: pages are missing or of several snapshots, or other code wrote them.
    """
    pages = sorted((_page(value) for value in values), key=lambda each: each.page)
    if not pages:
        return None
    first = pages[0]
    for number, page in zip(count(), pages):
        same = (page.topic_id, page.partitions, page.offset, page.pages)
        if page.page != number or same != (
            first.topic_id,
            first.partitions,
            first.offset,
            len(pages),
        ):
            raise UnreadableSnapshot("The pages of the snapshot do not belong together.")
    world = _unpacked(b"".join(page.part for page in pages))
    return Snapshot(
        first.topic_id, first.partitions, first.offset, first.clock_ms, len(pages), world
    )


def _page(value: bytes) -> Page:
    try:
        page = _decode_page(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise UnreadableSnapshot(f"A page of the snapshot cannot be read: {problem}.") from problem
    if page.version != PAGE_VERSION:
        raise UnreadableSnapshot(
            f"The snapshot's pages have version {page.version}, this code knows {PAGE_VERSION}."
        )
    return page


def _unpacked(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        world = unpacker.decompress(packed, _WORLD_BYTES_MAX)
    except zlib.error as problem:
        raise UnreadableSnapshot(f"The snapshot cannot be unpacked: {problem}.") from problem
    if not unpacker.eof:
        raise UnreadableSnapshot("The snapshot is cut off, or larger than any that was written.")
    return world

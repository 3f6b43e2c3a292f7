"""A shard's state in pages: what a batch costs follows from what it changed, not from all there is.

    shard: everything but the rows | times: when members were heard | pages: the rows, a few in each

A page is written again only if one of its rows was touched; every other one is handed on as it was
read. Heartbeats touch most rows of a batch, so what they change stands apart: the times alone, in
the order in which the pages have the members' ids.

In which page a row stands follows from its name and from how many rows there are. So equal states
are equal pages, however the log was cut and whichever process wrote them.  # INV-03

A process may keep the rows that it has read or written (`Kept`), by the bytes of their page. It
takes them out before it judges, and puts back what was written: rows of a batch that failed are
never found again, and another process's pages are read, since their bytes are others.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from coordlib.coordinators.shard.blob import (
    InputRecord,
    ShardSettings,
    Status,
    StoredWithChannels,
    UnknownStateVersion,
    decode_blob,
    encode_rows,
)
from coordlib.coordinators.shard.family import Registry
from coordlib.coordinators.shard.row import Row, StoredRow
from coordlib.coordinators.shard.shard import Loaded, Shard, judged
from coordlib.coordinators.shard.transition import Key
from coordlib.effects.routing import Output

#: Fewer rows in a page: less is written for one that changed, and all pages together cost more.
PAGE_ROWS: Final = 8


class StoredPages(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A state, each part of it packed."""

    shard: bytes
    times: bytes
    pages: list[bytes]


#: The rows of a page by its packed bytes, as a batch finds them that reads them from these.
Kept = dict[bytes, list[Row]]
#: One part to another: equal parts, equal bytes.
Turn = Callable[[bytes], bytes]


class Packing(NamedTuple):
    """How the parts are stored."""

    pack: Turn
    unpack: Turn


class PagesFold(NamedTuple):
    """The outcome of a batch."""

    stored: StoredPages
    #: To be given to the batch that finds `stored`, or one that came of it.
    kept: Kept
    outputs: list[Output]
    status: Status


class _Read(NamedTuple):
    """A state as it was read."""

    state: StoredWithChannels
    packed: list[bytes]
    #: Of each page.
    rows: list[list[Row]]


_decode_rows: Final = msgspec.msgpack.Decoder(list[StoredRow]).decode
_decode_times: Final = msgspec.msgpack.Decoder(list[list[msgspec.Raw]]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def page_count(rows: int) -> int:
    """How many pages so many rows have: a power of two, so that it rarely changes."""
    return 1 << max(0, (rows - 1) // PAGE_ROWS).bit_length()


def page_of(key: Key, count: int) -> int:
    """The page of a row; by its name alone, and the same in every process."""
    return crc32("\0".join(key).encode()) & (count - 1)


def fold_pages(
    before: StoredPages | bytes | None,
    records: Iterable[InputRecord],
    settings: ShardSettings,
    registry: Registry,
    packing: Packing,
    kept: Kept,
) -> PagesFold:
    """As `fold`, of a state in pages, or of a blob.

    `kept`: what came of an earlier batch of this shard; emptied at once. It makes no difference.

    Raises UnknownStateVersion, msgspec.MsgspecError, ValueError, and what `packing` raises.
    """
    if not isinstance(before, StoredPages):
        shard = judged(before, records, settings, registry)
        return _written(shard, [_new_page(rows, rows, packing) for rows in _cut(shard)], packing)
    read = _read(before, registry, packing, kept)
    rows = (row for page in read.rows for row in page)
    shard = judged(Loaded(read.state, rows), records, settings, registry)
    return _written(shard, _pages_after(shard, read, packing), packing)


def whole(stored: StoredPages, registry: Registry, packing: Packing) -> bytes:
    """The blob of a state. Raises as `fold_pages`."""
    read = _read(stored, registry, packing, {})
    rows = [row.encoded() for page in read.rows for row in page]
    rows.sort(key=lambda row: (registry.kinds[row.kind].SPACE, row.name))
    return encode_rows(read.state, rows)


# -- reading -------------------------------------------------------------------------------


def _read(stored: StoredPages, registry: Registry, packing: Packing, kept: Kept) -> _Read:
    state = decode_blob(packing.unpack(stored.shard), registry)
    found: list[list[Row]] = []
    times = _decode_times(packing.unpack(stored.times))
    for packed, heard in zip(stored.pages, times, strict=True):
        rows = kept.pop(packed, None)
        if rows is None:
            rows = [_row(each, registry) for each in _decode_rows(packing.unpack(packed))]
        for row, each in zip(rows, heard, strict=True):
            row.times = each
        found.append(rows)
    kept.clear()
    return _Read(state, stored.pages, found)


def _row(stored: StoredRow, registry: Registry) -> Row:
    kind = registry.kinds.get(stored.kind)
    if kind is None:
        raise UnknownStateVersion(
            f"The state has {stored.kind}, which this code lacks: start the code that wrote it."
        )
    return Row(stored, kind)


# -- writing -------------------------------------------------------------------------------


def _cut(shard: Shard) -> list[list[Row]]:
    """All rows, page by page and in order."""
    count = page_count(len(shard.rows))
    pages: list[list[Row]] = [[] for _ in range(count)]
    for key, row in sorted(shard.rows.items()):
        pages[page_of(key, count)].append(row)
    return pages


def _pages_after(shard: Shard, read: _Read, packing: Packing) -> "list[_Page]":
    """Those of whom nobody was touched as they were, the others anew."""
    count = page_count(len(shard.rows))
    if count != len(read.packed):
        return [_new_page(rows, rows, packing) for rows in _cut(shard)]
    touched: dict[int, set[Key]] = {}
    for key in shard.rows.touched:
        touched.setdefault(page_of(key, count), set()).add(key)
    pages: list[_Page] = []
    for number, (packed, rows) in enumerate(zip(read.packed, read.rows, strict=True)):
        if number not in touched:
            for row in rows:
                row.only_heard()
            pages.append((packed, rows))
            continue
        keys = sorted(touched[number].union(row.key for row in rows))
        now = [row for row in map(shard.rows.peek, keys) if row is not None]
        changed = [row for row in now if row.key in touched[number]]
        pages.append(_new_page(now, changed, packing))
    return pages


#: Packed, and the rows as they are read from that.
_Page = tuple[bytes, list[Row]]


def _new_page(rows: Iterable[Row], changed: Iterable[Row], packing: Packing) -> _Page:
    fresh = {row.key: row.for_page() for row in changed}
    now = [fresh.get(row.key, row) for row in rows]
    for row in now:
        row.only_heard()
    return packing.pack(_encode([row.stored for row in now])), now


def _written(shard: Shard, pages: list[_Page], packing: Packing) -> PagesFold:
    times = packing.pack(_encode([[row.times for row in rows] for _, rows in pages]))
    beside = packing.pack(shard.encode_beside_rows())
    stored = StoredPages(beside, times, [packed for packed, _ in pages])
    return PagesFold(stored, dict(pages), shard.outputs, shard.status())

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

from array import array
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from coordlib.core.engine.effects import Key, Output
from coordlib.core.engine.fold import Shard, judged
from coordlib.core.engine.protocol import Registry
from coordlib.core.engine.rows import Noted, PageRow, Row, StoredRow, note, page_row
from coordlib.core.engine.state import (
    InputRecord,
    Loaded,
    ShardSettings,
    Status,
    StoredWithChannels,
    UnknownStateVersion,
    decode_blob,
    encode_rows,
)

#: Fewer rows in a page: less is written for one that changed, and all pages together cost more.
PAGE_ROWS: Final = 16
#: Of this machine; times are stored the other way round.
IS_BIG_ENDIAN: Final = array("h", [1]).tobytes()[-1] == 1


class BrokenPages(ValueError):
    """The parts of a state do not belong together."""


class StoredPages(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A state, each part of it packed."""

    shard: bytes
    times: bytes
    pages: list[bytes]


class Page(NamedTuple):
    """The rows of a page, as a batch finds them that reads them."""

    #: By key, in order.
    rows: list[PageRow]
    #: When their members were heard.
    times: "array[int]"
    noted: Noted
    #: Unpacked.
    size_bytes: int


#: Pages by their packed bytes.
Kept = dict[bytes, Page]
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
    #: Of all parts, unpacked.
    size_bytes: int


class _Read(NamedTuple):
    """A state as it was read."""

    state: StoredWithChannels
    packed: list[bytes]
    pages: list[Page]


_decode_rows: Final = msgspec.msgpack.Decoder(list[StoredRow]).decode
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

    Raises UnknownStateVersion, msgspec.MsgspecError, BrokenPages, and what `packing` raises.
    """
    if not isinstance(before, StoredPages):
        kept.clear()
        shard = judged(before, records, settings, registry)
        return _written(shard, [_new_page(rows, shard, packing) for rows in _cut(shard)], packing)
    read = _read(before, registry, packing, kept)
    rows = (row for page in read.pages for row in page.rows)
    noted = [page.noted for page in read.pages]
    shard = judged(Loaded(read.state, rows, noted), records, settings, registry)
    return _written(shard, _pages_after(shard, read, packing), packing)


def whole(stored: StoredPages, registry: Registry, packing: Packing) -> bytes:
    """The blob of a state. Raises as `fold_pages`."""
    read = _read(stored, registry, packing, {})
    rows = [row.encoded() for page in read.pages for row in page.rows]
    rows.sort(key=lambda row: (registry.kinds[row.kind].SPACE, row.name))
    return encode_rows(read.state, rows)


# -- reading -------------------------------------------------------------------------------


def _read(stored: StoredPages, registry: Registry, packing: Packing, kept: Kept) -> _Read:
    state = decode_blob(packing.unpack(stored.shard), registry)
    times, at, pages = _decode_times(packing.unpack(stored.times)), 0, []
    for packed in stored.pages:
        page = kept.pop(packed, None) or _page(packing.unpack(packed), registry)
        own = times[at : at + len(page.times)]
        at += len(own)
        if len(own) != len(page.times):
            raise BrokenPages("times are missing")
        page.times[:] = own
        pages.append(page)
    kept.clear()
    if at != len(times):
        raise BrokenPages("there are times of nobody")
    return _Read(state, stored.pages, pages)


def _decode_times(stored: bytes) -> "array[int]":
    times = array("q")
    if len(stored) % times.itemsize:
        raise BrokenPages("a time is cut off")
    times.frombytes(stored)
    if IS_BIG_ENDIAN:
        times.byteswap()
    return times


def _page(stored: bytes, registry: Registry) -> Page:
    """A page that was read, but for its times."""
    rows, times = [_row(each, registry) for each in _decode_rows(stored)], array("q")
    for row in rows:
        row.move(times, is_new=True)
    return Page(rows, times, _noted(rows), len(stored))


def _row(stored: StoredRow, registry: Registry) -> PageRow:
    kind = registry.kinds.get(stored.kind)
    if kind is None:
        raise UnknownStateVersion(
            f"The state has {stored.kind}, which this code lacks: start the code that wrote it."
        )
    return PageRow(stored, kind)


def _noted(rows: Iterable[PageRow]) -> Noted:
    return note([(row.key, row.facts, row.entry_bytes) for row in rows])


# -- writing -------------------------------------------------------------------------------


def _cut(shard: Shard) -> list[list[Row]]:
    """All rows, page by page and in order."""
    count = page_count(len(shard.rows))
    pages: list[list[Row]] = [[] for _ in range(count)]
    for key, row in sorted(shard.rows.items()):
        pages[page_of(key, count)].append(row)
    return pages


def _pages_after(shard: Shard, read: _Read, packing: Packing) -> "list[_Packed]":
    """Those of whom nobody was touched as they were, the others anew."""
    count = page_count(len(shard.rows))
    if count != len(read.packed):
        return [_new_page(rows, shard, packing) for rows in _cut(shard)]
    touched: dict[int, set[Key]] = {}
    for key in shard.touched:
        touched.setdefault(page_of(key, count), set()).add(key)
    pages = list(zip(read.packed, read.pages, strict=True))
    for number, keys in touched.items():
        keys.update(row.key for row in pages[number][1].rows)
        rows = (shard.rows.get(key) for key in sorted(keys))
        pages[number] = _new_page([row for row in rows if row is not None], shard, packing)
    return pages


#: A page, and its packed bytes.
_Packed = tuple[bytes, Page]


def _new_page(rows: Iterable[Row], shard: Shard, packing: Packing) -> _Packed:
    now: list[PageRow] = []
    times = array("q")
    for row in rows:
        if isinstance(row, PageRow) and row.key not in shard.touched:
            row.move(times)
            now.append(row)
        else:
            now.append(page_row(row, times))
    stored = _encode([row.stored for row in now])
    return packing.pack(stored), Page(now, times, _noted(now), len(stored))


def _written(shard: Shard, pages: list[_Packed], packing: Packing) -> PagesFold:
    tables, times = shard.encode(has_rows=False), _encode_times(page.times for _, page in pages)
    return PagesFold(
        stored=StoredPages(
            packing.pack(tables), packing.pack(times), [packed for packed, _ in pages]
        ),
        kept=dict(pages),
        outputs=shard.outputs,
        status=shard.status(),
        size_bytes=len(tables) + len(times) + sum(page.size_bytes for _, page in pages),
    )


def _encode_times(times: "Iterable[array[int]]") -> bytes:
    joined = b"".join(times)
    if IS_BIG_ENDIAN:
        swapped = array("q", joined)
        swapped.byteswap()
        return swapped.tobytes()
    return joined

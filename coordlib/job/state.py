"""A shard's state as Spark's state store has it, and what a worker keeps of it.

The JVM copies the state several times and writes it out, every batch: so it is compressed. The
first byte names the form. A blob is one piece; a state in pages (core/engine/pages.py) is
packed page by page, so that a batch packs the pages that it changed.
"""

import zlib
from typing import Any, Final

import msgspec

from coordlib.core.engine.pages import Kept, StoredPages

#: A blob or a part, and one that code of before has packed; a state in pages.
_ZSTD: Final = b"\x01"
_ZLIB: Final = b"\x78"
_PAGES: Final = b"\x02"
#: The size of a blob unpacked stands behind the first byte.
_SIZE_BYTES: Final = 8
#: The checksum of all parts stands behind the first byte: zstd alone lets a damaged byte pass.
_SUM_BYTES: Final = 4
#: Of a worker's memory. Rows that are kept take up to twice their bytes.
KEPT_SHARE: Final = 8

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(StoredPages).decode


class UnreadableState(ValueError):
    """The state of a shard is not what this code wrote. Known by its name: see `failures`."""


def pack_state(blob: bytes) -> bytes:
    """A shard's blob as the state store has it: the first byte names the form."""
    size = len(blob).to_bytes(_SIZE_BYTES, "big")
    packed: bytes = _codec().compress(blob, asbytes=True)
    return _ZSTD + size + packed


def unpack_state(stored: bytes) -> bytes:
    """The blob again, whichever code has packed it. Raises UnreadableState."""
    try:
        if stored[:1] == _ZLIB:
            return zlib.decompress(stored)
        if stored[:1] == _ZSTD and len(stored) > 1 + _SIZE_BYTES:
            return _unpack_zstd(memoryview(stored)[1:])
    except (zlib.error, OSError, ValueError, MemoryError) as problem:
        what = f"{type(problem).__name__}: {problem}"
        raise UnreadableState(f"it cannot be unpacked: {what}") from problem
    raise UnreadableState(f"it begins with {stored[:4]!r}, which no code has written")


def _unpack_zstd(stored: memoryview) -> bytes:
    size = int.from_bytes(stored[:_SIZE_BYTES], "big")
    blob: bytes = _codec().decompress(stored[_SIZE_BYTES:], decompressed_size=size, asbytes=True)
    if len(blob) != size:
        raise ValueError(f"{len(blob)} bytes, and not {size}")
    return blob


def _codec() -> Any:
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=1)


# -- in pages ------------------------------------------------------------------------------


def pack_pages(stored: StoredPages) -> bytes:
    """A state in pages as the state store has it; its parts are packed already."""
    parts = _encode(stored)
    return _PAGES + zlib.crc32(parts).to_bytes(_SUM_BYTES, "big") + parts


def unpack_pages(stored: bytes) -> StoredPages | None:
    """The state again; None: it is not in pages. Raises UnreadableState."""
    if stored[:1] != _PAGES:
        return None
    expected, parts = stored[1 : 1 + _SUM_BYTES], memoryview(stored)[1 + _SUM_BYTES :]
    if zlib.crc32(parts).to_bytes(_SUM_BYTES, "big") != expected:
        raise UnreadableState("its pages are damaged: they have another checksum")
    try:
        return _decode(parts)
    except msgspec.MsgspecError as problem:
        raise UnreadableState(f"its pages cannot be read: {problem}") from problem


class KeptPages:
    """The pages of the shards that this process judged last. What they are for: `pages.py`.

    Another process may have judged a shard since; then those of its pages that changed are read.
    """

    def __init__(self) -> None:
        #: (plane, shard) -> its pages and how many bytes these have; the newest one last.
        self._of: dict[tuple[str, int], tuple[Kept, int]] = {}

    def take(self, plane: str, shard: int) -> Kept:
        """They are the caller's now: nothing is left of them if the batch fails."""
        kept, _ = self._of.pop((plane, shard), ({}, 0))
        return kept

    def put(self, plane: str, shard: int, kept: Kept, size_bytes: int, bytes_max: int) -> None:
        """Keep them, and as many others as all together have at most so many bytes."""
        self._of[plane, shard] = kept, size_bytes
        while sum(size for _, size in self._of.values()) > bytes_max:
            del self._of[next(iter(self._of))]


#: Of this worker.
KEPT: Final = KeptPages()

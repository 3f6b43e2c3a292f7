"""Tables: many small entries beside an entity's head, in blocks that are decoded one by one.

A large group commits a few offsets at a time, and its members come and go without touching any. So
the entries that share a name (a topic's partitions) stand in blocks of neighbours, and a block is
bytes until somebody asks for an entry in it; how many there are is known without reading them.
Blocks and not names, because one topic may have ten thousand partitions.

Each entry is a record of its own in the compacted topic that the table names.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, cast

import msgspec

from coordlib.core.wire import codec

#: Where an entry stands: a name, and a number beside it.
Place = tuple[str, int]
#: A place, and the entry, as the blob keeps it, that was there before; None: there was none.
Change = tuple[Place, Any]

#: Neighbouring numbers of a name in one block; members mostly own neighbours.
BLOCK_ENTRIES: Final = 64
#: The share of a name in an encoded table, beside its own bytes.
NAME_BYTES: Final = 16

_Block = dict[int, Any]
_decode_names: Final = msgspec.msgpack.Decoder(dict[str, dict[int, msgspec.Raw]]).decode
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_key: Final = msgspec.json.Decoder(tuple[str, str, int]).decode
NO_ENTRIES: Final = msgspec.Raw(_encode({}))


class Table(NamedTuple):
    """What a family says of one of its tables."""

    name: str
    #: The compacted topic of its entries, without the prefix. Keys: `["entity","name",number]`.
    topic: str
    #: An entry as the topic has it, and as the blob keeps it.
    saved: type[msgspec.Struct]
    kept: type[msgspec.Struct]
    #: From the one to the other.
    keep: Callable[[Any], Any]
    #: Upper bound of a kept entry's share of a block; by its content alone.
    size: Callable[[Any], int]
    #: Numbers by which entries are searched (`Entries.marked`), of a kept entry; None: by none.
    marks: Callable[[Any], Iterable[int]] | None = None

    def key(self, entity: str, place: Place) -> bytes:
        """The key of an entry in the topic."""
        return codec.encode([entity, *place])

    def place(self, key: bytes) -> tuple[str, Place] | None:
        """The entity and the place that a key names. Raises msgspec.MsgspecError.

        Tables that share a topic with others, or with heads, have keys of their own and subclass
        this; None: the key is not of this table.
        """
        entity, name, number = _decode_key(key)
        return entity, (name, number)

    def load(self, value: bytes) -> Any:
        """An entry from the topic. Raises msgspec.MsgspecError."""
        return msgspec.json.decode(value, type=self.saved)


class StoredTable(msgspec.Struct, array_like=True, gc=False):
    """The entries of one entity, as its row has them."""

    count: int = 0
    #: Upper bound of the encoded size, by what is stored alone.
    size_bytes: int = 0
    blocks: msgspec.Raw = NO_ENTRIES


class Entries:
    """The entries of one entity, by name and number. Handlers read them; the shard changes them."""

    __slots__ = (
        "_blocks_of_mark",
        "_decode_block",
        "_has_searched",
        "_names",
        "_table",
        "count",
        "size_bytes",
    )

    def __init__(self, table: Table, stored: StoredTable | None = None) -> None:
        stored = stored or StoredTable()
        self._table = table
        self._decode_block = _block_decoder(table.kept)
        #: name -> block -> its entries, or their bytes as long as nobody asked. None are empty.
        self._names = cast(
            "dict[str, dict[int, msgspec.Raw | _Block]]", _decode_names(stored.blocks)
        )
        #: Whether entries were searched before, and from the second search on in which blocks each
        #: mark may be. Never stored: it changes how fast a search is, and nothing that is found.
        self._has_searched = False
        self._blocks_of_mark: dict[int, dict[tuple[str, int], None]] | None = None
        #: How many entries there are.
        self.count = stored.count
        #: Upper bound of their encoded size, by what is stored alone.
        self.size_bytes = stored.size_bytes

    def get(self, name: str, number: int) -> Any:
        """The entry at a place; None: there is none."""
        block = self._block(name, number // BLOCK_ENTRIES)
        return None if block is None else block.get(number)

    def has_name(self, name: str) -> bool:
        return name in self._names

    def names(self) -> list[str]:
        """The names that have entries, sorted."""
        return sorted(self._names)

    def of_name(self, name: str) -> Iterator[tuple[int, Any]]:
        """Numbers of a name and their entries, in order."""
        for block in sorted(self._names.get(name, ())):
            yield from sorted((self._block(name, block) or {}).items())

    def __iter__(self) -> Iterator[tuple[str, int, Any]]:
        """Name, number and entry of all, in order."""
        for name in self.names():
            for number, entry in self.of_name(name):
                yield name, number, entry

    def marked(self, *wanted: int) -> list[tuple[Place, Any]]:
        """The entries that have one of these marks, by place and in order.

        The first search of a batch reads all blocks and keeps those decoded in which it found
        something. The second one makes an index: a batch with one event must not pay for it.
        """
        marks, either = self._table.marks or _no_marks, frozenset(wanted)
        if self._has_searched:
            index = self._index()
            blocks = sorted({block for mark in either for block in index.get(mark, ())})
        else:
            blocks = [
                (name, number) for name in self.names() for number in sorted(self._names[name])
            ]
        self._has_searched = True
        found: list[tuple[Place, Any]] = []
        for name, number in blocks:
            block = self._peek(name, number)
            here = [
                ((name, n), each)
                for n, each in sorted(block.items())
                if not either.isdisjoint(marks(each))
            ]
            if here:
                self._names[name][number] = block
                found += here
        return found

    def apply(self, place: Place, saved: Any) -> Any:
        """Store an entry as the topic has it; None: forget it. Returns the kept one before."""
        if saved is None:
            return self._forget(*place)
        kept = self._table.keep(saved)
        return self._put(place, kept, self._table.size(kept))

    def set(self, place: Place, kept: Any) -> Any:
        """As `apply`, of an entry as `get` gives it."""
        if kept is None:
            return self._forget(*place)
        return self._put(place, kept, self._table.size(kept))

    def _put(self, place: Place, kept: Any, size_bytes: int) -> Any:
        name, number = place
        block = self._block(name, number // BLOCK_ENTRIES)
        if block is None:
            if name not in self._names:
                self._names[name] = {}
                self.size_bytes += name_bytes(name)
            block = self._names[name][number // BLOCK_ENTRIES] = {}
        before = block.get(number)
        block[number] = kept
        if self._blocks_of_mark is not None:
            self._mark(self._blocks_of_mark, (name, number // BLOCK_ENTRIES), kept)
        self.size_bytes += size_bytes
        if before is None:
            self.count += 1
        else:
            self.size_bytes -= self._table.size(before)
        return before

    def stored(self) -> StoredTable:
        """Equal entries give equal bytes, in whatever order they were stored.  # INV-03"""
        blocks = {
            name: {number: _sorted(block) for number, block in sorted(blocks.items())}
            for name, blocks in sorted(self._names.items())
        }
        return StoredTable(self.count, self.size_bytes, msgspec.Raw(_encode(blocks)))

    def _block(self, name: str, number: int) -> _Block | None:
        blocks = self._names.get(name, {})
        block = blocks.get(number)
        if not isinstance(block, msgspec.Raw):
            return block
        decoded = blocks[number] = self._decode_block(block)
        return decoded

    def _peek(self, name: str, number: int) -> _Block:
        """A block, decoded; one that nobody has asked for stays bytes."""
        block = self._names.get(name, {}).get(number, {})
        return self._decode_block(block) if isinstance(block, msgspec.Raw) else block

    def _index(self) -> dict[int, dict[tuple[str, int], None]]:
        """In which blocks each mark may be; what is stored later is added, nothing is taken out."""
        if self._blocks_of_mark is None:
            index: dict[int, dict[tuple[str, int], None]] = {}
            for name, blocks in self._names.items():
                for number in blocks:
                    for each in self._peek(name, number).values():
                        self._mark(index, (name, number), each)
            self._blocks_of_mark = index
        return self._blocks_of_mark

    def _mark(
        self, index: dict[int, dict[tuple[str, int], None]], block: tuple[str, int], kept: Any
    ) -> None:
        for mark in (self._table.marks or _no_marks)(kept):
            index.setdefault(mark, {})[block] = None

    def _forget(self, name: str, number: int) -> Any:
        block = self._block(name, number // BLOCK_ENTRIES)
        gone = None if block is None else block.pop(number, None)
        if gone is None:
            return None
        self.count -= 1
        self.size_bytes -= self._table.size(gone)
        if not block:
            del self._names[name][number // BLOCK_ENTRIES]
        if not self._names[name]:
            del self._names[name]
            self.size_bytes -= name_bytes(name)
        return gone


def _no_marks(_: Any) -> Iterable[int]:
    return ()


def name_bytes(name: str) -> int:
    """The share of a name that has entries."""
    return NAME_BYTES + len(name.encode())


_decoders: Final[dict[type, Callable[[msgspec.Raw], _Block]]] = {}


def _block_decoder(kept: type[msgspec.Struct]) -> Callable[[msgspec.Raw], _Block]:
    if kept not in _decoders:
        _decoders[kept] = msgspec.msgpack.Decoder(dict[int, kept]).decode  # type: ignore[valid-type]
    return _decoders[kept]


def _sorted(block: msgspec.Raw | _Block) -> msgspec.Raw | _Block:
    return dict(sorted(block.items())) if isinstance(block, dict) else block

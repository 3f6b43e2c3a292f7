"""The committed offsets of a group, in blocks that are decoded one by one.

A large group commits a few partitions at a time, and its members come and go without touching
any. So a topic's partitions are kept in blocks of neighbours, and a block is bytes until somebody
asks for a partition in it; how many offsets there are is known without reading them. Blocks and
not topics, because one topic may have ten thousand partitions.
"""

from collections.abc import Iterator
from typing import Final, cast

import msgspec

from coordlib.records.stored import CommittedValue

#: Neighbouring partitions of a topic in one block; members mostly own neighbours.
BLOCK_PARTITIONS: Final = 64
#: An offset without its texts, and its share of a block, at most.
OFFSET_BYTES: Final = 56
#: A topic without its name.
TOPIC_BYTES: Final = 16


class KeptOffset(msgspec.Struct, frozen=True, array_like=True):
    """A `CommittedValue` as the shard's blob keeps it: without the names of its fields."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    commit_clock_ms: int
    generation: int
    member: str


_Block = dict[int, KeptOffset]
_decode_topics: Final = msgspec.msgpack.Decoder(dict[str, dict[int, msgspec.Raw]]).decode
_decode_block: Final = msgspec.msgpack.Decoder(_Block).decode
_encode: Final = msgspec.msgpack.Encoder().encode
NO_OFFSETS: Final = msgspec.Raw(_encode({}))


class OffsetTable:
    """Offsets by topic and partition. Handlers read it; the shard applies what they decided."""

    __slots__ = ("_topics", "count", "size_bytes")

    def __init__(
        self, encoded: msgspec.Raw = NO_OFFSETS, count: int = 0, size_bytes: int = 0
    ) -> None:
        #: topic -> block -> its offsets, or their bytes as long as nobody asked. None are empty.
        self._topics = cast("dict[str, dict[int, msgspec.Raw | _Block]]", _decode_topics(encoded))
        #: How many offsets there are.
        self.count = count
        #: Upper bound of their encoded size, by what is stored alone.
        self.size_bytes = size_bytes

    def get(self, topic: str, partition: int) -> KeptOffset | None:
        block = self._block(topic, partition // BLOCK_PARTITIONS)
        return None if block is None else block.get(partition)

    def has_topic(self, topic: str) -> bool:
        return topic in self._topics

    def topics(self) -> list[str]:
        """The topics that have offsets, sorted."""
        return sorted(self._topics)

    def of_topic(self, topic: str) -> Iterator[tuple[int, KeptOffset]]:
        """Partitions of a topic and their offsets, in order."""
        for number in sorted(self._topics.get(topic, ())):
            yield from sorted((self._block(topic, number) or {}).items())

    def __iter__(self) -> Iterator[tuple[str, int, KeptOffset]]:
        """Topic, partition and offset of all, in order."""
        for topic in self.topics():
            for partition, value in self.of_topic(topic):
                yield topic, partition, value

    def apply(self, topic: str, partition: int, value: CommittedValue | None) -> None:
        """Store an offset, or forget it."""
        if value is None:
            self._forget(topic, partition)
            return
        number = partition // BLOCK_PARTITIONS
        block = self._block(topic, number)
        if block is None:
            if topic not in self._topics:
                self._topics[topic] = {}
                self.size_bytes += topic_bytes(topic)
            block = self._topics[topic][number] = {}
        before = block.get(partition)
        kept = block[partition] = _kept(value)
        if before is None:
            self.count += 1
            self.size_bytes += _size(kept)
        elif (before.metadata, before.member) != (kept.metadata, kept.member):
            self.size_bytes += _size(kept) - _size(before)

    def encoded(self) -> msgspec.Raw:
        """Equal offsets give equal bytes, in whatever order they were stored.  # INV-03"""
        return msgspec.Raw(
            _encode(
                {
                    topic: {number: _sorted(block) for number, block in sorted(blocks.items())}
                    for topic, blocks in sorted(self._topics.items())
                }
            )
        )

    def _block(self, topic: str, number: int) -> _Block | None:
        blocks = self._topics.get(topic, {})
        block = blocks.get(number)
        if not isinstance(block, msgspec.Raw):
            return block
        decoded = blocks[number] = _decode_block(block)
        return decoded

    def _forget(self, topic: str, partition: int) -> None:
        number = partition // BLOCK_PARTITIONS
        block = self._block(topic, number)
        gone = None if block is None else block.pop(partition, None)
        if gone is None:
            return
        self.count -= 1
        self.size_bytes -= _size(gone)
        if not block:
            del self._topics[topic][number]
        if not self._topics[topic]:
            del self._topics[topic]
            self.size_bytes -= topic_bytes(topic)


def offset_bytes(metadata: str, member: str) -> int:
    """The share of one offset in the encoded table, at most."""
    return OFFSET_BYTES + len(metadata.encode()) + len(member.encode())


def topic_bytes(topic: str) -> int:
    """The share of a topic that has offsets."""
    return TOPIC_BYTES + len(topic.encode())


def _size(kept: KeptOffset) -> int:
    return offset_bytes(kept.metadata, kept.member)


def _kept(value: CommittedValue) -> KeptOffset:
    return KeptOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_ms,
        value.commit_clock_ms,
        value.generation,
        value.member,
    )


def _sorted(block: msgspec.Raw | _Block) -> msgspec.Raw | _Block:
    return dict(sorted(block.items())) if isinstance(block, dict) else block

"""Kafka's ConsumerProtocol: what consumers put into `metadata` and `assignment`.

Big-endian: int16 version, then fields; strings are int16 length and UTF-8, bytes int32 length
(-1 for null), arrays int32 count. Versions only ever append fields, so a reader that meets a
newer version reads the fields of its own and leaves the rest. Source:
`ConsumerProtocolSubscription.json` and `ConsumerProtocolAssignment.json` of Apache Kafka; seed 002
describes version 0.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

NEWEST_VERSION: Final = 3
CONSUMER: Final = "consumer"  # the protocol type whose bytes have this layout

TopicPartitionMap = Mapping[str, Sequence[int]]


class Unreadable(ValueError):
    """The bytes are no ConsumerProtocol value; the message says at which byte and why."""


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """The topics of a consumer, and what it owns (from 1 on), `generation` (2), `rack` (3)."""

    version: int = NEWEST_VERSION
    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: dict[str, tuple[int, ...]] = {}
    generation: int = -1
    rack: str | None = None


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions of one consumer."""

    version: int = NEWEST_VERSION
    partitions: dict[str, tuple[int, ...]] = {}
    user_data: bytes | None = None


def decode_subscription(value: bytes) -> Subscription:
    """Read a subscription of any version. Raises Unreadable."""
    reader = Reader(value)
    version = reader.version()
    topics = reader.strings()
    user_data = reader.nullable_bytes()
    owned = reader.topic_partitions() if version >= 1 else {}
    generation = reader.int32() if version >= 2 else -1
    rack = reader.nullable_string() if version >= 3 else None
    return Subscription(
        version=version,
        topics=topics,
        user_data=user_data,
        owned=owned,
        generation=generation,
        rack=rack,
    )


def decode_topics(value: bytes) -> tuple[str, ...]:
    """The topics alone, by the layout that all versions begin with (version 0). Raises Unreadable.

    As in Kafka's coordinator: what later versions append may be broken or of tomorrow.
    """
    reader = Reader(value)
    reader.version()
    topics = reader.strings()
    reader.nullable_bytes()
    return topics


def encode_subscription(value: Subscription) -> bytes:
    """Write a subscription in its own version, at most the newest that is known here."""
    version = min(value.version, NEWEST_VERSION)
    parts = [struct.pack(">hi", version, len(value.topics))]
    parts += [_string(topic) for topic in value.topics]
    parts.append(_nullable_bytes(value.user_data))
    if version >= 1:
        parts.append(encode_topic_partitions(value.owned))
    if version >= 2:
        parts.append(struct.pack(">i", value.generation))
    if version >= 3:
        parts.append(struct.pack(">h", -1) if value.rack is None else _string(value.rack))
    return b"".join(parts)


def decode_assignment(value: bytes) -> Assignment:
    """Read an assignment of any version; no bytes at all is an empty one, as in Kafka's client."""
    if not value:
        return Assignment()
    reader = Reader(value)
    version = reader.version()
    partitions = reader.topic_partitions()
    return Assignment(version=version, partitions=partitions, user_data=reader.nullable_bytes())


def encode_assignment(value: Assignment) -> bytes:
    """Write an assignment in its own version, at most the newest that is known here."""
    version = min(value.version, NEWEST_VERSION)
    return b"".join(
        (
            struct.pack(">h", version),
            encode_topic_partitions(value.partitions),
            _nullable_bytes(value.user_data),
        )
    )


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _nullable_bytes(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def encode_topic_partitions(value: TopicPartitionMap) -> bytes:
    """Write an array of {topic, partitions}, in the order of the mapping."""
    parts = [struct.pack(">i", len(value))]
    for topic, partitions in value.items():
        parts.append(_string(topic))
        parts.append(struct.pack(f">i{len(partitions)}i", len(partitions), *partitions))
    return b"".join(parts)


class Reader:
    """A cursor over bytes that never reads past their end."""

    def __init__(self, value: bytes) -> None:
        self._value, self._at = value, 0

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._value):
            raise Unreadable(f"{size} bytes wanted at byte {self._at} of {len(self._value)}")
        taken = self._value[self._at : self._at + size]
        self._at += size
        return taken

    def version(self) -> int:
        version = self.int16()
        if version < 0:
            raise Unreadable(f"version {version} is below 0")
        return version

    def int16(self) -> int:
        return int(struct.unpack(">h", self._take(2))[0])

    def int32(self) -> int:
        return int(struct.unpack(">i", self._take(4))[0])

    def count(self, least_size: int) -> int:
        """An array's length, refused when its elements cannot fit into the bytes that are left."""
        count = self.int32()
        if count < 0 or count * least_size > len(self._value) - self._at:
            raise Unreadable(f"an array of {count} elements cannot fit at byte {self._at}")
        return count

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise Unreadable(f"a string is null at byte {self._at}")
        return text

    def strings(self) -> tuple[str, ...]:
        """An array of strings. One loop: a hostile value has half a million, and others wait."""
        value, found = self._value, []
        for _ in range(self.count(2)):
            start = self._at + 2
            size = int.from_bytes(value[self._at : start], signed=True)
            if size < 0 or start + size > len(value):
                found.append(self.string())  # null or beyond the end: says so
                continue
            try:
                found.append(value[start : start + size].decode())
            except UnicodeDecodeError as problem:
                raise Unreadable(f"bad UTF-8 before byte {start + size}") from problem
            self._at = start + size
        return tuple(found)

    def nullable_string(self) -> str | None:
        size = self.int16()
        if size == -1:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as problem:
            raise Unreadable(f"bad UTF-8 before byte {self._at}") from problem

    def nullable_bytes(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else self._take(size)

    def topic_partitions(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, list[int]] = {}
        for _ in range(self.count(6)):
            topic = self.string()
            count = self.count(4)
            # Extended in place: a hostile value names one topic 70,000 times.
            found.setdefault(topic, []).extend(struct.unpack(f">{count}i", self._take(4 * count)))
        return {topic: tuple(partitions) for topic, partitions in found.items()}

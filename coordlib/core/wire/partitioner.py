"""Which shard coordinates a group: Kafka's own rule for `__consumer_offsets`.

`abs(String.hashCode(group)) % shards`, where the hash runs over UTF-16 code units in wrapping
32-bit arithmetic and `abs(Integer.MIN_VALUE)` counts as 0 (Kafka's `Utils.abs`).
"""

import struct


def java_hash(text: str) -> int:
    """`String.hashCode` of Java, as a signed 32-bit number."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in struct.unpack(f"<{len(units) // 2}H", units):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def shard_of(group: str, shards: int) -> int:
    """The partition of `coord.requests` that holds this group's requests, 0..shards-1."""
    value = java_hash(group)
    return (0 if value == -0x8000_0000 else abs(value)) % shards


def reply_partition_of(client: str, reply_partitions: int) -> int:
    """The partition of `coord.responses` that a client reads unless it chooses another."""
    return shard_of(client, reply_partitions)

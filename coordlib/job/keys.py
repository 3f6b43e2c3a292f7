"""The key that each shard has in Spark's state, so that shards spread evenly over its partitions.

Spark puts a key into the state partition that its hash names. Few keys fall unevenly: 0 and 1, the
shards of a small stack, both lie in the second of two partitions, where one worker judges one after
the other, and the first costs a task and a file per batch for nothing. So each shard has a key that
lies where it is wanted: shard s in partition s mod n.

The keys of a checkpoint are drawn when it is made, and stand in its identity. A checkpoint of
before has none there: its shards are their own keys. It goes over with a rebuild into a new folder.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final

#: Spark's seed (`HashPartitioning`).
_SEED: Final = 42
_32_BITS: Final = 0xFFFFFFFF


def partition_of(key: int, partitions: int) -> int:
    """The partition of an INT key: Murmur3 of four bytes, as Spark's `hash`, modulo."""
    mixed = _rotated(key * 0xCC9E2D51, 15) * 0x1B873593
    value = (_rotated(_SEED ^ (mixed & _32_BITS), 13) * 5 + 0xE6546B64) & _32_BITS
    value ^= 4
    value = ((value ^ value >> 16) * 0x85EBCA6B) & _32_BITS
    value = ((value ^ value >> 13) * 0xC2B2AE35) & _32_BITS
    value ^= value >> 16
    signed = value - (1 << 32) if value >> 31 else value
    return signed % partitions


def balanced(shards: int, partitions: int) -> tuple[int, ...]:
    """A key for each shard; no two are equal."""
    of_partition = [_keys_in(wanted, partitions) for wanted in range(partitions)]
    return tuple(next(of_partition[shard % partitions]) for shard in range(shards))


def _keys_in(wanted: int, partitions: int) -> Iterator[int]:
    return (key for key in count() if partition_of(key, partitions) == wanted)


def _rotated(value: int, bits: int) -> int:
    value &= _32_BITS
    return (value << bits | value >> (32 - bits)) & _32_BITS

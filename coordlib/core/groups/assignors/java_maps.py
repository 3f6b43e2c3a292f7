"""The order in which Java walks through its hash maps and sets.

Where two answers are equally good, Kafka's assignors leave the choice to the order of a HashMap.
That order is no accident of a run: it follows from the keys' hashes and the size of the table. It
is repeated here, so that ties fall as they do in Kafka's own client, under any PYTHONHASHSEED.
Keys that share a bucket stand in the order of insertion, which for Kafka is the coordinator's; here
they stand by name. (Buckets of more than eight keys, which Java turns into trees, are not
modelled.)
"""

from collections.abc import Iterable
from typing import Final

from coordlib.core.groups.assignors.model import java_order

_CAPACITY: Final = 16  # of an empty HashMap
_WORD: Final = 0xFFFF_FFFF


def string_hash(text: str) -> int:
    """`String.hashCode`, as an unsigned number."""
    units = java_order(text)
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _WORD
    return value


def in_map_order(keys: Iterable[str]) -> list[str]:
    """The keys of a HashMap that was filled one by one."""
    names = sorted(keys, key=java_order)
    last = _capacity(len(names), _CAPACITY) - 1
    return sorted(names, key=lambda name: _spread(string_hash(name)) & last)


def _capacity(size: int, at_least: int) -> int:
    capacity = at_least
    while size * 4 > capacity * 3:
        capacity *= 2
    return capacity


def _spread(value: int) -> int:
    return value ^ (value >> 16)


class PartitionSet:
    """A HashSet of one topic's partitions: its table grows and never shrinks."""

    def __init__(self, topic_hash: int) -> None:
        self._topic_hash = topic_hash
        self._capacity = _CAPACITY
        #: partition -> its spread hash, in order of insertion.
        self._spread: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._spread)

    def add(self, partition: int) -> None:
        """Take one in; it is in no other set of the same topic."""
        value = (31 * (31 + partition) + self._topic_hash) & _WORD
        self._spread[partition] = _spread(value)
        self._capacity = _capacity(len(self._spread), self._capacity)

    def remove(self, partition: int) -> None:
        """Let one go."""
        del self._spread[partition]

    def first(self) -> int:
        """What Java's iterator names first."""
        spread, last = self._spread, self._capacity - 1
        return min(spread, key=lambda partition: spread[partition] & last)

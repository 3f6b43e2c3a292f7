"""Searches among partitions: a member may have 50,000 of one topic, and commit 10,000 at once."""

from bisect import bisect_left
from collections.abc import Mapping


def includes(partitions: Mapping[str, tuple[int, ...]], topic: str, number: int) -> bool:
    """Whether a partition is one of these, each topic's in ascending order."""
    some = partitions.get(topic, ())
    place = bisect_left(some, number)
    return place < len(some) and some[place] == number

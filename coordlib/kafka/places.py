"""Partitions and their logs, as values: nothing here opens a client."""

from typing import NamedTuple


class Place(NamedTuple):
    """A partition of a topic that groups read."""

    topic: str
    partition: int


class Bounds(NamedTuple):
    """Where a partition's log begins and ends, as Kafka's own tools count: its high watermark."""

    start: int
    end: int

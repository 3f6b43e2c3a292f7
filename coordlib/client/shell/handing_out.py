"""Messages between the reader that has them and the program that is handed them."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice

from confluent_kafka import Message

from coordlib.client.machine.signals import TopicPartition


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A record, or an event of the library."""

    place: TopicPartition | None
    offset: int
    message: Message


class HandingOut:
    """What may be delivered, and stays here until it was.

    The line that returns messages stores what was `prepared` as `handed`, and calls nothing between
    the two: an interruption comes before both, or behind both.  # INV-141
    """

    def __init__(self) -> None:
        self._ready: deque[Ready] = deque()
        #: What the newest call is about to return; None: something has changed since.
        self.prepared: list[Ready] | None = None
        #: What was returned, and is here still.
        self.handed: list[Ready] | None = None

    def add(self, ready: Ready) -> None:
        """One more, behind all others."""
        self._ready.append(ready)

    def count(self, paused: Collection[TopicPartition]) -> int:
        """How many there are, without those of paused partitions."""
        return sum(each.place not in paused for each in self._ready)

    def prepare(self, count: int, paused: Collection[TopicPartition]) -> list[Ready]:
        """The first ones, without those of paused partitions."""
        going = (each for each in self._ready if each.place not in paused)
        self.prepared = list(islice(going, count))
        return self.prepared

    def note(self) -> list[Ready]:
        """Take out what was handed out since the last time."""
        self.prepared = None
        handed, self.handed = self.handed or [], None
        for each in handed:
            self._ready.remove(each)
        return handed

    def forget(self, gone: Collection[TopicPartition]) -> None:
        """Hand out nothing of these."""
        self._ready = deque(each for each in self._ready if each.place not in gone)

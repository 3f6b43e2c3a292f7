"""Messages between the reader that has them and the program that is handed them.

Some more than were asked for are prepared, since a call that is done whole (`uninterrupted`) costs
the main thread much more than a message does. For a moment, and while nothing happens to the
client, the next ones are returned without such a call.  # INV-154
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from confluent_kafka import Message

from coordlib.client.kit.events import TopicPartition

#: So many messages are prepared at once, where more are not asked for: as large as messages may
#: be, they fit into what librdkafka keeps by itself.
AHEAD_MAX: Final = 64
#: How long they may be returned without another look.
FRESH_MS: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A record, or an event of the library."""

    place: TopicPartition | None
    #: Offset of the next record, and the leader epoch of this one.
    position: tuple[int, int]
    message: Message


@dataclass(slots=True, eq=False)
class Prepared:
    """What may be returned now.

    The line that returns some of it counts them, and calls nothing between the two: an interruption
    comes before both, or behind both.  # INV-141
    """

    ready: list[Ready] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    #: How many of them were returned.
    handed: int = 0
    #: Until when they may be returned, if the client has changed so often then and no more.
    until_ms: int = 0
    changes: int = 0

    def has(self, count: int, now_ms: int, changes: int = 0) -> bool:
        """Whether so many may be returned without another look."""
        is_fresh = changes == self.changes and now_ms < self.until_ms
        return is_fresh and len(self.messages) - self.handed >= count > 0


class HandingOut:
    """What may be delivered, and stays here until it was."""

    def __init__(self) -> None:
        self._ready: deque[Ready] = deque()
        #: What is being returned; None: something has changed since.
        self.prepared: Prepared | None = None

    def add(self, ready: Ready) -> None:
        """One more, behind all others."""
        self._ready.append(ready)

    def count(self, paused: Collection[TopicPartition]) -> int:
        """How many there are, without those of paused partitions."""
        if not paused:
            return len(self._ready)
        return sum(each.place not in paused for each in self._ready)

    @property
    def has_records(self) -> bool:
        """Whether there is anything but events of the library."""
        return any(each.place is not None for each in self._ready)

    def prepare(
        self, count: int, may: Callable[[TopicPartition], bool], until_ms: int, changes: int = 0
    ) -> Prepared:
        """The first ones, of the partitions of which something may be returned."""
        going = (each for each in self._ready if each.place is None or may(each.place))
        ready = list(islice(going, max(count, AHEAD_MAX) if count else 0))
        messages = [each.message for each in ready]
        self.prepared = prepared = Prepared(ready, messages, 0, until_ms, changes)
        return prepared

    def note(self) -> list[Ready]:
        """Take out what was handed out since the last time; nothing is prepared any more."""
        prepared, self.prepared = self.prepared, None
        if prepared is None:
            return []
        handed = prepared.ready[: prepared.handed]  # counts no more, as it is not `prepared`
        for each in handed:
            self._ready.remove(each)
        return handed

    def forget(self, gone: Collection[TopicPartition]) -> None:
        """Hand out nothing of these."""
        self._ready = deque(each for each in self._ready if each.place not in gone)

"""Partitions and their logs as values: whether they are still the logs that were read.

Nothing here opens a client.

Keeps INV-152.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

import structlog


class Place(NamedTuple):
    """A partition of a topic that groups read."""

    topic: str
    partition: int


class Bounds(NamedTuple):
    """Where a partition's log begins and ends, as Kafka's own tools count: its high watermark."""

    start: int
    end: int


#: By what a record is found again.
Known = TypeVar("Known")
#: What a look finds.
Missed = TypeVar("Missed")
_log = structlog.get_logger()
#: Between the look that misses records and the one that refuses.
AGAIN_S: Final = 5.0
#: Places that a refusal names.
_NAMED_MAX: Final = 20


class Why(StrEnum):
    """How records were lost."""

    REMOVED = "removed before they were processed"
    SHORTER = "the log is shorter than what was read of it"
    OTHER = "another record is there than was read: the log was cut, and has grown again"

    def __str__(self) -> str:
        return self.value


class Lost(NamedTuple):
    """What is gone of one partition: offsets from `first` up to `end`, exclusive."""

    place: Place
    first: int
    end: int
    why: Why

    def __str__(self) -> str:
        where = f"{self.place.topic}, partition {self.place.partition}"
        # Of a log that was cut and has grown again, the newest record alone is compared.
        least = "at least " if self.why is Why.OTHER else ""
        return f"{where}, {least}offsets {self.first} to {self.end - 1}: {self.why}"


class Read(NamedTuple):
    """How far a log was read: up to `next`, exclusive."""

    next: int
    #: Of the newest record before it, and what stood there; None: nothing can be compared.
    offset: int = -1
    record: object = None


def find_lost(
    known: Mapping[Place, Read],
    bounds: Mapping[Place, Bounds],
    records: Callable[[Mapping[Place, int]], Mapping[Place, object]],
) -> list[Lost]:
    """What is gone of these partitions.

    Of a record that retention has removed after it was read nothing can be compared: there it is
    asked only whether the log begins at or before the next one, and ends at or behind it.

    Args:
        bounds: those without are left out.
        records: the records at offsets; None: another one, or none, stands there. What cannot be
            compared any more is left out.
    """
    lost: list[Lost] = []
    newest: dict[Place, int] = {}
    for place, (start, end) in bounds.items():
        if (read := known.get(place)) is None:
            continue
        if start > read.next:
            lost.append(Lost(place, read.next, start, Why.REMOVED))
        elif end < read.next:
            lost.append(Lost(place, end, read.next, Why.SHORTER))
        elif read.record is not None and start <= read.offset:
            newest[place] = read.offset
    for place, found in records(newest).items():
        if found != known[place].record:
            lost.append(Lost(place, newest[place], newest[place] + 1, Why.OTHER))
    return sorted(lost)


def still_there(
    found: Mapping[Place, Known | None],
    offsets: Mapping[Place, int],
    bounds: Callable[[Collection[Place]], Mapping[Place, Bounds]],
) -> dict[Place, Known | None]:
    """The records, without those that were removed since it was asked where the log begins."""
    missing = [place for place, record in found.items() if record is None]
    starts = bounds(missing) if missing else {}
    gone = {place for place, log in starts.items() if log.start > offsets.get(place, log.start)}
    return {place: record for place, record in found.items() if place not in gone}


def lost_at_two_looks(look: Callable[[], list[Missed]], wait: Callable[[], None]) -> list[Missed]:
    """A broker that has just started, or leads no more, gives a wrong answer for a moment."""
    if not look():
        return []
    wait()
    lost = look()
    if not lost:
        _log.warning("what one look missed of the logs is there")
    return lost


def named(lost: Iterable[object]) -> str:
    """As a refusal names them."""
    found = list(lost)
    some = "; ".join(map(str, found[:_NAMED_MAX]))
    return some if len(found) <= _NAMED_MAX else f"{some}; and {len(found) - _NAMED_MAX} more"

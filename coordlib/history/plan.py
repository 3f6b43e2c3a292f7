"""What the archive reads next. Pure: positions of the tables and bounds of the logs come in.

    the table's position    the log                 what happens
    before its beginning    records are deleted     a hole is noted, and it goes on behind it
    within it                                       it goes on there
    beyond its end          it was cut              a hole is noted, and it goes on at its end; but
                                                    where that is not accepted, nothing is read

A batch that an earlier run began, and that not all tables have, is completed before anything else:
so the tables differ by one batch at most.  # INV-39
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from coordlib.history.commit import Hole, Positions
from coordlib.kafka.cut_logs import Lost, Why
from coordlib.kafka.places import Bounds, Place


class Range(NamedTuple):
    """Records to read of one partition; `end` is exclusive. The topic is without prefix."""

    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """Records that are in the topics and not in the tables."""

    records: int = 0
    #: Age of the oldest of them; where nobody has looked at it, the age that it has at most.
    ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One batch."""

    #: Where each partition's next batch begins.
    until: Positions
    #: In order; none of them is empty.
    ranges: tuple[Range, ...] = ()
    holes: tuple[Hole, ...] = ()
    #: Records that are there by now and come with later batches.
    left: int = 0
    #: The partitions that have them.
    cut: tuple[Place, ...] = ()

    @property
    def records(self) -> int:
        """How many it reads; ends of transactions, and what compaction has left out, count too."""
        return sum(each.end - each.first for each in self.ranges)


def plan(
    next_: Positions,
    bounds: Mapping[Place, Bounds],
    records_max: int,
    begun: Positions,
    cut: Iterable[Lost] = (),
) -> Plan:
    """The next batch.

    Args:
        next_: where each table stands, all topics together; what is absent begins at 0.
        bounds: the logs, their ends as read-committed readers see them.
        records_max: about so many; each partition that has records gets at least one.
        begun: where the newest batch ends that any of the tables has.
        cut: of which logs the end is gone, and that is accepted.
    """
    cut = list(cut)
    whole = dict(_waiting(next_, bounds))
    # Each table has its part of a batch whole or not at all, so this is one batch's size again.
    unfinished = {
        place: (first, _at(begun, place))
        for place, (first, end) in whole.items()
        if first < _at(begun, place) <= end
    }
    wanted = unfinished or _shares(whole, records_max)
    until: Positions = {}
    for place, (first, _) in sorted(whole.items()):
        until.setdefault(place.topic, {})[str(place.partition)] = wanted.get(place, (0, first))[1]
    ranges = (Range(*place, first, end) for place, (first, end) in sorted(wanted.items()))
    left = {p: end - until[p.topic][str(p.partition)] for p, (_, end) in sorted(whole.items())}
    return Plan(
        until=until,
        ranges=tuple(each for each in ranges if each.first < each.end),
        holes=(
            *_holes(next_, bounds),
            *(Hole(*place, first, end, why) for place, first, end, why in cut),
        ),
        left=sum(left.values()),
        cut=tuple(place for place, count in left.items() if count),
    )


def untold(holes: tuple[Hole, ...], told: Positions) -> tuple[Hole, ...]:
    """What of the holes has no line of history yet; a cut log has one for each time."""
    rest = (
        hole._replace(first=max(hole.first, told.get(hole.topic, {}).get(str(hole.partition), 0)))
        if hole.why is Why.REMOVED
        else hole
        for hole in holes
    )
    return tuple(hole for hole in rest if hole.first < hole.end)


def _waiting(
    next_: Positions, bounds: Mapping[Place, Bounds]
) -> Iterator[tuple[Place, tuple[int, int]]]:
    """Of each partition, what is there and not in its table."""
    for place, log in sorted(bounds.items()):
        yield place, (min(max(_at(next_, place), log.start), log.end), log.end)


def _holes(next_: Positions, bounds: Mapping[Place, Bounds]) -> Iterator[Hole]:
    for place, log in sorted(bounds.items()):
        if (at := _at(next_, place)) < log.start:
            yield Hole(place.topic, place.partition, at, log.start)


def _shares(
    whole: Mapping[Place, tuple[int, int]], records_max: int
) -> dict[Place, tuple[int, int]]:
    """Each partition's part of a batch, in proportion to what it has, as in Spark's sources."""
    total = sum(end - first for first, end in whole.values())
    if total <= records_max:
        return dict(whole)
    return {
        place: (first, min(end, first + max(1, (end - first) * records_max // total)))
        for place, (first, end) in whole.items()
    }


def _at(positions: Positions, place: Place) -> int:
    return positions.get(place.topic, {}).get(str(place.partition), 0)

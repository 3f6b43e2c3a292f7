"""Lag over time as lines, out of rows of the table `lag`. Pure.

A line is broken where the lag is unknown: samples are missing, or the sample has no number, as for
a deleted topic. A group without lag leaves no samples, so its silence is broken too.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final, NamedTuple

#: More lines cannot be distinguished: then there is a line for each topic.
LINES_MAX: Final = 12
#: Of the usual step between samples: what is longer is a gap, as where seconds are measured.
GAP_STEPS: Final = 3

#: Its columns are those of `Sampled`. A deleted offset has no lag either. Parameter: the group.
SAMPLES: Final = """
    SELECT topic, partition, time, lag, lag_seconds, is_at_least FROM lag
    WHERE group_id = ? AND COALESCE(space, 'group') = 'group'"""


class Sampled(NamedTuple):
    """How far a group was behind in one partition at a time; None is unknown."""

    topic: str
    partition: int
    time: datetime
    lag: int | None
    lag_seconds: float | None
    #: The seconds are a lower bound.
    is_at_least: bool


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a line; None breaks it."""

    at_s: float
    messages: int | None
    seconds: float | None
    #: The seconds are a lower bound.
    is_at_least: bool = False
    #: Some of the partitions are unknown: the messages are a lower bound, too.
    is_part: bool = False


Lines = Mapping[str, Sequence[Point]]
"""By what the legend says."""


def lines_of(rows: Iterable[Sampled], begin: datetime) -> dict[str, list[Point]]:
    """A line for each partition; of more than `LINES_MAX` one for each topic.

    Of a topic messages are summed, and its seconds are those of its latest partition. Of more
    topics than that the least late ones are one line together.
    """
    told = list(rows)
    names = _names(told)
    gap_s = _gap_s({row.time for row in told})
    found: dict[str, dict[datetime, list[Sampled]]] = {name: {} for name in names.values()}
    for row in sorted(told, key=lambda row: row.time):
        found[names[row.topic, row.partition]].setdefault(row.time, []).append(row)
    return {
        name: _broken([_point(some, begin) for some in by_time.values()], gap_s)
        for name, by_time in found.items()
    }


def _names(rows: Sequence[Sampled]) -> dict[tuple[str, int], str]:
    """The line of each partition, in the order of the lines."""
    places = sorted({(row.topic, row.partition) for row in rows})
    if len(places) <= LINES_MAX:
        return {(topic, number): f"{topic}-{number}" for topic, number in places}
    topics = {topic for topic, _ in places}
    if len(topics) <= LINES_MAX:
        return {place: place[0] for place in places}
    peaks = _peaks(rows)
    last = set(sorted(topics, key=lambda topic: (-peaks[topic], topic))[LINES_MAX - 1 :])
    rest = f"{len(last)} other topics"
    places.sort(key=lambda place: (place[0] in last, place))
    return {place: rest if place[0] in last else place[0] for place in places}


def _peaks(rows: Sequence[Sampled]) -> dict[str, int]:
    """The largest lag of each topic."""
    sums: dict[tuple[str, datetime], int] = defaultdict(int)
    for row in rows:
        sums[row.topic, row.time] += row.lag or 0
    peaks: dict[str, int] = defaultdict(int)
    for (topic, _), messages in sums.items():
        peaks[topic] = max(peaks[topic], messages)
    return peaks


def _point(rows: Sequence[Sampled], begin: datetime) -> Point:
    """One sample's point of a line."""
    messages = [row.lag for row in rows if row.lag is not None]
    seconds = [row.lag_seconds for row in rows if row.lag_seconds is not None]
    is_part = 0 < len(messages) < len(rows)
    return Point(
        at_s=(rows[0].time - begin).total_seconds(),
        messages=sum(messages) if messages else None,
        seconds=max(seconds) if seconds else None,
        is_at_least=is_part or any(row.is_at_least for row in rows),
        is_part=is_part,
    )


def _gap_s(times: Iterable[datetime]) -> float:
    """A longer time without samples is a gap.

    The table does not give the interval of sampling. While a group is behind that is the step
    between its samples, and every silence makes a longer one: so a short step is the usual one,
    and not the shortest, as a job that starts again samples at once.
    """
    steps = sorted((b - a).total_seconds() for a, b in pairwise(sorted(times)))
    return GAP_STEPS * steps[len(steps) // 4] if steps else 0.0


def _broken(points: Sequence[Point], gap_s: float) -> list[Point]:
    """The same with a point of nothing in each gap."""
    found = list(points[:1])
    for before, after in pairwise(points):
        if after.at_s - before.at_s > gap_s:
            found.append(Point((before.at_s + after.at_s) / 2, None, None))
        found.append(after)
    return found

"""Pictures of the life of a group or a cluster, out of rows of the views: bars of ownership,
staircases of commits, and lines of lag. What they are drawn on is given.

Works with anything that has matplotlib's axes, which is not imported here. Colours are those of
Okabe and Ito, which people who see fewer colours can tell apart; names stand in the bars as well.
A line of lag is broken where the lag is unknown: samples are missing, or the sample has no number,
as for a deleted topic. A group without lag leaves no samples, so its silence is broken too.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from coordlib.history.views.groups import Tenure

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


#: Okabe and Ito, without yellow and black, which are poor on white and behind text.
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
#: For more members than there are colours.
HATCHES: Final = ("", "//", "..", "xx")
#: For more lines than there are colours.
STROKES: Final = ("-", "--")
GENERATION_LINE: Final[Mapping[str, Any]] = MappingProxyType(
    {"color": "black", "linestyle": "--", "linewidth": 0.8}
)
#: Of one line: more of them, as of an hour, would hide whether it is dashed.
LARGE_DOTS_MAX: Final = 60
#: Of the whole width: a name does not fit into a shorter bar.
NAMED_WIDTH_MIN: Final = 0.09

#: Of the whole width, left and right: what happens first and last is seen whole.
MARGIN: Final = 0.02

Look = tuple[str, str]
"""A colour and a hatch."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One tenure, in seconds since the beginning."""

    row: int
    start_s: float
    width_s: float
    member: str


@dataclass(frozen=True, slots=True)
class Step:
    """A commit: the next offset to read, from this moment on."""

    at_s: float
    offset: int
    member: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """A partition went from one member to another."""

    partition: str
    when: datetime
    from_member: str
    to_member: str
    fence_before: int
    fence: int
    #: What was committed then; None: nothing.
    read_on_from: int | None


def named(tenure: Tenure, names: Mapping[str, str]) -> Tenure:
    """The same with its member's client id, where it is known."""
    return replace(tenure, member=names.get(tenure.member, tenure.member))


def looks_of(members: Iterable[str]) -> dict[str, Look]:
    """Each member's own colour, or colour and hatch; by the order in which they are given."""
    names = list(dict.fromkeys(members))
    return {
        name: (COLOURS[at % len(COLOURS)], HATCHES[at // len(COLOURS) % len(HATCHES)])
        for at, name in enumerate(names)
    }


def rows_of(tenures: Sequence[Tenure]) -> list[tuple[str, int]]:
    """Topics and partitions from top to bottom."""
    return sorted({(each.topic, each.partition) for each in tenures})


def bars_of(tenures: Sequence[Tenure], begin: datetime, end: datetime) -> list[Bar]:
    """What lies within a span of time; a tenure without an end reaches its end."""
    rows = {place: row for row, place in enumerate(rows_of(tenures))}
    bars = []
    for each in tenures:
        start = max(each.since, begin)
        until = min(each.until or end, end)
        if until > start:
            width_s = (until - start).total_seconds()
            row = rows[each.topic, each.partition]
            bars.append(Bar(row, (start - begin).total_seconds(), width_s, each.member))
    return bars


def steps_of(
    commits: Iterable[tuple[str, int, int, str, datetime]], begin: datetime
) -> dict[tuple[str, int], list[Step]]:
    """Topic, partition, offset, member, time of each commit: by partition, in order of time."""
    found: dict[tuple[str, int], list[Step]] = {}
    for topic, partition, offset, member, at in sorted(commits, key=lambda row: row[4]):
        step = Step((at - begin).total_seconds(), offset, member)
        found.setdefault((topic, partition), []).append(step)
    return dict(sorted(found.items()))


def hand_overs_of(
    tenures: Sequence[Tenure],
    steps: Mapping[tuple[str, int], Sequence[Step]],
    begin: datetime,
) -> list[HandOver]:
    """Tenures of one partition in pairs; `tenures` in their usual order."""
    found = []
    for before, after in pairwise(tenures):
        place = after.topic, after.partition
        if (before.topic, before.partition) == place:
            at_s = (after.since - begin).total_seconds()
            known = [each.offset for each in steps.get(place, ()) if each.at_s <= at_s]
            found.append(
                HandOver(
                    partition=f"{after.topic}-{after.partition}",
                    when=after.since,
                    from_member=before.member,
                    to_member=after.member,
                    fence_before=before.fence,
                    fence=after.fence,
                    read_on_from=known[-1] if known else None,
                )
            )
    return found


def draw_ownership(
    axes: Any,
    tenures: Sequence[Tenure],
    looks: Mapping[str, Look],
    generations: Sequence[tuple[int, datetime]],
    begin: datetime,
    end: datetime,
) -> None:
    """Partition by time, colour by member; a line where each generation began."""
    span_s = (end - begin).total_seconds()
    for bar in bars_of(tenures, begin, end):
        colour, hatch = looks[bar.member]
        axes.barh(
            *(bar.row, bar.width_s),
            left=bar.start_s,
            height=0.8,
            color=colour,
            hatch=hatch,
            edgecolor="white",
        )
        if bar.width_s >= NAMED_WIDTH_MIN * span_s:
            middle_s = bar.start_s + bar.width_s / 2
            axes.text(
                *(middle_s, bar.row, bar.member), ha="center", va="center", color="black", size=8,
                bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1.5},
            )  # fmt: skip
    _mark_generations(axes, generations, begin, span_s)
    places = rows_of(tenures)
    axes.set_yticks(range(len(places)), [f"{topic}-{number}" for topic, number in places])
    axes.set_ylabel("partition")
    axes.invert_yaxis()
    _label_time(axes, begin, span_s)


def draw_commits(
    axes: Any, steps: Sequence[Step], looks: Mapping[str, Look], title: str, end_s: float
) -> None:
    """One partition: a staircase, and a mark in the member's colour at each commit."""
    stairs = [Step(0.0, 0, ""), *steps]
    times, offsets = [each.at_s for each in stairs], [each.offset for each in stairs]
    axes.step(
        *([*times, end_s], [*offsets, offsets[-1]]),
        where="post",
        color="0.6",
        linewidth=1,
        zorder=1,
    )
    for each in steps:
        axes.plot(
            *(each.at_s, each.offset),
            marker="o",
            color=looks[each.member][0],
            markersize=5,
            zorder=2,
        )
    axes.set_title(title, size=9)
    axes.set_xlim(-MARGIN * end_s, end_s * (1 + MARGIN))
    axes.set_ylim(bottom=0, auto=True)  # others that share it may be higher
    axes.grid(visible=True, color="0.9")


def draw_lag(
    messages: Any,
    seconds: Any,
    lines: Lines,
    generations: Sequence[tuple[int, datetime]],
    begin: datetime,
    end: datetime,
) -> None:
    """Lag over time, in messages on one pair of axes and in seconds on another below it.

    A dot is a sample. A triangle stands upon a lower bound, and a line is broken where nothing is
    known.
    """
    span_s = (end - begin).total_seconds()
    for number, (name, points) in enumerate(lines.items()):
        look = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": STROKES[number // len(COLOURS) % len(STROKES)],
            "label": name,
        }
        times = [each.at_s for each in points]
        _draw_line(messages, times, [(each.messages, each.is_part) for each in points], look)
        _draw_line(seconds, times, [(each.seconds, each.is_at_least) for each in points], look)
    for axes in (messages, seconds):
        if not lines:
            axes.text(*(0.5, 0.5, "no samples"), transform=axes.transAxes, ha="center", color="0.4")
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, color="0.9")
    messages.set_ylabel("messages")
    seconds.set_ylabel("seconds")
    _mark_generations(messages, generations, begin, span_s)
    for _, started in generations:
        seconds.axvline((started - begin).total_seconds(), **GENERATION_LINE)
    _label_time(seconds, begin, span_s)


def _draw_line(
    axes: Any,
    times: Sequence[float],
    points: Sequence[tuple[float | None, bool]],
    look: Mapping[str, Any],
) -> None:
    """`points`: a height, and whether it is a lower bound."""
    # What is not a number has no dot, and no line to it or from it.
    heights = [math.nan if height is None else height for height, _ in points]
    bounds = [at for at, (_, is_bound) in enumerate(points) if is_bound]
    size = 4 if len(points) <= LARGE_DOTS_MAX else 1
    axes.plot(*(times, heights), marker=".", markersize=size, linewidth=1.2, **look)
    if bounds:
        axes.plot(
            *([times[at] for at in bounds], [heights[at] for at in bounds]),
            marker="^",
            markersize=6,
            linestyle="none",
            color=look["color"],
            markerfacecolor="white",
            zorder=3,
            clip_on=False,  # a bound of zero stands on the axis
        )


def legend_of(patch: Any, looks: Mapping[str, Look]) -> list[Any]:
    """Handles for a legend. `patch`: matplotlib.patches.Patch."""
    return [patch(facecolor=c, hatch=h, label=name) for name, (c, h) in looks.items()]


def _mark_generations(
    axes: Any, generations: Sequence[tuple[int, datetime]], begin: datetime, span_s: float
) -> None:
    """Numbers that would lie upon each other are written as one: `2-3`."""
    near: list[tuple[float, list[int]]] = []
    for number, started in generations:
        at_s = (started - begin).total_seconds()
        axes.axvline(at_s, **GENERATION_LINE)
        if near and at_s - near[-1][0] < 0.03 * span_s:
            near[-1][1].append(number)
        else:
            near.append((at_s, [number]))
    for at_s, numbers in near:
        text = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        axes.annotate(
            *(text, (at_s, 1.0)),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            size=8,
        )


def _label_time(axes: Any, begin: datetime, span_s: float) -> None:
    axes.set_xlim(-MARGIN * span_s, span_s * (1 + MARGIN))
    axes.set_xlabel(f"seconds since {begin:%Y-%m-%d %H:%M:%S} UTC")

"""What a picture of a group's life shows: bars, staircases, looks, lines of lag."""

import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from coordlib.history.sql import query_tables
from coordlib.history.views.groups import Tenure
from notebooks.plots import (
    COLOURS,
    HATCHES,
    LINES_MAX,
    SAMPLES,
    Bar,
    Point,
    Sampled,
    Step,
    bars_of,
    draw_commits,
    draw_lag,
    hand_overs_of,
    lines_of,
    looks_of,
    rows_of,
    steps_of,
)
from tests.history.assigned_life import GROUP, SESSION_S, a_life_of_an_assigned_group
from tests.history.rows import at

TENURES = [
    Tenure("clicks", 3, "a", 1, 7, at(0), at(4)),
    Tenure("clicks", 3, "b", 2, 9, at(4), None),
    Tenure("clicks", 10, "a", 1, 7, at(0), None),
]


def test_a_tenure_is_a_bar_and_one_without_end_reaches_the_end() -> None:
    assert bars_of(TENURES, at(0), at(10)) == [
        Bar(0, 0.0, 4.0, "a"),
        Bar(0, 4.0, 6.0, "b"),
        Bar(1, 0.0, 10.0, "a"),
    ]


def test_bars_are_cut_to_the_span_that_is_shown() -> None:
    """Zoomed in on the seconds of a rebalance."""
    assert bars_of(TENURES, at(5), at(7)) == [Bar(0, 0.0, 2.0, "b"), Bar(1, 0.0, 2.0, "a")]


def test_partitions_lie_in_the_order_of_numbers() -> None:
    """10 comes after 3, also when its tenure is told first."""
    assert rows_of(TENURES[::-1]) == [("clicks", 3), ("clicks", 10)]


def test_members_look_different_also_when_there_are_more_than_colours() -> None:
    names = [f"m{number}" for number in range(len(COLOURS) * len(HATCHES))]
    looks = looks_of([*names, "m0"])

    assert len(set(looks.values())) == len(names)
    assert looks["m0"] == (COLOURS[0], "")


def test_commits_are_a_staircase_for_each_partition_in_the_order_of_time() -> None:
    commits = [
        ("clicks", 3, 200, "b", at(5)),
        ("clicks", 3, 100, "a", at(2)),
        ("clicks", 1, 50, "a", at(3)),
    ]

    assert steps_of(commits, at(1)) == {
        ("clicks", 1): [Step(2.0, 50, "a")],
        ("clicks", 3): [Step(1.0, 100, "a"), Step(4.0, 200, "b")],
    }


def test_a_hand_over_tells_from_where_the_new_owner_read_on() -> None:
    """By what was committed at that moment; commits of the new owner come later."""
    steps = {("clicks", 3): [Step(2.0, 100, "a"), Step(4.0, 150, "a"), Step(6.0, 200, "b")]}
    (found,) = hand_overs_of(TENURES, steps, at(0))

    assert (found.partition, found.from_member, found.to_member) == ("clicks-3", "a", "b")
    assert (found.fence_before, found.fence, found.read_on_from) == (7, 9, 150)
    assert hand_overs_of(TENURES, {}, at(0))[0].read_on_from is None


def test_commits_of_partitions_beside_each_other_are_all_seen() -> None:
    """They share their height: one that has more records than the first must not be cut off."""
    left, right = Figure().subplots(1, 2, sharey=True)
    looks = looks_of(["a"])
    draw_commits(left, [Step(1.0, 100, "a")], looks, "clicks-0", 2.0)
    draw_commits(right, [Step(1.0, 500, "a")], looks, "clicks-1", 2.0)

    bottom, top = left.get_ylim()
    assert (bottom, top > 500) == (0.0, True)


def drawn(lines: dict[str, list[Point]], end_s: float) -> tuple[Figure, list[list[float]]]:
    """The picture, and the heights of all that was drawn below the legend's names."""
    figure = Figure()
    messages, seconds = figure.subplots(2, 1)
    draw_lag(messages, seconds, lines, [(1, at(0))], at(0), at(end_s))
    found = [
        [float(value) for value in line.get_ydata()]
        for axes in (messages, seconds)
        for line in axes.lines
        if line.get_label() in lines
    ]
    return figure, found


def test_lag_is_drawn_in_messages_and_in_seconds_and_breaks_where_nothing_is_known() -> None:
    """Not a number has no dot: a zero there would say that all was read."""
    line = [Point(0.0, 9, 3.0, is_at_least=True), Point(5.0, None, None), Point(9.0, 4, None)]

    figure, found = drawn({"clicks-0": line}, 10)

    messages, seconds = found
    assert (messages[0], messages[2], seconds[0]) == (9.0, 4.0, 3.0)
    assert [math.isnan(value) for value in messages] == [False, True, False]
    assert [math.isnan(value) for value in seconds] == [False, True, True]
    marks = [each for axes in figure.axes for each in axes.lines if each.get_marker() == "^"]
    assert [[float(x) for x in each.get_xdata()] for each in marks] == [[0.0]]


def test_as_many_lines_as_may_be_look_different() -> None:
    lines = {f"clicks-{number}": [Point(0.0, number, 1.0)] for number in range(LINES_MAX)}
    figure, _ = drawn(lines, 10)

    looks = {
        (each.get_color(), each.get_linestyle())
        for each in figure.axes[0].lines
        if each.get_label() in lines
    }
    assert len(looks) == LINES_MAX


def test_a_picture_without_samples_says_so() -> None:
    """The job has not sampled yet: empty axes would look like no lag."""
    figure, found = drawn({}, 10)

    assert found == []
    assert [text.get_text() for axes in figure.axes for text in axes.texts].count("no samples") == 2


@pytest.mark.parametrize("partition", [3, 4])
def test_lag_rises_while_an_owner_is_dead_and_falls_when_another_has_caught_up(
    tmp_path: Path, partition: int
) -> None:
    """From the real sampler: as long as a session nobody reads the dead query's partitions."""
    tables = a_life_of_an_assigned_group().write(tmp_path)
    rows = [Sampled(*row) for row in query_tables(tables, SAMPLES, [GROUP]).rows]
    lines = lines_of(rows, min(row.time for row in rows))

    line = [each for each in lines[f"clicks-{partition}"] if each.messages is not None]
    worst = max(line, key=lambda each: each.seconds or 0.0)
    assert worst.seconds is not None
    assert worst.seconds > SESSION_S - 1
    assert worst.messages is not None
    after = line[line.index(worst) :]
    assert min(each.messages or 0 for each in line[: line.index(worst)]) < worst.messages / 5
    assert min(each.messages or 0 for each in after) < worst.messages / 5

"""Lag over time as lines: what is joined, what is broken, and what many partitions become."""

from datetime import UTC, datetime, timedelta

from notebooks.plots import LINES_MAX, Point, Sampled, lines_of

START = datetime(2026, 3, 1, 15, 0, tzinfo=UTC)


def sampled(
    at_s: float,
    lag: int | None,
    lag_seconds: float | None = None,
    *,
    place: tuple[str, int] = ("clicks", 0),
    is_at_least: bool = False,
) -> Sampled:
    return Sampled(*place, START + timedelta(seconds=at_s), lag, lag_seconds, is_at_least)


def test_each_partition_is_a_line_in_the_order_of_time_and_numbers() -> None:
    """10 comes after 2, and Delta gives rows in no order."""
    rows = [
        sampled(30, 5, 2.5, place=("clicks", 10)),
        sampled(30, 0, 0.0, place=("clicks", 2)),
        sampled(0, 7, 60.0, place=("clicks", 10), is_at_least=True),
        sampled(0, 1, 0.5, place=("clicks", 2)),
    ]

    found = lines_of(rows, START)

    assert list(found.items()) == [
        ("clicks-2", [Point(0.0, 1, 0.5), Point(30.0, 0, 0.0)]),
        ("clicks-10", [Point(0.0, 7, 60.0, is_at_least=True), Point(30.0, 5, 2.5)]),
    ]


def test_a_line_is_broken_where_samples_are_missing() -> None:
    """The job was down for a quarter of an hour: nobody knows how far the group was behind."""
    times = [0, 30, 60, 960, 990, 1020]

    (line,) = lines_of([sampled(at, 5, 1.0) for at in times], START).values()

    assert [each.at_s for each in line if each.messages is not None] == times
    (gap,) = [each for each in line if each.messages is None]
    assert 60 < gap.at_s < 960
    assert line.index(gap) == 3


def test_a_group_that_is_seldom_behind_has_no_line_over_its_silence() -> None:
    """It leaves no sample while it has no lag: joined, its lag would seem to grow for minutes."""
    rows = [
        sampled(at + more, lag, float(lag))
        for at in range(0, 3_000, 600)
        for more, lag in ((0, 5), (30, 0))
    ]

    (line,) = lines_of(rows, START).values()

    assert [each.messages for each in line] == [5, 0, *4 * [None, 5, 0]]


def test_a_deleted_topic_breaks_the_line_and_is_not_zero() -> None:
    """Null is unknown: drawn as 0 it would say that all was read."""
    rows = [sampled(0, 3, 1.0), sampled(30, None), sampled(60, 4, 0.5)]

    (line,) = lines_of(rows, START).values()

    assert line == [Point(0.0, 3, 1.0), Point(30.0, None, None), Point(60.0, 4, 0.5)]


def test_messages_may_be_known_and_seconds_not() -> None:
    """Nobody has sampled where the log ended."""
    (line,) = lines_of([sampled(0, 3, None)], START).values()

    assert line == [Point(0.0, 3, None)]


def test_many_partitions_are_a_line_for_each_topic() -> None:
    """Messages of a topic add up; it is as late as its latest partition."""
    rows = [
        sampled(at, number * 10, number * 1.0, place=(topic, number))
        for at in (0, 30)
        for topic in ("a", "b")
        for number in range(LINES_MAX)
    ]
    rows.append(sampled(30, 1, 99.0, place=("b", LINES_MAX), is_at_least=True))

    found = lines_of(rows, START)

    total, latest = sum(range(LINES_MAX)) * 10, LINES_MAX - 1.0
    assert found == {
        "a": [Point(0.0, total, latest), Point(30.0, total, latest)],
        "b": [Point(0.0, total, latest), Point(30.0, total + 1, 99.0, is_at_least=True)],
    }


def test_a_topic_of_which_a_part_is_unknown_is_behind_by_at_least_the_rest() -> None:
    """One of its leaders is away; only without any number it is unknown altogether."""
    places = [("a", number) for number in range(LINES_MAX + 1)]
    rows = [sampled(0, 2, 3.0, place=place) for place in places[1:]]
    rows += [sampled(0, None, place=places[0])]
    rows += [sampled(30, None, place=place) for place in places]

    assert lines_of(rows, START) == {
        "a": [
            Point(0.0, 2 * LINES_MAX, 3.0, is_at_least=True, is_part=True),
            Point(30.0, None, None),
        ]
    }


def test_of_many_topics_those_most_behind_have_lines_and_the_others_one() -> None:
    """A group on hundreds of topics: its picture stays readable and leaves nothing out."""
    rows = [sampled(0, number, 1.0, place=(f"t{number:02}", 0)) for number in range(LINES_MAX + 3)]

    found = lines_of(rows, START)

    assert len(found) == LINES_MAX
    assert list(found)[-1] == "4 other topics"
    assert "t04" in found
    assert found["4 other topics"] == [Point(0.0, 0 + 1 + 2 + 3, 1.0)]


def test_without_samples_there_are_no_lines() -> None:
    """Lag is not sampled everywhere."""
    assert lines_of([], START) == {}

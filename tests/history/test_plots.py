"""What a picture of ownership shows: bars, staircases, looks."""

from coordlib.history.plots import (
    COLOURS,
    HATCHES,
    Bar,
    Step,
    bars_of,
    hand_overs_of,
    looks_of,
    rows_of,
    steps_of,
)
from coordlib.history.tenures import Tenure
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

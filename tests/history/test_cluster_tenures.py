"""Leaders of a cluster as tenures, and the moments at which they changed."""

from datetime import datetime, timedelta
from typing import Any

from coordlib.history.views.groups import Tenure
from notebooks.cluster_tenures import Change, changes_of, led_of, states_of
from tests.history.cluster_life import START


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


#: As the query gives them: in no order.
ROWS: list[tuple[Any, ...]] = [
    ("t", 1, 2, 0, 5, at(0), at(9), "first", "topic created"),
    ("t", 0, -1, 1, -1, at(9), at(14), None, "superseded by a newer registration"),
    ("t", 0, 1, 0, 5, at(0), at(9), "first", "topic created"),
    ("t", 0, 3, 2, 30, at(14), None, "offline", "former leader must have stopped"),
    ("t", 1, 3, 1, 21, at(9), None, "offline", "superseded by a newer registration"),
]


def test_tenures_are_by_partition_in_the_order_of_epochs() -> None:
    assert led_of(ROWS) == [
        Tenure("t", 0, "broker 1", 0, 5, at(0), at(9)),
        Tenure("t", 0, "nobody", 1, -1, at(9), at(14)),
        Tenure("t", 0, "broker 3", 2, 30, at(14), None),
        Tenure("t", 1, "broker 2", 0, 5, at(0), at(9)),
        Tenure("t", 1, "broker 3", 1, 21, at(9), None),
    ]


def test_what_one_moment_changed_for_one_reason_is_one_change() -> None:
    assert changes_of(ROWS) == [
        Change(1, at(0), "topic created", ("first",), ("t-0: broker 1", "t-1: broker 2")),
        Change(
            *(2, at(9), "superseded by a newer registration", ("offline",)),
            ("t-0: broker 1 to nobody", "t-1: broker 2 to broker 3"),
        ),
        Change(
            *(3, at(14), "former leader must have stopped", ("offline",)),
            ("t-0: nobody to broker 3",),
        ),
    ]


def test_of_two_epochs_at_one_moment_the_later_one_follows() -> None:
    """A deadline and the record at which it fires elect one after the other."""
    rows = [
        ("t", 0, 2, 1, 9, at(4), at(4), "offline", "session expired"),
        ("t", 0, 3, 2, 9, at(4), None, "shutdown", "leader let go"),
        ("t", 0, 1, 0, 5, at(0), at(4), "first", "topic created"),
    ]

    assert [each.moved for each in changes_of(rows)] == [
        ("t-0: broker 1",),
        ("t-0: broker 1 to broker 2",),
        ("t-0: broker 2 to broker 3",),
    ]


def test_states_are_tenures_of_a_broker() -> None:
    rows = [(2, 40, "Active", at(5), None), (2, 7, "Inactive", at(0), at(5))]

    assert states_of(rows) == [
        Tenure("broker", 2, "Inactive", 7, 7, at(0), at(5)),
        Tenure("broker", 2, "Active", 40, 40, at(5), None),
    ]

"""The order of Java's maps, against what a Java 17 printed."""

import pytest

from coordlib.core.groups.assignors.model import PartitionSet, in_map_order, java_order, string_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("orders.eu", -390713255), ("Kunde-\u00fc-\U0001f600", 1356671228)],
)
def test_strings_have_javas_hashes(text: str, value: int) -> None:
    assert string_hash(text) == value % 2**32


@pytest.mark.parametrize(
    ("count", "order"),
    [
        (12, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 11, 10]),
        (13, [9, 8, 7, 6, 5, 4, 3, 2, 1, 12, 0, 11, 10]),  # one more, and the table doubles
    ],
)
def test_keys_stand_as_in_a_hash_map(count: int, order: list[int]) -> None:
    names = [f"member-{number:02}" for number in range(count)]

    assert in_map_order(names) == [f"member-{number:02}" for number in order]
    assert in_map_order(reversed(names)) == in_map_order(names)


def test_partitions_stand_as_in_a_hash_set() -> None:
    """It grows with the thirteenth, and stays as large as it was."""
    some = PartitionSet(string_hash("orders.eu"))
    firsts = []
    for number in range(14):
        some.add(number * 7)
        firsts.append(some.first())

    assert firsts == [0, 7, 7, 21, 21, *[35] * 9]

    left = []
    while some:
        left.append(some.first())
        some.remove(left[-1])
    assert left == [35, 70, 7, 42, 28, 91, 0, 63, 84, 21, 56, 14, 77, 49]


def test_names_sort_by_utf_16() -> None:
    """Java puts what lies beyond U+FFFF before U+FF5E, Python after it."""
    assert sorted(["\uff5e", "\U0001f600"], key=java_order) == ["\U0001f600", "\uff5e"]

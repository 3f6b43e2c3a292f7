"""How many partitions each member is due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlib.core.groups.assignors.server_model import quotas

weights = st.lists(st.integers(1, 1_000_000), min_size=1, max_size=12)


@given(count=st.integers(0, 100_000), capacities=weights)
def test_everybody_has_the_floor_or_the_ceiling_of_its_ideal_share(
    count: int, capacities: list[int]
) -> None:
    """A member with a tenth of the capacity that gets a fifth of the partitions falls behind."""
    due, total = quotas(count, capacities), sum(capacities)

    assert sum(due) == count
    for size, capacity in zip(due, capacities, strict=True):
        assert count * capacity // total <= size <= -(-count * capacity // total)


@pytest.mark.parametrize(
    ("count", "capacities", "due"),
    [
        (7, [1, 1, 1], [3, 2, 2]),
        (7, [5, 5, 5], [3, 2, 2]),
        (10, [3, 1, 1], [6, 2, 2]),
        (3, [1, 2, 2], [1, 1, 1]),
        (4, [1, 2, 2], [1, 2, 1]),
        (0, [1, 2], [0, 0]),
    ],
)
def test_the_largest_remainder_comes_first(
    count: int, capacities: list[int], due: list[int]
) -> None:
    """Remainders that are equal go to who stands first, so that two runs agree."""
    assert quotas(count, capacities) == due


def test_who_holds_more_than_its_floor_keeps_it() -> None:
    """The one with the larger remainder has less: it would take a partition from the other."""
    assert quotas(5, [3, 2]) == [3, 2]
    assert quotas(3, [11, 10]) == [2, 1]
    assert quotas(3, [11, 10], held=[1, 2]) == [1, 2]


def test_who_holds_nothing_beyond_its_floor_has_no_right_to_more() -> None:
    """A whole ideal share leaves no remainder, however much is held."""
    assert quotas(4, [1, 1], held=[4, 0]) == [2, 2]

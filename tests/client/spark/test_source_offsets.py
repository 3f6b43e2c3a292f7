"""Offsets of `format("coord")`, and how large a batch is.  # INV-148"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark.source_offsets import Offset, PlannedRange, share
from coordlib.errors import CoordError

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
READ = Offset(
    "billing", "q", 7, {T1: PlannedRange(3, 9, 40), T0: PlannedRange(0, 2, 41)}, {"t": "id-1"}
)


def test_an_offset_is_read_as_it_was_written() -> None:
    text = json.loads(json.dumps(READ.json()))

    assert Offset.parse(text, "billing") == READ
    assert json.dumps(Offset.parse(text, "billing").json()) == json.dumps(text)


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"v": 2}, "another version"), ({"group": "orders"}, "another group")],
)
def test_a_checkpoint_of_something_else_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(CoordError, match=reason):
        Offset.parse(READ.json() | change, "billing")


@pytest.mark.parametrize(
    ("metadata", "is_before"),
    [
        ("coord-spark/1 q 6", True),
        ("coord-spark/1 q 7", False),
        ("coord-spark/1 other 6", False),
        ("coord-spark/2 q 6", False),
        ("coord-spark/1 q", False),
        ("", False),
        ("an operator's reset", False),
    ],
)
def test_only_an_older_commit_of_this_query_is_one_before_a_batch(
    metadata: str, is_before: bool
) -> None:
    assert READ.was_committed_before(metadata) is is_before


def test_what_was_read_of_another_topic_of_the_same_name_does_not_count() -> None:
    assert READ.range_of(T0, "id-1") == READ.range_of(T0, "") == PlannedRange(0, 2, 41)
    assert READ.range_of(T0, "id-2") is None


@given(
    st.dictionaries(
        st.integers(0, 20), st.tuples(st.integers(0, 100), st.integers(1, 1000)), max_size=12
    ),
    st.integers(1, 3000),
)
def test_a_batch_has_as_many_records_as_it_may(
    sizes: dict[int, tuple[int, int]], rows_max: int
) -> None:
    there = {TopicPartition("t", n): (at, at + size) for n, (at, size) in sizes.items()}
    ends = share(there, rows_max)

    taken = sum(end - there[place][0] for place, end in ends.items())
    assert taken == min(rows_max, sum(size for _, size in sizes.values()))
    assert all(there[place][0] < end <= there[place][1] for place, end in ends.items())


def test_a_small_partition_is_not_starved_by_a_large_one() -> None:
    assert share({T0: (0, 9_000), T1: (0, 1_000)}, 100) == {T0: 90, T1: 10}

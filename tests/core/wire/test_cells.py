"""Ranges of shards, which job has which, and where shards stand by several markers."""

import pytest

from coordlib.core.wire import cells
from coordlib.core.wire.cells import CellValue, Owned, ShardRange
from coordlib.core.wire.stored import Marker, ShardPosition
from coordlib.errors import SetupError

ALL = None
LOW, HIGH, MIDDLE = ShardRange(0, 3), ShardRange(4, 7), ShardRange(2, 5)


def registered(*order: Owned, wire_version: int = 1) -> dict[Owned, CellValue]:
    return {each: CellValue(since_ms=0, wire_version=wire_version) for each in order}


def marker(checkpoint: str, ends: dict[int, int], batch: int = 1, v: int = 2) -> Marker:
    return Marker(
        v=v,
        checkpoint=checkpoint,
        batch=batch,
        ranges={},
        digest="",
        next_offsets={"coord.requests": {str(shard): end for shard, end in ends.items()}},
        shards={
            str(shard): ShardPosition(clock_ms=end, previous_ms=end, published=-1)
            for shard, end in ends.items()
        },
    )


def test_a_range_is_read_as_it_is_written() -> None:
    """What a unit file names is what status and ids have."""
    found = ShardRange.parse("0-7")
    assert (found, str(found), list(ShardRange.parse("3-3").shards)) == ((0, 7), "0-7", [3])


@pytest.mark.parametrize(
    "text", ["", "7", "7-0", "0-7,9-11", "-1-2", "a-b", "0 - 7", "0-9999999999"]
)
def test_what_is_no_range_is_refused_with_an_example(text: str) -> None:
    """A typing error in a unit's file must not start a job over other shards."""
    with pytest.raises(SetupError, match="--shards 0-7"):
        ShardRange.parse(text)


def test_a_range_beyond_the_prefix_is_refused() -> None:
    """The prefix has 4 shards: a job for 2-5 would wait for ever for two of them."""
    cells.require_within(ShardRange(0, 3), 4)
    cells.require_within(None, 4)
    with pytest.raises(SetupError, match="4 shards, 0 to 3"):
        cells.require_within(MIDDLE, 4)


@pytest.mark.parametrize("what", ["marker", "keys", "cell", "set-aside"])
def test_a_job_over_all_shards_has_the_keys_that_it_always_had(what: str) -> None:
    """A prefix of today goes on, and is read by commands of today."""
    assert cells.key_of(what, ALL) == what.encode()
    assert cells.key_of(what, LOW) == f"{what}-0-3".encode()
    assert [cells.read_key(cells.key_of(what, each)) for each in (ALL, LOW)] == [
        (what, ALL),
        (what, LOW),
    ]


@pytest.mark.parametrize("key", [b"layout", b"marker-", b"marker-1", b"cellar", b"\xff", b""])
def test_other_keys_name_no_job(key: bytes) -> None:
    """The layout, or what newer code has put there."""
    assert cells.read_key(key) is None


def test_the_later_of_two_overlapping_cells_stands_alone() -> None:
    """Somebody starts 2-5 while 0-3 and 4-7 run: both end, with all that they have."""
    found = registered(LOW, HIGH, MIDDLE)

    assert cells.later_than(found, LOW) == [MIDDLE]
    assert cells.later_than(found, MIDDLE) == []
    assert cells.standing(found) == [MIDDLE]
    assert cells.gaps(found, 8) == [ShardRange(0, 1), ShardRange(6, 7)]


def test_cells_beside_each_other_all_stand() -> None:
    """In whichever order they were started."""
    found = registered(HIGH, LOW)
    assert (cells.standing(found), cells.gaps(found, 8)) == ([HIGH, LOW], [])
    assert cells.gaps(found, 10) == [ShardRange(8, 9)]


def test_a_job_over_all_shards_comes_back_after_cells_and_goes_again() -> None:
    """Somebody tries cells for a day."""
    assert cells.standing(registered(LOW, HIGH, ALL)) == [ALL]
    assert cells.gaps(registered(LOW, ALL), 8) == []
    assert cells.standing(registered(ALL, LOW)) == [LOW]


def test_of_a_prefix_without_cells_nothing_is_missing() -> None:
    """All prefixes of today: no monitor may call."""
    assert (cells.standing({}), cells.gaps({}, 8)) == ([], [])


def test_clients_use_what_all_cells_read() -> None:
    """INV-84. One cell is upgraded, the other not yet: a member of either may send to both."""
    found = registered(LOW, wire_version=1) | registered(HIGH, wire_version=2)

    assert cells.read_by_all(found, HIGH, 2) == 1
    assert cells.read_by_all(found, LOW, 2) == 2
    assert cells.read_by_all({}, ALL, 2) == 2


def test_the_marker_of_the_only_job_is_taken_as_it_is() -> None:
    """As before cells; a job that finds none begins anew."""
    whole = marker("c", {0: 5, 1: 5})
    assert cells.composed({ALL: whole}, ALL, 2) is whole
    assert cells.composed({}, ALL, 2) is None
    assert cells.composed({LOW: whole}, HIGH, 8) is None


def test_a_cell_that_begins_goes_on_where_the_job_over_all_shards_has_ended() -> None:
    """The first one of a prefix that has grown."""
    whole = marker("c", dict.fromkeys(range(8), 5), batch=9)
    found = cells.composed({ALL: whole}, LOW, 8)

    assert found is not None
    assert (found.checkpoint, found.batch, list(found.shards)) == ("c", 9, ["0", "1", "2", "3"])
    assert found.next_offsets == {"coord.requests": dict.fromkeys("0123", 5)}


def test_a_range_cut_from_two_others_stands_where_each_shard_stands() -> None:
    """4-7 has been stopped long ago, 0-3 a moment ago, and 2-5 is rebuilt from both."""
    low, high = marker("a", dict.fromkeys(LOW.shards, 9), 30), marker("b", {4: 3, 5: 3}, 2)
    found = cells.composed({HIGH: high, LOW: low}, MIDDLE, 8)

    assert found is not None
    assert (found.checkpoint, found.batch) == ("a@30+b@2", 30)
    assert found.next_offsets == {"coord.requests": {"2": 9, "3": 9, "4": 3, "5": 3}}


def test_a_whole_job_that_comes_back_counts_before_the_cells_that_it_ended() -> None:
    """It has judged nothing yet that they had not."""
    low = marker("a", dict.fromkeys(LOW.shards, 5))
    high = marker("b", dict.fromkeys(HIGH.shards, 5))
    whole = marker("c", dict.fromkeys(range(8), 5))

    assert cells.composed({LOW: low, HIGH: high, ALL: whole}, ALL, 8) is whole

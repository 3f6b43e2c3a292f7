"""Commits of one claim move its position over a contiguous prefix alone."""

from hypothesis import given
from hypothesis import strategies as st

from coordlib.client.claims.claim import CommitTracker


def tracker_of(*offsets: int, position: int = 0) -> CommitTracker:
    tracker = CommitTracker(position)
    for offset in offsets:
        tracker.handed_out(offset)
    return tracker


def test_v13_contiguous_commits() -> None:
    """Messages are worked on side by side: whoever comes next must read all that is open."""
    tracker = tracker_of(0, 1, 2, 3, 4, 5)
    seen = [(tracker.position, tracker.outstanding)]
    for offset in (0, 2, 95, 1):
        assert tracker.commit(offset) is (offset != 95)
        seen.append((tracker.position, tracker.outstanding))
    for offset in (3, 4, 5):
        assert tracker.commit(offset)
    seen.append((tracker.position, tracker.outstanding))

    assert seen == [(0, 6), (1, 5), (1, 5), (1, 5), (3, 3), (6, 0)]


def test_gaps_of_the_log_hold_nothing_up() -> None:
    """A compacted or transactional topic lacks offsets: nobody commits those."""
    tracker = tracker_of(3, 7, 20, position=2)

    assert tracker.commit(3)
    assert tracker.commit(7)
    assert tracker.position == 8
    assert tracker.commit(20)
    assert tracker.position == 21


def test_a_commit_twice_changes_nothing() -> None:
    tracker = tracker_of(0, 1)

    assert tracker.commit(1)
    assert tracker.commit(1)
    assert (tracker.position, tracker.outstanding) == (0, 2)


@given(st.permutations(range(12)))
def test_in_any_order_the_position_is_the_first_that_is_open(order: list[int]) -> None:
    """By maximum, a crash would lose what is still being worked on."""
    tracker, done = tracker_of(*range(12)), set()
    for offset in order:
        assert tracker.commit(offset)
        done.add(offset)
        assert tracker.position == min(set(range(13)) - done)

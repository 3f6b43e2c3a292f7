"""Lag in messages and seconds, from samples of where a log ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlib.kafka.lag import UNKNOWN, Lag, LogEnds, Since, gap_ms, measure
from coordlib.kafka.logs import Bounds


def ends_of(*samples: tuple[int, int], samples_max: int = 120) -> LogEnds:
    """Samples as (seconds, log end)."""
    ends = LogEnds(samples_max, gap_max_ms=60_000)
    for second, end in samples:
        ends.add(second * 1000, end)
    return ends


def lag_of(committed: int, bounds: tuple[int, int], *samples: tuple[int, int]) -> Lag:
    """As of the newest sample."""
    return measure(committed, Bounds(*bounds), ends_of(*samples), samples[-1][0] * 1000)


def test_seconds_are_read_off_the_line_between_two_samples() -> None:
    """100 messages in 30 s; the group stopped a quarter of the way, 22.5 s before the second
    sample, and the third is 30 s later."""
    lag = lag_of(125, (0, 300), (0, 100), (30, 200), (60, 300))

    assert lag == Lag(log_start=0, log_end=300, lag=175, lag_seconds=52.5, lost=0)


def test_who_has_read_all_is_not_behind_however_old_the_last_message() -> None:
    """A topic that nobody has written to for a day is no alarm at three in the morning."""
    lag = lag_of(7, (0, 7), (0, 7), (86_400, 7))

    assert (lag.lag, lag.lag_seconds, lag.is_at_least) == (0, 0.0, False)


def test_the_first_message_after_a_pause_is_young() -> None:
    """Idle for an hour, then one message: the group is behind since then, not for an hour."""
    lag = lag_of(7, (0, 8), (0, 7), (1800, 7), (3600, 7), (3610, 8))

    assert lag.lag_seconds == 10.0


def test_a_group_that_stands_still_on_an_idle_topic_grows_older() -> None:
    """The consumer is dead, nobody writes: what it has not read gets older all the same."""
    lag = lag_of(5, (0, 7), (0, 4), (30, 7), (600, 7), (4000, 7))

    assert lag.lag == 2
    assert lag.lag_seconds == 3990.0


def test_behind_the_oldest_sample_the_seconds_are_a_lower_bound() -> None:
    """The job has just started, the group has been behind for days: at least since the start."""
    lag = lag_of(5, (0, 100), (0, 50), (30, 100))

    assert (lag.lag, lag.lag_seconds, lag.is_at_least) == (95, 30.0, True)


def test_over_a_gap_without_samples_the_seconds_are_a_lower_bound() -> None:
    """The job was down for an hour: what came meanwhile came at any time within it."""
    samples = [(0, 10), (30, 40), (3630, 90), (3660, 95)]

    within, before = lag_of(60, (0, 95), *samples), lag_of(25, (0, 95), *samples)

    assert (within.lag_seconds, within.is_at_least) == (30.0, True)
    assert (before.lag_seconds, before.is_at_least) == (3645.0, False)


@pytest.mark.parametrize(
    ("interval_ms", "gap"), [(200, 60_000), (30_000, 90_000), (300_000, 900_000)]
)
def test_a_sample_or_two_may_be_missing(interval_ms: int, gap: int) -> None:
    assert gap_ms(interval_ms) == gap


def test_samples_are_bounded_and_what_falls_out_is_a_lower_bound() -> None:
    ends = ends_of(*((second, second) for second in range(10)), samples_max=4)

    assert ends.since(5) == Since(6000, is_at_least=True)
    assert ends.since(6) == Since(6000, is_at_least=False)


def test_an_idle_topic_keeps_its_past() -> None:
    """Two samples hold a pause of any length: what was before it stays known."""
    samples = [(0, 10), (30, 20), *((60 + 30 * turn, 20) for turn in range(500))]
    ends = ends_of(*samples, samples_max=4)

    assert ends.since(15) == Since(15_000, is_at_least=False)
    assert ends.since(20) == Since(1000 * samples[-1][0], is_at_least=False)


def test_what_retention_removed_is_lost_and_not_lag() -> None:
    """The consumer was away for longer than the topic keeps: it goes on at the log's start."""
    lag = lag_of(10, (40, 100), (0, 40), (60, 100))

    assert (lag.lag, lag.lost, lag.lag_seconds) == (60, 30, 60.0)


def test_a_shorter_log_than_was_committed_is_marked() -> None:
    """The topic was truncated, or deleted and made anew: there is no lag, and something is odd."""
    lag = lag_of(500, (0, 20), (0, 20))

    assert (lag.lag, lag.lag_seconds, lag.lost, lag.is_beyond_end) == (0, 0.0, 0, True)


def test_samples_of_a_longer_log_are_forgotten() -> None:
    """After truncation the old ends would say that new messages are old."""
    ends = ends_of((0, 100), (30, 200), (60, 50), (90, 80))

    assert ends.since(50) == Since(60_000, is_at_least=False)
    assert ends.since(40) == Since(60_000, is_at_least=True)


def test_a_clock_that_was_set_back_leaves_no_samples_of_the_future() -> None:
    ends = ends_of((100, 1), (200, 2), (150, 3))

    assert ends.since(2) == Since(125_000, is_at_least=False)


def test_a_topic_that_is_gone_has_no_lag() -> None:
    assert measure(5, None, ends_of((0, 9)), 1000) == UNKNOWN


def test_without_samples_the_messages_are_known_and_the_seconds_not() -> None:
    """The first look at a group, from a command that has no history."""
    assert measure(5, Bounds(0, 9), None, 1000) == Lag(log_start=0, log_end=9, lag=4, lost=0)


GROWTH = st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 50)), min_size=1, max_size=40)


@given(GROWTH, st.integers(0, 2_000), st.integers(2, 6))
def test_the_interpolated_time_lies_where_the_log_passed_the_offset(
    growth: list[tuple[int, int]], committed: int, samples_max: int
) -> None:
    """Whatever was sampled: not before the newest sample below, not after the first above; and
    who is further behind is behind for at least as long."""
    ends, time_ms, end = LogEnds(samples_max, gap_max_ms=60_000), 0, 0
    taken = []
    for step_ms, produced in growth:
        time_ms, end = time_ms + step_ms, end + produced
        ends.add(time_ms, end)
        taken.append((time_ms, end))
    position = min(committed, end)
    lag = measure(position, Bounds(0, end), ends, time_ms)
    behind = measure(max(0, position - 1), Bounds(0, end), ends, time_ms)

    assert lag.lag_seconds is not None
    assert behind.lag_seconds is not None
    assert behind.lag_seconds >= lag.lag_seconds
    if lag.lag and not lag.is_at_least:
        since_ms = time_ms - 1000 * lag.lag_seconds
        below = max(each[0] for each in taken if each[1] <= position)
        above = min(each[0] for each in taken if each[1] > position)
        assert below - 1 <= since_ms <= above + 1


@pytest.mark.parametrize("position", [0, 1, 99])
def test_no_samples_tell_nothing(position: int) -> None:
    assert LogEnds().since(position) is None

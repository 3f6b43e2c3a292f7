"""Lag as of now, out of live log ends and what the job has sampled before."""

import pytest

from coordlib.cli.groups.view import lag_now
from coordlib.core.wire.stored import LagLine, LagSample
from coordlib.kafka.lag import UNKNOWN, Lag, _read, sampled_ends
from coordlib.kafka.logs import Bounds, Place

ORDERS = Place("orders", 0)


def sample(
    second: int,
    committed: int | None,
    end: int | None,
    seconds: float | None = None,
    interval_ms: int = 30_000,
) -> LagSample:
    """What the job writes; `seconds` None: a lower bound of 0."""
    lag = None if end is None or committed is None else end - committed
    line = LagLine(
        topic="orders",
        partition=0,
        committed=committed,
        log_start=0,
        log_end=end,
        lag=lag,
        lag_seconds=0.0 if seconds is None else seconds,
        is_at_least=seconds is None,
    )
    return LagSample(time_ms=1000 * second, interval_ms=interval_ms, group="g", lines=(line,))


def now(second: int, committed: int, end: int, *samples: LagSample) -> tuple[object, ...]:
    """Lag, seconds and whether these are a lower bound."""
    found = sampled_ends(samples).get(ORDERS)
    lag = lag_now(committed, Bounds(0, end), found, 1000 * second)
    return lag.lag, lag.lag_seconds, lag.is_at_least


def test_samples_of_a_running_job_are_gone_on_with() -> None:
    samples = [sample(0, 10, 10, 0.0), sample(30, 10, 40, 30.0), sample(60, 10, 70, 60.0)]

    assert now(70, 10, 80, *samples) == (70, 70.0, False)
    assert now(70, 55, 80, *samples) == (25, 25.0, False)
    assert now(70, 75, 80, *samples) == (5, 5.0, False)
    assert now(70, 80, 80, *samples) == (0, 0.0, False)


def test_a_pause_without_samples_is_no_growth() -> None:
    """The group had no lag for an hour, so nothing was written; the sampler saw the message come
    between its own two last rounds."""
    samples = [sample(0, 10, 10, 0.0), sample(3600, 10, 12, 30.0)]

    assert now(3610, 10, 12, *samples) == (2, 40.0, False)


def test_what_came_while_nobody_sampled_has_no_known_age() -> None:
    """The job has been down for an hour: what was there before is as old as it is, what came since
    may have come this moment."""
    samples = [sample(0, 10, 10, 0.0), sample(30, 10, 40, 30.0)]

    assert now(3630, 40, 90, *samples) == (50, 0.0, True)
    assert now(3630, 60, 90, *samples) == (30, 0.0, True)
    assert now(3630, 25, 90, *samples) == (65, 3615.0, False)
    assert now(3630, 25, 40, *samples) == (15, 3615.0, False)


def test_a_short_gap_is_a_line() -> None:
    """How short, depends on how often the job samples."""
    last = sample(0, 10, 10, 0.0)
    seldom = sample(0, 10, 10, 0.0, interval_ms=300_000)

    assert now(90, 10, 12, last)[1:] == (90.0, False)
    assert now(91, 10, 12, last)[1:] == (0.0, True)
    assert now(900, 10, 12, seldom)[1:] == (900.0, False)


def test_a_restarted_job_whose_samples_are_bounds_is_known_better_here() -> None:
    """The driver has forgotten what its predecessor saw; the topic has not."""
    samples = [sample(0, 10, 10, 0.0), sample(30, 10, 40, 30.0), sample(90, 10, 40)]

    assert now(100, 25, 40, *samples) == (15, 85.0, False)


def test_behind_the_oldest_sample_it_is_at_least_so_long() -> None:
    assert now(40, 5, 20, sample(30, 5, 20)) == (15, 10.0, True)
    assert now(40, 3, 20, sample(30, 5, 20, 25.0)) == (17, 35.0, True)
    assert now(40, 5, 20, sample(30, 5, 20, 25.0)) == (15, 35.0, False)


def test_a_topic_that_was_deleted_and_made_anew_begins_anew() -> None:
    samples = [sample(0, 10, 500, 3.0), sample(30, 10, None), sample(60, 10, 20)]

    assert now(70, 10, 20, *samples) == (10, 10.0, True)


def test_a_deleted_offset_of_one_group_takes_no_samples_from_another() -> None:
    samples = [sample(0, 10, 10, 0.0), sample(30, 10, 40, 30.0), sample(60, None, None)]

    assert now(70, 25, 40, *samples) == (15, 55.0, False)


def test_without_samples_or_offsets_what_is_known_is_told() -> None:
    """The first look at a group, a partition that was never committed, a topic that is gone."""
    assert now(70, 10, 20) == (10, None, False)
    assert lag_now(None, Bounds(2, 20), None, 0) == Lag(log_start=2, log_end=20)
    assert lag_now(5, None, None, 0) == UNKNOWN


def test_samples_of_several_groups_tell_of_one_log() -> None:
    """Two groups read one topic: both leave its end, and each the time where it stands."""
    samples = [sample(0, 10, 10, 0.0), sample(0, 4, 10, 8.0)]
    samples += [sample(30, 10, 40, 30.0), sample(30, 4, 40, 38.0)]

    assert now(40, 25, 40, *samples) == (15, 25.0, False)


@pytest.mark.parametrize("end", [4, 5])
def test_a_log_that_got_shorter_than_the_newest_sample_is_no_lag(end: int) -> None:
    samples = [sample(0, 5, 40, 9.0)]

    assert now(4000, 5, end, *samples) == (0, 0.0, False)


@pytest.mark.parametrize(
    "line",
    [
        b'{"topic":"t","partition":0,"committed":9223372036854775808}',
        b'{"topic":"t","partition":0,"committed":1,"log_end":9223372036854775808}',
        b'{"topic":"t","partition":0,"committed":1,"log_start":-1}',
    ],
)
def test_numbers_that_no_log_has_are_nobodys_sample(line: bytes) -> None:
    """Somebody writes into the topic: samples are kept in 64 bits, and the watch must not end."""
    record = b'{"time_ms":1,"interval_ms":1,"group":"g","lines":[%s]}'

    assert _read(record % line) is None
    assert _read(record % b'{"topic":"t","partition":0,"committed":1,"log_end":4}') is not None

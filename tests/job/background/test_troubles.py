"""What fails: since when, the last error, and until when."""

from coordlib.job.background.loop import HealthReport, Trouble


def test_a_trouble_keeps_its_beginning_and_has_the_last_error() -> None:
    now_ms = 5
    health = HealthReport(lambda: now_ms)
    health.failed("lag", "first")
    now_ms = 9
    health.failed("lag", "second")
    health.failed("topics", "other")

    assert health.now == {
        "lag": Trouble(since_ms=5, last_ms=9, error="second"),
        "topics": Trouble(since_ms=9, last_ms=9, error="other"),
    }


def test_it_is_over_when_it_works_and_begins_anew() -> None:
    """Of something that failed yesterday nobody wants to read today."""
    now_ms = 5
    health = HealthReport(lambda: now_ms)
    health.note("lag", "away")
    health.note("lag", "")
    assert health.now == {}
    now_ms = 9
    health.note("lag", "away")

    assert health.now["lag"].since_ms == 9


def test_what_goes_well_by_chance_is_over_only_after_a_while() -> None:
    now_ms = 0
    health = HealthReport(lambda: now_ms)
    health.failed("lag", "away")
    now_ms = 99
    health.works("lag", quiet_ms=100)
    assert "lag" in health.now
    now_ms = 100

    health.works("lag", quiet_ms=100)

    assert health.now == {}

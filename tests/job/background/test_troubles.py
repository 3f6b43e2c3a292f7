"""What fails: since when, the last error, and until when."""

from coordlib.job.background.loop import Trouble, Troubles


def test_a_trouble_keeps_its_beginning_and_has_the_last_error() -> None:
    now_ms = 5
    troubles = Troubles(lambda: now_ms)
    troubles.failed("lag", "first")
    now_ms = 9
    troubles.failed("lag", "second")
    troubles.failed("topics", "other")

    assert troubles.now == {
        "lag": Trouble(since_ms=5, last_ms=9, error="second"),
        "topics": Trouble(since_ms=9, last_ms=9, error="other"),
    }


def test_it_is_over_when_it_works_and_begins_anew() -> None:
    """Of something that failed yesterday nobody wants to read today."""
    now_ms = 5
    troubles = Troubles(lambda: now_ms)
    troubles.note("lag", "away")
    troubles.note("lag", "")
    assert troubles.now == {}
    now_ms = 9
    troubles.note("lag", "away")

    assert troubles.now["lag"].since_ms == 9


def test_what_goes_well_by_chance_is_over_only_after_a_while() -> None:
    now_ms = 0
    troubles = Troubles(lambda: now_ms)
    troubles.failed("lag", "away")
    now_ms = 99
    troubles.works("lag", quiet_ms=100)
    assert "lag" in troubles.now
    now_ms = 100

    troubles.works("lag", quiet_ms=100)

    assert troubles.now == {}

"""Claims fail, and groups go on: the query begins again, or says for how long it will not."""

import threading

import pytest

from coordlib.errors import (
    CannotReach,
    CoordError,
    DriverFenced,
    NotAllowed,
    SetupError,
    StartRefused,
)
from coordlib.job.background.loop import HealthReport
from coordlib.job.background.threads import CLAIMS, ClaimsWatch


class Runs:
    """A query that ends as it is told, run by run."""

    def __init__(self, health: HealthReport, *ends: Exception | str) -> None:
        self._health, self._ends = health, list(ends)
        self.count, self.is_closed = 0, False

    def run(self, stop: threading.Event) -> None:
        self.count += 1
        end = self._ends.pop(0) if self._ends else None
        if end == "works":
            self._health.works(CLAIMS)
            end = CannotReach("The broker went away.", "here", "Wait.")
        if isinstance(end, Exception):
            raise end
        stop.wait()

    def close(self) -> None:
        self.is_closed = True


def watch_of(*ends: Exception | str) -> tuple[ClaimsWatch, HealthReport]:
    health = HealthReport()
    return ClaimsWatch(Runs(health, *ends), health, threading.Event()), health


def failure() -> CannotReach:
    return CannotReach("The broker did not answer.", "here", "Wait.")


def test_pauses_double_up_to_a_minute() -> None:
    """The topic is away for an hour: nobody is helped by a start every second, and nobody should
    wait for an hour more when it is back."""
    watch, _ = watch_of(*(failure() for _ in range(7)))

    assert [watch.step() for _ in range(7)] == [5, 10, 20, 40, 60, 60, 60]


def test_a_failure_after_work_is_a_first_one() -> None:
    watch, _ = watch_of(failure(), failure(), "works", failure())

    assert [watch.step() for _ in range(4)] == [5, 10, 5, 10]


@pytest.mark.parametrize("kind", [DriverFenced, StartRefused, SetupError])
def test_what_another_start_cannot_fix_is_not_begun_again(kind: type[CoordError]) -> None:
    """A newer driver runs the query in a job of its own: two would fence each other for ever."""
    watch, health = watch_of(kind("Not here.", "there", "Add --rebuild."))

    assert watch.step() is None
    assert health.now[CLAIMS].error == "Not here. there Add --rebuild-claims."


def test_a_right_that_is_granted_brings_claims_back() -> None:
    """An operator withdrew the wrong row at night. In the morning the right was there again, and
    claims stood still until somebody thought of starting the job."""
    health, now_ms = HealthReport(lambda: now_ms), 1_000
    refused = NotAllowed("A right is missing: Read on the topic __marshal.", "here", "Grant it.")
    query = Runs(health, refused, refused, refused, refused, refused, refused, "works")
    watch = ClaimsWatch(query, health, threading.Event())
    pauses = []
    for now_ms in range(1_000, 7_000, 1_000):  # noqa: B007  the clock of the report
        pauses.append(watch.step())

    assert pauses == [5, 10, 20, 40, 60, 60]
    assert health.now[CLAIMS].since_ms == 1_000, "status says since when"
    assert "Read on the topic __marshal" in health.now[CLAIMS].error
    assert watch.step() == 5, "it ran, and then the broker went away"
    assert health.now[CLAIMS].since_ms == 6_000


def test_the_trouble_says_since_when() -> None:
    """`coord status` shows it, for as long as the query does not work."""
    health, now_ms = HealthReport(lambda: now_ms), 1_000
    watch = ClaimsWatch(Runs(health, failure(), ValueError("odd")), health, threading.Event())
    watch.step()
    now_ms = 9_000
    watch.step()

    told = health.now[CLAIMS]
    assert (told.since_ms, told.last_ms, told.error) == (1_000, 9_000, "ValueError: odd")


def test_it_waits_for_the_groups_and_stops_when_it_is_told() -> None:
    """Who joins must not wait for a query that nobody waits for."""
    health, groups_run = HealthReport(), threading.Event()
    query = Runs(health)
    watch = ClaimsWatch(query, health, groups_run)
    watch.start()
    assert query.count == 0
    groups_run.set()
    while not query.count:
        pass

    watch.stop()

    assert query.is_closed
    assert not watch._thread.is_alive()


def test_a_job_that_ends_before_its_groups_run_begins_no_query() -> None:
    health = HealthReport()
    query = Runs(health)
    watch = ClaimsWatch(query, health, threading.Event())
    watch.start()

    watch.stop()

    assert query.count == 0


def test_troubles_of_a_part_have_its_name_and_no_others() -> None:
    """Lag of claims and lag of groups fail each on its own."""
    health = HealthReport()
    part = health.of(CLAIMS)
    health.failed("lag", "groups")
    part.failed("lag", "claims")

    assert {name: each.error for name, each in health.now.items()} == {
        "lag": "groups",
        "claims: lag": "claims",
    }
    assert {name: each.error for name, each in part.now.items()} == {"lag": "claims"}
    part.note("lag", "")
    assert list(health.now) == ["lag"]

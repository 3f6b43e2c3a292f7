"""The archive fails in every way, and nobody else is ended."""

import threading
from collections.abc import Callable

import pytest

from coordlib.errors import CannotReach, StartRefused
from coordlib.history.plan import Backlog
from coordlib.job.background import threads
from coordlib.job.background.loop import HealthReport
from coordlib.job.background.threads import RETRY_FIRST_S, RETRY_MAX_S, ArchiveWatch, retry_after

INTERVAL_S = 30.0


class Scene:
    """An archive whose turns are told beforehand: what is left, or what is raised."""

    def __init__(self, *turns: Backlog | Exception) -> None:
        self.turns, self.opened = list(turns), 0
        self.health = HealthReport(lambda: 1_000)
        self.watch = ArchiveWatch(self._open, INTERVAL_S, self.health)

    def _open(self) -> "Scene":
        self.opened += 1
        return self

    def turn(self) -> Backlog:
        found = self.turns.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def waited(self) -> list[float]:
        """The pauses after all turns that are left."""
        return [self.watch.step() for _ in list(self.turns)]


def test_the_next_batch_comes_at_once_while_there_is_a_backlog() -> None:
    """Three days behind: to wait half a minute after each batch would never end."""
    scene = Scene(Backlog(50, 1_000), Backlog(20, 1_000), Backlog())

    assert scene.waited() == [0, 0, INTERVAL_S]
    assert scene.health.now == {}


def test_a_failure_is_told_and_tried_again_ever_more_seldom_and_forgotten() -> None:
    """The table store is full for an hour, then somebody makes space."""
    scene = Scene(*[OSError("no space") for _ in range(9)])

    waited = scene.waited()

    assert "no space" in scene.health.now["archive"].error
    assert waited[:4] == [RETRY_FIRST_S * 2**n for n in range(4)]
    assert waited[-1] == RETRY_MAX_S
    scene.turns = [Backlog()]
    assert (scene.waited(), scene.health.now) == ([INTERVAL_S], {})
    scene.turns = [OSError("again")]
    assert scene.waited() == [RETRY_FIRST_S]


def test_what_is_wrong_for_ever_is_told_in_its_words_and_tried_seldom() -> None:
    """Somebody runs jobs/archive.py beside a job that has its own archive, and stops it later."""
    scene = Scene(StartRefused("Another archive writes these tables", "/t/events", "Stop one."))

    assert scene.waited() == [RETRY_MAX_S]

    told = "Another archive writes these tables /t/events Stop one."
    assert scene.health.now["archive"].error == told


def test_the_reason_of_javas_failures_is_told() -> None:
    """py4j puts it on the second line, behind one that says nothing."""
    scene = Scene(RuntimeError("An error occurred while calling o1.save.\n: no such host\n\tat x"))

    scene.waited()

    told = "RuntimeError: no such host"
    assert scene.health.now["archive"].error == told


def test_an_archive_that_cannot_be_opened_is_opened_again() -> None:
    """The tables' store does not answer at the start of the job: groups must not wait for it."""
    opens: list[Callable[[], Scene]] = []
    scene = Scene(Backlog())

    def fail() -> Scene:
        raise CannotReach("No table store", "s3://x", "Wait.")

    opens += [fail, scene._open]
    watch = ArchiveWatch(lambda: opens.pop(0)(), INTERVAL_S, scene.health)

    first = watch.step()
    assert scene.health.now.keys() == {"archive"}

    assert (first, watch.step()) == (RETRY_FIRST_S, INTERVAL_S)
    assert scene.health.now == {}


def test_a_backlog_that_is_old_is_a_trouble_before_it_is_lost() -> None:
    """The archive works, and is slower than what is written: after a week Kafka deletes history."""
    scene = Scene(Backlog(70, 3_600_000))
    scene.waited()
    found = scene.health.now["archive backlog"]
    assert found.error == "70 records wait, the oldest for 3600 s"
    scene.turns = [Backlog(70, 3_599_000)]

    scene.waited()

    assert scene.health.now == {}


def test_what_fails_while_the_job_ends_is_no_failure() -> None:
    """Spark ends under the batch that runs."""
    scene = Scene(RuntimeError("SparkContext was shut down"))
    scene.watch._stop.set()

    assert scene.watch.step() == 0
    assert scene.health.now == {}


def test_the_thread_goes_on_after_a_failure_and_ends_when_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "RETRY_FIRST_S", 0.001)
    second = threading.Event()
    scene = Scene(OSError("once"), Backlog())
    turn = scene.turn
    scene.turn = lambda: (turn(), second.set())[0]  # type: ignore[method-assign]
    scene.watch.start()
    assert second.wait(60)

    scene.watch.stop()

    assert not scene.watch._thread.is_alive()


@pytest.mark.parametrize("failed", [0, 5, 6, 10**6])
def test_pauses_are_bounded(failed: int) -> None:
    assert RETRY_FIRST_S <= retry_after(failed, is_refused=False) <= RETRY_MAX_S

"""The archive and the claims query in threads of the coordination job."""

import threading
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from coordlib.errors import CoordError, DriverFenced, NotAllowed, NotReady, SetupError, StartRefused
from coordlib.history.plan import Backlog
from coordlib.job import failures
from coordlib.job.background.loop import BackgroundThread, HealthReport
from coordlib.spark_reasons import reason_of

RETRY_FIRST_S: Final = 5.0
RETRY_MAX_S: Final = 300.0
#: An archive that is behind for this long is a trouble of its own: topics keep a week.
BACKLOG_LOGGED_MS: Final = 3_600_000
#: How long the job's end waits for the batch that runs; a batch that is cut off is repeated.
STOP_S: Final = 10.0

ERROR_LENGTH_MAX: Final = 1_000

ARCHIVE: Final = "archive"
BACKLOG: Final = "archive backlog"

_log = structlog.get_logger()


class ArchiveTurns(Protocol):
    """The part of `Archive` that is used here."""

    def turn(self) -> Backlog: ...


class ArchiveWatch(BackgroundThread):
    """The thread. Failures: "archive" has failed; "archive backlog" is old.

    Args:
        open_archive: makes an Archive; any exception of it is a failure like others.
        interval_s: from one batch to the next, where no backlog is left.
    """

    def __init__(
        self,
        open_archive: Callable[[], ArchiveTurns],
        interval_s: float,
        health: HealthReport,
    ) -> None:
        super().__init__("archive", STOP_S)
        self._open, self._interval_s, self._health = open_archive, interval_s, health
        self._archive: ArchiveTurns | None = None
        #: Batches that failed, one after the other.
        self._failed = 0

    def _run(self) -> None:
        while not self._stop.is_set():
            self._stop.wait(self.step())

    def step(self) -> float:
        """One try; returns the seconds until the next one."""
        try:
            if self._archive is None:
                self._archive = self._open()
            left = self._archive.turn()
        except Exception as problem:  # noqa: BLE001  whatever it is, groups go on
            return self._put_off(problem)
        if self._failed:
            _log.info("the archive works again", failures=self._failed)
        self._failed = 0
        self._health.works(ARCHIVE)
        self._note_backlog(left)
        return 0.0 if left.records else self._interval_s

    def _put_off(self, problem: Exception) -> float:
        if self._stop.is_set():
            return 0.0  # Spark ends under it
        known = problem if isinstance(problem, CoordError) else failures.explain_archive(problem)
        words = words_of(known or problem)
        pause_s = retry_after(self._failed, isinstance(known, StartRefused))
        self._health.failed(ARCHIVE, words)
        _log.error(
            "the archive has failed; groups are not affected",
            error=words,
            retry_s=pause_s,
            exc_info=known is None and not self._failed,
        )
        self._failed += 1
        return pause_s

    def _note_backlog(self, left: Backlog) -> None:
        is_late = left.ms >= BACKLOG_LOGGED_MS
        words = f"{left.records} records wait, the oldest for {left.ms // 1000} s"
        self._health.note(BACKLOG, words if is_late else "")


def words_of(problem: Exception) -> str:
    """A failure in one line."""
    if isinstance(problem, CoordError):
        return " ".join(str(problem).splitlines())[:ERROR_LENGTH_MAX]
    return f"{type(problem).__name__}: {reason_of(problem)}"


def retry_after(failed: int, is_refused: bool) -> float:
    """Seconds until the next try, after so many failures before this one.

    Args:
        is_refused: the cause hardly ever goes away by itself, as another archive or foreign tables.
    """
    return RETRY_MAX_S if is_refused else min(RETRY_MAX_S, RETRY_FIRST_S * 2.0 ** min(failed, 10))


CLAIMS: Final = "claims"
CLAIMS_RETRY_MAX_S: Final = 60.0
#: Groups come first: how long the query waits for their first batch, which compiles everything.
WAIT_FOR_GROUPS_S: Final = 60.0


class Query(Protocol):
    """The part of `ClaimsQuery` that is used here."""

    def run(self, stop: threading.Event) -> None:
        """Run until told to stop; raises what ended it."""

    def close(self) -> None: ...


class ClaimsWatch(BackgroundThread):
    """The thread. Trouble "claims": the query has failed, or will not be begun again.

    Args:
        query: may be run again when it has failed.
        groups_run: is set when the groups' first batch has ended.
    """

    def __init__(self, query: Query, health: HealthReport, groups_run: threading.Event) -> None:
        super().__init__("claims", STOP_S)
        self._query, self._health, self._groups_run = query, health, groups_run
        #: Runs that failed since the query worked last.
        self._failed = 0

    def stop(self) -> None:
        """Stop after the batch that runs, if it ends soon."""
        self._stop.set()  # first: a thread that waits for the groups begins no query then
        self._groups_run.set()
        super().stop()
        self._query.close()

    def _run(self) -> None:
        self._groups_run.wait(WAIT_FOR_GROUPS_S)
        pause_s: float | None = 0.0
        while pause_s is not None and not self._stop.wait(pause_s):
            pause_s = self.step()

    def step(self) -> float | None:
        """One run of the query; returns the seconds until the next one, None: there is none."""
        try:
            self._query.run(self._stop)
        except Exception as problem:  # noqa: BLE001  whatever it is, groups go on
            return self._put_off(problem)
        return None

    def _put_off(self, problem: Exception) -> float | None:
        if self._stop.is_set():
            return None  # Spark ends under it
        if CLAIMS not in self._health.now:
            self._failed = 0  # it has worked since the failure before
        pause_s = None if is_lasting(problem) else claims_retry_after(self._failed)
        # Here the flag has another name: --rebuild is that of the groups.
        words = words_of(problem).replace("--rebuild", "--rebuild-claims")
        self._health.failed(CLAIMS, words)
        _log.error(
            "the claims query has failed; groups are not affected",
            error=words,
            retry_s=pause_s,
            exc_info=None if isinstance(problem, CoordError) or self._failed else problem,
        )
        self._failed += 1
        return pause_s


def is_lasting(problem: Exception) -> bool:
    """Whether beginning again would change nothing: fenced, refused, or a wrong setting.

    A missing right is none: brokers are asked again, and not this job's arguments.
    """
    is_setting = isinstance(problem, SetupError) and not isinstance(problem, NotReady | NotAllowed)
    return is_setting or isinstance(problem, DriverFenced | StartRefused)


def claims_retry_after(failed: int) -> float:
    """Seconds until the next run, after so many failures before this one."""
    return min(CLAIMS_RETRY_MAX_S, RETRY_FIRST_S * 2.0 ** min(failed, 10))

"""The claims query in a thread of the coordination job.

None of its failures ends the job: groups go on. The log and the job's status name the failure, and
the thread begins the query again after a pause, 5 s at first and at most 60: also where a right is
missing, which somebody may grant at any time. It does not where a newer driver runs the query
elsewhere, or where topics or checkpoint are not what they must be: the status says so until the job
is started again. A job that runs the claims query alone (`coord submit
claims`) ends instead, as its supervisor starts it again.
"""

import threading
from typing import Final, Protocol

import structlog

from coordlib.errors import (
    CoordError,
    DriverFenced,
    NotAllowed,
    NotReady,
    SetupError,
    StartRefused,
)
from coordlib.job.background.archive_watch import words_of
from coordlib.job.background.troubles import Troubles

CLAIMS: Final = "claims"
RETRY_FIRST_S: Final = 5.0
RETRY_MAX_S: Final = 60.0
#: How long the job's end waits for the batch that runs; a batch that is cut off is repeated. Not
#: long: groups may be waiting for the job to be started again.
STOP_S: Final = 10.0
#: Groups come first: how long the query waits for their first batch, which compiles everything.
WAIT_FOR_GROUPS_S: Final = 60.0

_log = structlog.get_logger()


class Query(Protocol):
    """The part of `ClaimsQuery` that is used here."""

    def run(self, stop: threading.Event) -> None:
        """Run until told to stop; raises what ended it."""

    def close(self) -> None: ...


class ClaimsWatch:
    """The thread. Trouble "claims": the query has failed, or will not be begun again.

    Args:
        query: may be run again when it has failed.
        groups_run: is set when the groups' first batch has ended.
    """

    def __init__(self, query: Query, troubles: Troubles, groups_run: threading.Event) -> None:
        self._query, self._troubles, self._groups_run = query, troubles, groups_run
        self._stop = threading.Event()
        #: Runs that failed since the query worked last.
        self._failed = 0
        self._thread = threading.Thread(target=self._run, name="claims", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the batch that runs, if it ends soon."""
        self._stop.set()
        self._groups_run.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
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
        if CLAIMS not in self._troubles.now:
            self._failed = 0  # it has worked since the failure before
        pause_s = None if is_lasting(problem) else retry_after(self._failed)
        # Here the flag has another name: --rebuild is that of the groups.
        words = words_of(problem).replace("--rebuild", "--rebuild-claims")
        self._troubles.failed(CLAIMS, words)
        _log.error(
            "the claims query has failed; groups go on without it",
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


def retry_after(failed: int) -> float:
    """Seconds until the next run, after so many failures before this one."""
    return min(RETRY_MAX_S, RETRY_FIRST_S * 2.0 ** min(failed, 10))

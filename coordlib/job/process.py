"""The driver's process: its log lines, what a start was spent on, how it ends on a signal."""

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO, cast

import structlog

from coordlib.errors import NotReady
from coordlib.spark_stopping import stop_between_batches

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: The process's own, whatever `sys.stderr` is meanwhile.
_STDERR: Final = 2


def configure() -> None:
    """To be called once by a job. COORD_LOG_LEVEL=debug adds a line per batch.

    A crash inside a C library (SIGSEGV) leaves what each Python thread did in the same log.
    """
    faulthandler.enable(_STDERR)
    level = logging.getLevelNamesMapping().get(os.environ.get("COORD_LOG_LEVEL", "info").upper())
    is_terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if is_terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.INFO if level is None else level
        ),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Lines())),
    )


class _Lines:
    """The stream of the log. A line that it does not take is lost, and nothing else.

    The disk of the log may be full, and whoever reads a pipe may have ended: no batch fails of
    that, nor the thread that has just found out why something else has failed.
    """

    def __init__(self) -> None:
        # Not sys.stderr: lines that are left in its buffer make the exit code 120.
        self._stream = open(  # noqa: SIM115  # as long as the process
            _STDERR, "w", encoding="utf-8", errors="backslashreplace", closefd=False
        )

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


#: Epoch seconds at which the launcher began; set by `coord submit`.
LAUNCHED_VARIABLE: Final = "COORD_LAUNCHED_AT"

#: A file for which the job waits before it asks for the broker, which is started beside it.
BEGIN_VARIABLE: Final = "COORD_BEGIN_FILE"
_BEGIN_TIMEOUT_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.05


def wait_to_begin(stop: threading.Event) -> None:
    """Wait until whoever launched the job says that the broker is there.

    Returns at once where nothing is to be waited for, and when the job is told to stop.

    Raises:
        NotReady: two minutes have passed.
    """
    named = os.environ.get(BEGIN_VARIABLE)
    deadline_s = time.monotonic() + _BEGIN_TIMEOUT_S
    while named and not Path(named).exists() and not stop.wait(_LOOK_EVERY_S):
        if time.monotonic() > deadline_s:
            raise NotReady("The broker was not ready in time.", named, "Start the job again.")


class StartTimes:
    """Seconds by phase, in the order in which they ended. Not thread-safe: one thread starts."""

    def __init__(self) -> None:
        #: Phase -> seconds.
        self.phases: dict[str, float] = {}
        self._since_s = _launched_s()

    def reach(self, phase: str) -> None:
        """A phase has ended, and the next one begins."""
        now_s = time.time()
        self.phases[phase] = round(max(0.0, now_s - self._since_s), 2)
        self._since_s = now_s


def _launched_s() -> float:
    try:
        return float(os.environ[LAUNCHED_VARIABLE])
    except (KeyError, ValueError):  # submitted by another program
        return time.time()


PID_VARIABLE: Final = "COORD_DRIVER_PID_FILE"
LOOK_EVERY_S: Final = 0.5


class StopAsked(Exception):
    """The job is to stop, and its query has not begun."""


def write_pid() -> None:
    """Tell whoever started us which process to signal: the driver, and not the JVM around it.

    The file is named by COORD_DRIVER_PID_FILE; without it nothing is written. It appears complete
    or not at all.
    """
    named = os.environ.get(PID_VARIABLE)
    if named:
        new = Path(f"{named}.{os.getpid()}")
        new.write_text(f"{os.getpid()}\n")
        new.replace(named)


def stop_flag_on_signals() -> threading.Event:
    """A flag that SIGTERM and SIGINT set. To be called from the main thread."""
    flag = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: flag.set())
    return flag


def run_until_stopped(
    queries: Sequence["StreamingQuery"],
    stop_flag: threading.Event,
    check: Callable[[], None] = lambda: None,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Wait until the flag is set, then stop every query between two batches.

    `check` is called all along; what it raises ends the job too. `stopping` is called before the
    batch that runs is waited for: who stops the job may not wait so long.

    Raises:
        StreamingQueryException: a query failed; the others are stopped first.
    """
    try:
        is_stopped = False
        while not (is_stopped or stop_flag.is_set()):
            check()
            is_stopped = any(  # from elsewhere
                # Its stub wants whole seconds; fractions are documented.
                query.awaitTermination(LOOK_EVERY_S / len(queries))  # type: ignore[arg-type]
                for query in queries
            )
        stopping()
    finally:
        for query in queries:
            stop_between_batches(query)

"""The driver's own log lines: readable on a terminal, one JSON object each anywhere else."""

import faulthandler
import logging
import os
import sys
from contextlib import suppress
from typing import Final, TextIO, cast

import structlog

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

"""The driver's own log lines: readable on a terminal, one JSON object each anywhere else."""

import faulthandler
import logging
import os
import sys
from typing import Final

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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )

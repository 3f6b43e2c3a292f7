"""How a job that drives streaming queries ends: on a signal, between two batches, cleanly.

`stop()` while foreachBatch runs ends in a StackOverflowError inside Spark, and with a batch that
is half done. So the signal only sets a flag; the loop sees it, waits until no trigger is active,
and stops then.
"""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coordlib.spark_stopping import stop_between_batches

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

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

"""What a start was spent on, for `coord up` and the job's log."""

import os
import threading
import time
from pathlib import Path
from typing import Final

from coordlib.errors import NotReady

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

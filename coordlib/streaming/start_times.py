"""What a start was spent on, for `coord up` and the job's log."""

import os
import time
from typing import Final

#: Epoch seconds at which the launcher began; set by `coord submit`.
LAUNCHED_VARIABLE: Final = "COORD_LAUNCHED_AT"


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

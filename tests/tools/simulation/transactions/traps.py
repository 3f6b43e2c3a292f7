"""Points at which a process may die, or be stopped: faults set traps, processes come to them."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.tools.simulation.scheduler import Gone, Process


class Traps:
    """All traps of one world."""

    def __init__(self) -> None:
        #: What happens to the process that comes to a point next, by the name of the point.
        self.at: dict[str, Callable[[Any], None]] = {}
        #: How often something was struck at each point.
        self.sprung: Counter[str] = Counter()

    def spring(self, process: Process, point: str) -> bool:
        """A process is there; whether something has happened to it."""
        trap = self.at.pop(point, None)
        if trap is not None:
            self.sprung[point] += 1
            trap(process)
        return trap is not None


class Struck(Process):
    """A process that traps may crash."""

    traps: Traps

    def maybe_crash(self, point: str) -> None:
        """It comes to a point, in its user's thread. Raises Gone: it dies there."""
        self.require_alive()
        if self.traps.spring(self, point):
            self.wait(1, lambda: False)  # for ever, or as long as it is stopped

    def require_alive(self) -> None:
        """Raises Gone: what it does while its thread ends, a dead process would not do."""
        if not self.is_alive:
            raise Gone

"""What every simulated world has: a scheduler, its history, and faults that last for a while."""

from collections.abc import Callable

from coordlib.demo.history import Happened
from tests.tools.simulation.scheduler import Scheduler


class Stage:
    """The base of worlds."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.history: list[Happened] = []
        self._lasting: list[Callable[[], None]] = []

    def note(self, what: str, member: str = "", detail: str = "") -> None:
        self.history.append(Happened(self.scheduler.now_ms, what, member=member, detail=detail))

    def lasting(self, kind: str, for_ms: int, heal: Callable[[], None]) -> None:
        """A fault lasts until its time is over, or until peace is made."""
        is_over: list[bool] = []

        def end() -> None:
            if not is_over:
                is_over.append(True)
                heal()
                self.note("healed", kind)

        self._lasting.append(end)
        self.scheduler.after(for_ms, end)

    def end_faults(self) -> None:
        """Peace is made: no fault lasts longer."""
        for end in self._lasting:
            end()

    def every(self, interval_ms: int, action: Callable[[], bool]) -> None:
        """Do it again and again, until it says False."""

        def again() -> None:
            if action():
                self.scheduler.after(interval_ms, again)

        self.scheduler.after(interval_ms, again)

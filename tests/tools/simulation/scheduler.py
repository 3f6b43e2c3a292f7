"""Virtual time: one queue of things to come, processes that may be stopped, clocks that err.

One thread, one priority queue, one seed. True time is a whole number of milliseconds that nobody in
the simulated world can read; every process has a clock of its own.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

Action = Callable[[], object]
#: By how much clocks of processes run fast or slow, at most.
RATE_ERROR = 0.002


def _nothing() -> None:
    pass


class Gone(BaseException):
    """The process was killed while its thread waited: nothing of what it does may go on."""


class Scheduler:
    """What happens when. Things that fall on one millisecond come in an order drawn by luck."""

    def __init__(self, luck: Random) -> None:
        self._luck = luck
        self._queue: list[tuple[int, float, int, Action]] = []
        self._count = 0
        #: True time.
        self.now_ms = 0
        #: Things that have happened.
        self.events = 0
        self._until_ms = 0
        self._each: Action = _nothing
        #: Whether some thread waits for something: one at a time, since it waits inside `run`.
        self.is_waited = False

    def after(self, delay_ms: float, action: Action) -> None:
        """Let something happen; fractions of a millisecond are cut off."""
        self._count += 1
        when_ms = self.now_ms + max(0, int(delay_ms))
        heappush(self._queue, (when_ms, self._luck.random(), self._count, action))

    def run(self, until_ms: int, each: Action) -> None:
        """Let time go on; `each` is called after everything that happens."""
        self._until_ms, self._each = until_ms, each
        while self._queue and self._queue[0][0] <= until_ms:
            self._next()
        self.now_ms = until_ms

    def wait(self, is_over: Callable[[], bool]) -> None:
        """Inside of something that happens, let everything else go on until `is_over`.

        At the latest until the end of `run`: nobody waits longer than the world is looked at.
        """
        self.is_waited = True
        try:
            while not is_over() and self._queue and self._queue[0][0] <= self._until_ms:
                self._next()
        finally:
            self.is_waited = False

    def _next(self) -> None:
        self.now_ms, _, _, action = heappop(self._queue)
        self.events += 1
        action()
        self._each()


class Clock:
    """A process's own clock: it began somewhere, runs a little fast or slow, and may jump."""

    def __init__(self, scheduler: Scheduler, rate: float = 1.0, offset_ms: int = 0) -> None:
        self._scheduler, self.rate = scheduler, rate
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        return self.offset_ms + int(self._scheduler.now_ms * self.rate)

    def jump(self, by_ms: int) -> None:
        self.offset_ms += by_ms


def rate_of(luck: Random) -> float:
    """How fast a process's own clock runs."""
    return 1 + luck.uniform(-RATE_ERROR, RATE_ERROR)


class Process:
    """Something that may be stopped for a while (SIGSTOP) or for good (SIGKILL).

    What arrives while it is stopped waits, in order, as in a socket's buffer; its timers are late.
    """

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.is_alive = True
        self.is_stopped = False
        self._waiting: list[Action] = []
        #: Whether its user's thread waits for something.
        self.is_blocked = False

    def wait(self, for_ms: float, is_over: Callable[[], bool]) -> bool:
        """Its user's thread waits, and everything else goes on; whether it is over.

        Not at all while some other thread waits. Raises Gone.
        """
        if is_over() or self.scheduler.is_waited:
            return is_over()
        until_ms = self.scheduler.now_ms + for_ms

        def goes_on() -> bool:
            is_due = self.scheduler.now_ms >= until_ms or is_over()
            return not self.is_alive or (is_due and not self.is_stopped)

        self.is_blocked = True
        try:
            self.scheduler.wait(goes_on)
        finally:
            self.is_blocked = False
        if not self.is_alive:
            raise Gone
        return is_over()

    def after(self, delay_ms: float, action: Action) -> None:
        """Let something happen in this process."""
        self.scheduler.after(delay_ms, lambda: self.arrive(action))

    def arrive(self, action: Action) -> None:
        """Do it now; later, if the process is stopped; never, if it is dead."""
        if not self.is_alive:
            return
        if self.is_stopped:
            self._waiting.append(action)
        else:
            action()

    def stop(self) -> None:
        self.is_stopped = True

    def resume(self) -> None:
        self.is_stopped = False
        while self._waiting and not self.is_stopped and self.is_alive:
            self._waiting.pop(0)()

    def kill(self) -> None:
        self.is_alive = False
        self._waiting.clear()


class Channel:
    """A connection in one direction: what is sent later does not arrive earlier."""

    def __init__(self, scheduler: Scheduler, latency_ms: Callable[[], float]) -> None:
        self._scheduler, self._latency_ms = scheduler, latency_ms
        self._newest_ms = 0
        self._sent: list[Action] = []

    def send(self, action: Action) -> None:
        """Let it happen at the other end, after everything that was sent before."""
        arrives_ms = self._scheduler.now_ms + self._latency_ms()
        self._newest_ms = max(self._newest_ms, int(arrives_ms))
        self._sent.append(action)
        # Ties are drawn by luck: the queue, not the scheduler, keeps the order.
        self._scheduler.after(self._newest_ms - self._scheduler.now_ms, self._deliver)

    def _deliver(self) -> None:
        self._sent.pop(0)()

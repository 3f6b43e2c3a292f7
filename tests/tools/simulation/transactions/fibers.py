"""Users' code that blocks, on virtual time: a thread that runs only while the scheduler waits.

`exactly_once` and the calls of a producer wait inside of each other, so a copier cannot be cut into
events as the user of a consumer is. One thread runs at any moment, and the seed says which.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from unittest.mock import patch

from coordlib.client.groups import consumer, member
from coordlib.client.transactions import by_coordinator, by_kafka, committed_reader
from coordlib.client.transactions.by_kafka import OffsetsQuestion
from coordlib.client.transactions.data_cluster import DataCluster
from tests.tools.simulation.scheduler import Gone, Process, Scheduler

#: How often one that waits for something looks whether it is there.
SLICE_MS = 200
#: Of real time: a user's code that runs so long without waiting waits for what cannot come, and
#: virtual time stands still meanwhile.
STUCK_S = 60.0
#: How often one looks that waits for the answer of its group.
LOOK_S = 0.05


class Fiber:
    """The thread of one process's user. Daemon: a world that ends badly must not hang."""

    def __init__(self, process: Process, work: Callable[[], None]) -> None:
        self._process, self._work = process, work
        self._mine, self._theirs = threading.Lock(), threading.Lock()
        self._mine.acquire()
        self._theirs.acquire()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=process.name, daemon=True)
        self.is_over = False
        #: Whether it is what runs now.
        self.is_running = False

    def resume(self) -> None:
        """In the scheduler's thread: let it run until it waits. Raises what its user's code has.

        Raises AssertionError: it runs, and never waits.
        """
        if self.is_over:
            return
        if self._thread.ident is None:
            self._thread.start()
        self.is_running = True
        self._mine.release()
        if not self._theirs.acquire(timeout=STUCK_S):
            raise AssertionError(f"{self._thread.name} has run for {STUCK_S:.0f} s and not waited")
        self.is_running = False
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def sleep(self, for_ms: float) -> None:
        """In its own thread: let everything else go on. Raises Gone: its process is dead."""
        if self._process.is_alive:
            self._process.after(for_ms, self.resume)
            self._theirs.release()
            self._mine.acquire()
        if not self._process.is_alive:
            raise Gone

    def _run(self) -> None:
        self._mine.acquire()
        try:
            if self._process.is_alive:
                self._work()
        except Gone:
            pass
        except BaseException as problem:  # noqa: BLE001  # raised where the world goes on
            if self._process.is_alive:  # else it is what a killed process would not have done
                self._problem = problem
        self.is_over = True
        self._theirs.release()


class Blocking(Process):
    """A process whose user's code has a thread: it waits in there."""

    fiber: Fiber

    @property
    def is_done(self) -> bool:
        """Whether its user has ended it, or it is dead."""
        return self.fiber.is_over or not self.is_alive

    def wait(self, for_ms: float, is_over: Callable[[], bool]) -> bool:
        """Its user's thread waits, and everything else goes on. Raises Gone."""
        until_ms = self.scheduler.now_ms + for_ms
        while not is_over() and (left_ms := until_ms - self.scheduler.now_ms) > 0:
            # At least one: a fraction of a millisecond would never be over.
            self.fiber.sleep(max(1, min(SLICE_MS, left_ms)))
        return is_over()

    def kill(self) -> None:
        """At whatever it is; nothing of it goes on."""
        if not self.is_alive:
            return
        super().kill()
        self._gone()
        if not self.fiber.is_running:
            self.fiber.resume()  # its thread ends

    def _gone(self) -> None:
        """It is dead."""


class WorldTime:
    """As much of the module `time` as clients use that wait."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic(self) -> float:
        return self._scheduler.now_ms / 1_000


@contextmanager
def on_world_time(scheduler: Scheduler) -> Iterator[None]:
    """While it lasts, all that copiers call asks the world for the time."""
    time = WorldTime(scheduler)
    with ExitStack() as patches:
        # By its path: the package has a function of the same name.
        units = import_module("coordlib.client.units")
        for module in (by_coordinator, by_kafka, units, member):
            patches.enter_context(patch.object(module, "time", time))
        for module in (committed_reader, consumer):
            patches.enter_context(patch.object(module, "monotonic", time.monotonic))
            patches.enter_context(patch.object(module, "SLICE_S", SLICE_MS / 1_000))
        # An admin client says it, and there is none.
        patches.enter_context(patch.object(DataCluster, "cleanup_policy", lambda *_: "delete"))
        patches.enter_context(patch.object(by_coordinator, "_POLL_S", LOOK_S))
        patches.enter_context(patch.object(by_kafka, "_POLL_S", LOOK_S))
        asking = partial(OffsetsQuestion, now_s=time.monotonic)
        patches.enter_context(patch.object(by_kafka, "OffsetsQuestion", asking))
        yield

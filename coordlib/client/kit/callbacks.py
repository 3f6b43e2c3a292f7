"""The user's callbacks: run in the user's own thread, and ended once, whatever interrupts it.

What a client does itself around a callback is done whole. The callback is not: one that was
interrupted counts as one that raised, and the next call of the client finds it and ends it.

INV-141.
"""

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, Generic, TypeVar

from coordlib.client.kit.uninterrupted import uninterrupted
from coordlib.errors import CoordError

#: A function of the user, and its arguments.
UserCall = tuple[Callable[..., None] | None, tuple[Any, ...]]
CallT = TypeVar("CallT")
ResultT = TypeVar("ResultT")


class _Running(Generic[CallT]):
    """A callback that is run; by which frame, since a frame that is gone runs nothing."""

    def __init__(self, call: CallT) -> None:
        self.call = call
        self.frame: FrameType | None = None
        self.thread = 0
        self.is_called, self.has_raised = False, True


class Callbacks(Generic[CallT]):
    """Those of one client, one after the other.

    Args:
        users: what is called; None: the user has given nothing.
        ends: what the client does afterwards; with whether it has raised.
        begins: what the client does before.
    """

    def __init__(
        self,
        users: Callable[[CallT], UserCall],
        ends: Callable[[CallT, bool], None],
        begins: Callable[[CallT], None] = lambda _: None,
    ) -> None:
        self._users, self._ends, self._begins = users, ends, begins
        #: Those that have not ended, the one that runs included.
        self.due: deque[CallT] = deque()
        self._running: _Running[CallT] | None = None
        #: Several threads may poll and close. Held for steps of the client, not for the user's.
        self._lock = threading.RLock()

    def run(self) -> bool:
        """Run those that are due by now; whether there was one. Raises what they raise."""
        has_run = False
        for _ in range(len(self.due)):
            running = self._begin(sys._getframe(), threading.get_ident())
            if running is None:
                break
            has_run = True
            if running.is_called:
                self._end(running)
                continue
            function, given = self._users(running.call)
            try:
                # In one line: marked before it begins, an interrupted one would never be called.
                running.is_called = True; function is None or function(*given)  # noqa: E702  # fmt: skip
                running.has_raised = False
            finally:
                if running.is_called:  # else the next run calls it
                    self._end(running)
        return has_run

    @property
    def is_ready(self) -> bool:
        """Whether one can be run: some are due, and none runs."""
        running = self._running
        return bool(self.due) and (running is None or not _is_on_stack(running))

    @uninterrupted
    def end_this(self, thread: int) -> CallT | None:
        """End the callback that this thread runs, because it closes the client; None: none."""
        with self._lock:
            running = self._running
            if running is None or running.thread != thread or not _is_on_stack(running):
                return None
            self._take_out(running)
            return running.call

    @uninterrupted
    def is_inside(self, thread: int) -> bool:
        """Whether this thread runs one."""
        running = self._running
        return running is not None and running.thread == thread and _is_on_stack(running)

    @uninterrupted
    def _begin(self, frame: FrameType, thread: int) -> _Running[CallT] | None:
        """The one that is to be run, or whose run was interrupted; None: one runs."""
        with self._lock:
            running = self._running
            if running is None:
                if not self.due:
                    return None
                running = _Running(self.due[0])
                self._begins(running.call)
            elif _is_on_stack(running):
                return None
            running.frame, running.thread = frame, thread
            self._running = running
            return running

    @uninterrupted
    def _end(self, running: _Running[CallT]) -> None:
        with self._lock:
            if self._running is running:  # else it has closed the client
                self._take_out(running)
                self._ends(running.call, running.has_raised)

    def _take_out(self, running: _Running[CallT]) -> None:
        self._running = running.frame = None
        if self.due and self.due[0] is running.call:
            self.due.popleft()


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that does not hold its object, which has the callbacks.

    A client that is dropped is gone with its last reference then, and not at some collection of
    cycles.  # INV-143
    """
    used = weakref.WeakMethod(method)

    def call(*given: Any) -> Any:
        found = used()
        assert found is not None, "it runs its callbacks itself"
        return found(*given)

    return call


class OnePoller:
    """Lets one thread at a time poll."""

    def __init__(self) -> None:
        self._poller: tuple[int, FrameType] | None = None

    def begin(self, frame: FrameType, thread: int) -> tuple[int, FrameType] | None:
        """For `end`: the poll that this one is inside of.

        Raises CoordError: another thread is in a poll. One whose frame is gone has ended.
        """
        poller = self._poller
        if poller is not None and poller[0] != thread and _is_running(*poller):
            mend = "Let one thread poll; other threads may commit, seek and pause."
            raise CoordError("Another thread is polling.", "", mend)
        self._poller = (thread, frame)
        return poller

    def end(self, before: tuple[int, FrameType] | None) -> None:
        """Best effort: an interruption may come before it."""
        self._poller = before

    def run(self, poll: Callable[[], ResultT]) -> ResultT:
        """A poll of this thread. Raises CoordError: another thread is in one."""
        before = self.begin(sys._getframe(), threading.get_ident())
        try:
            return poll()
        finally:
            self.end(before)


def _is_on_stack(running: _Running[CallT]) -> bool:
    return running.frame is not None and _is_running(running.thread, running.frame)


def _is_running(thread: int, sought: FrameType) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None and frame is not sought:
        frame = frame.f_back
    return frame is not None

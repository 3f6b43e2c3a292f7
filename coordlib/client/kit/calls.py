"""Calls of clients that no signal handler interrupts, and the callbacks of users that one may.

Ctrl-C, or any signal handler that raises, comes behind any call that the main thread makes, and a
message that the library has just given, or half a step of a state machine, is lost with it. CPython
runs handlers in the main thread alone. So such a call is done by another thread of the process, and
the main thread waits. If the wait is interrupted, the call is still done to its end, and the next
one comes behind it.

Two rules follow. Nothing runs in that thread that may need a lock of the main thread: not the
user's code, nor the handlers of logs, nor the library's callbacks (`error_cb`, `stats_cb`). What
comes there is kept, and the main thread does it after the call. Only `oauth_cb`, whose result the
library waits for, runs in whatever thread asks. And the main thread never holds a lock of a client,
so a handler may call whatever it likes.

What a call has returned may be lost on its way to the program. So it is noted as handed out in the
line that returns it, without a call: CPython runs handlers at calls and jumps only.  # INV-141

The user's callbacks run in the user's own thread. What a client does itself around a callback is
done whole. The callback is not: one that was interrupted counts as one that raised, and the next
call of the client finds it and ends it.
"""

import logging
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import wraps
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final, Generic, ParamSpec, TypeVar

from coordlib.errors import CoordError

Params = ParamSpec("Params")
Result = TypeVar("Result")
#: Those of the library's callbacks that return nothing.
_TELLING: Final = frozenset({"error_cb", "stats_cb", "throttle_cb"})


class _Call:
    """A call that the main thread waits for."""

    __slots__ = ("_work", "done", "problem", "result")

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.result: Any = None
        self.problem: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()

    def run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as problem:  # noqa: BLE001  # raised by the thread that waits
            self.problem = problem
        self.done.release()


class _Doing:
    """The thread that does them, one after the other."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[_Call] = SimpleQueue()
        #: For the main thread to do after the call, or after the next one if it is interrupted.
        self.later: deque[Callable[[], Any]] = deque()
        #: Held by the one thread that serves; others that were started meanwhile end at once.
        self._serving = threading.Lock()
        self.thread = 0

    def ensure_served(self) -> None:
        if not self._serving.locked():
            threading.Thread(target=self._serve, name="coord-calls", daemon=True).start()

    def _serve(self) -> None:
        if self._serving.acquire(blocking=False):
            self.thread = threading.get_ident()
            while True:
                self.calls.get().run()


_doing = _Doing()


def _begin_anew() -> None:
    global _doing  # the thread is not in the child
    _doing = _Doing()


os.register_at_fork(after_in_child=_begin_anew)


def may_call_user() -> bool:
    """Whether this is a thread in which the user's code may run."""
    return threading.get_ident() != _doing.thread


def for_user(work: Callable[[], Any]) -> None:
    """Do it where the user's code may run: now, or after the call that is done."""
    if may_call_user():
        work()
    else:
        _doing.later.append(work)


class _Log(logging.Logger):
    """A logger that takes no lock in the thread of the calls: the main thread may hold it."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802  # logging's name
        return not may_call_user() or super().isEnabledFor(level)

    def handle(self, record: logging.LogRecord) -> None:
        for_user(lambda: self._handle_if_enabled(record))

    def _handle_if_enabled(self, record: logging.LogRecord) -> None:
        if super().isEnabledFor(record.levelno):
            super().handle(record)


logging.getLogger("coordlib.client").__class__ = _Log


def in_users_thread(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a client of the library that is polled in uninterrupted calls."""

    def kept(callback: Callable[[Any], Any]) -> Callable[[Any], None]:
        return lambda value: for_user(lambda: callback(value))

    return {
        key: kept(value) if key in _TELLING and callable(value) else value
        for key, value in options.items()
    }


def uninterrupted(method: Callable[Params, Result]) -> Callable[Params, Result]:
    """Decorates a method that is done whole, whatever interrupts the main thread."""

    @wraps(method)
    def whole(*args: Params.args, **named: Params.kwargs) -> Result:
        if threading.get_ident() != threading.main_thread().ident or sys.is_finalizing():
            return method(*args, **named)
        doing = _doing
        doing.ensure_served()
        call = _Call(lambda: method(*args, **named))
        doing.calls.put(call)
        call.done.acquire()
        while doing.later:
            doing.later.popleft()()
        if call.problem is not None:
            try:
                raise call.problem
            finally:
                del call  # its traceback has this frame
        result: Result = call.result
        return result

    return whole


#: A function of the user, and its arguments.
UserCall = tuple[Callable[..., Any] | None, tuple[Any, ...]]
CallT = TypeVar("CallT")
ResultT = TypeVar("ResultT")


def _nothing(*_given: Any) -> None:
    """For a user that has given no callback."""


class Unfinished(Future[None]):
    """What a callback returns that goes on in an event loop. It ends when this does."""


class _Running(Generic[CallT]):
    """A callback that is run; by which frame, since a frame that is gone runs nothing."""

    def __init__(self, call: CallT) -> None:
        self.call = call
        self.frame: FrameType | None = None
        self.thread = 0
        self.is_called, self.has_raised = False, True
        self.returned: Any = None

    @property
    def is_unfinished(self) -> bool:
        return isinstance(self.returned, Unfinished) and not self.returned.done()

    def is_going(self) -> bool:
        """Whether it runs: in its frame, or in an event loop."""
        is_on_stack = self.frame is not None and _is_running(self.thread, self.frame)
        return is_on_stack or self.is_unfinished

    def raise_problem(self) -> None:
        """Raises what it has raised since it returned."""
        if isinstance(self.returned, Unfinished):
            self.returned.result()


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
                running.raise_problem()
                continue
            function, given = self._users(running.call)
            function = _nothing if function is None else function
            try:
                # In one line: marked before it begins, an interrupted one would never be called.
                running.is_called = True; running.returned = function(*given)  # noqa: E702  # fmt: skip
                running.has_raised = False
            finally:
                if running.is_called and not running.is_unfinished:  # else the next run goes on
                    self._end(running)
        return has_run

    @property
    def is_ready(self) -> bool:
        """Whether one can be run: some are due, and none runs."""
        running = self._running
        return bool(self.due) and (running is None or not running.is_going())

    @property
    def unfinished(self) -> Unfinished | None:
        """Of the callback that goes on in an event loop; None: none does."""
        running = self._running
        return running.returned if running is not None and running.is_unfinished else None

    @uninterrupted
    def end_this(self, thread: int) -> CallT | None:
        """End the callback that this thread runs, because it closes the client; None: none."""
        with self._lock:
            running = self._running
            if running is None or running.thread != thread or not running.is_going():
                return None
            self._take_out(running)
            return running.call

    @uninterrupted
    def is_inside(self, thread: int) -> bool:
        """Whether this thread runs one."""
        running = self._running
        return running is not None and running.thread == thread and running.is_going()

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
            elif running.is_going():
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
            hint = "Let one thread poll; other threads may commit, seek and pause."
            raise CoordError("Another thread is polling.", "", hint)
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


def _is_running(thread: int, sought: FrameType) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None and frame is not sought:
        frame = frame.f_back
    return frame is not None

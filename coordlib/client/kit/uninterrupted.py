"""Calls that are never done by half: no signal handler runs in the middle of them.

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
"""

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import wraps
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

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
        return lambda told: for_user(lambda: callback(told))

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

"""Plays a signal handler that raises, at every line of our own code and behind every call into C.

A handler runs in the main thread alone, and so does the trace function that plays it. What a fake
of the library returns to that thread is destroyed with it, as confluent-kafka destroys a message.
A course that waits for ever, as for a lock that the interrupted call has kept, fails.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

OURS = "/coordlib/client/"
#: Methods of fakes that stand for calls into C.
OF_THE_LIBRARY = frozenset({"poll", "consume", "seek", "produce", "flush"})
#: What fakes do that stands for other threads and processes, where no handler runs.
ELSEWHERE = frozenset({"pump", "advance"})
PLACES_MAX = 20_000
#: What is waited for takes some milliseconds.
HANGS_S = 60


class Interrupted(BaseException):
    """As KeyboardInterrupt."""


class _Signal:
    """Raises at one place, the n-th that is come by."""

    def __init__(self, number: int, fakes: tuple[type, ...]) -> None:
        self._left = number
        self._fakes = fakes
        self.where = ""
        self._elsewhere: Any = None

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
        if self._elsewhere is not None:
            if frame is self._elsewhere and event == "return":
                self._elsewhere = None
            return None
        if code.co_name in ELSEWHERE and "/coordlib/testing/" in code.co_filename:
            self._elsewhere = frame
            return self.trace
        is_ours = OURS in code.co_filename
        is_fake = code.co_name in OF_THE_LIBRARY and isinstance(
            frame.f_locals.get("self"), self._fakes
        )
        if (is_ours and event == "line") or (is_fake and event == "return"):
            self._left -= 1
            if self._left == 0:
                sys.settrace(None)
                self.where = f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
                raise Interrupted(self.where)
        return self.trace if is_ours or is_fake else None


@contextmanager
def _must_end() -> Iterator[None]:
    def fail(*_: Any) -> None:
        raise AssertionError("the course hangs")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(HANGS_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def interrupt_everywhere(
    course: Callable[[Callable[[Callable[[], Any]], Any]], None],
    *fakes: type,
    least: int,
    step: int = 1,
) -> None:
    """Runs a course again and again, each time interrupted at the next place.

    Args:
        course: makes everything anew, lets what it is given make the call that is interrupted (it
            returns None then), goes on and compares.
        least: so many places there are at least.
        step: every so many-th place is tried.
    """
    for number in count(1, step):
        assert number < PLACES_MAX
        played, was = _Signal(number, fakes), [False]

        def interrupted(call: Callable[[], Any], played: _Signal = played, was: Any = was) -> Any:
            before = sys.gettrace()
            sys.settrace(played.trace)
            try:
                return call()
            except Interrupted:
                was[0] = True
                return None
            finally:
                sys.settrace(before)

        try:
            with _must_end():
                course(interrupted)
        except AssertionError as problem:
            problem.add_note(f"interrupted at {played.where or 'no place'}")
            raise
        if not was[0]:
            assert number > least, f"only {number - 1} places"
            return

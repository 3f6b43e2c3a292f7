"""Plays a signal handler that raises, at every line of our own code and behind every call into C.

A handler runs in the main thread alone, and so does the trace function that plays it. What a fake
of the library returns to that thread is destroyed with it, as confluent-kafka destroys a message.
"""

import sys
from collections.abc import Callable
from itertools import count
from typing import Any

OURS = "/coordlib/client/"
#: Methods of fakes that stand for calls into C.
OF_THE_LIBRARY = frozenset({"poll", "consume", "seek", "produce", "flush"})
PLACES_MAX = 2_000


class Interrupted(BaseException):
    """As KeyboardInterrupt."""


class _Signal:
    """Raises at one place, the n-th that is come by."""

    def __init__(self, number: int, fakes: tuple[type, ...]) -> None:
        self._left = number
        self._fakes = fakes
        self.where = ""

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
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
        signal, was = _Signal(number, fakes), [False]

        def interrupted(call: Callable[[], Any], signal: _Signal = signal, was: Any = was) -> Any:
            before = sys.gettrace()
            sys.settrace(signal.trace)
            try:
                return call()
            except Interrupted:
                was[0] = True
                return None
            finally:
                sys.settrace(before)

        try:
            course(interrupted)
        except AssertionError as problem:
            problem.add_note(f"interrupted at {signal.where or 'no place'}")
            raise
        if not was[0]:
            assert number > least, f"only {number - 1} places"
            return

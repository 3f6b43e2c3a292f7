"""What a long command shows of its phases, and how signals end it."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]


def to_stderr(line: str) -> None:
    """The usual progress: a line on stderr, since stdout is for results."""
    print(line, file=sys.stderr, flush=True)


def silent(_line: str) -> None:
    """No progress at all."""


@contextmanager
def phase(progress: Progress, what: str) -> Iterator[None]:
    """Report a phase: `what ...` now, and `what: done in 4.1 s` if it ends well."""
    progress(f"{what} ...")
    began = time.monotonic()
    yield
    progress(f"{what}: done in {time.monotonic() - began:.1f} s")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and a closed terminal raise SystemExit, 128 + their number, meanwhile.

    Elsewhere than in the main thread nothing is changed.
    """

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Commands that must tidy up are ended by signals as by Ctrl-C: by an exception."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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

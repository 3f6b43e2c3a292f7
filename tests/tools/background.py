"""A job in the background: it judges what a fake log was given, while a test waits for answers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from coordlib.testing.fake_log import FakeLog


@contextmanager
def judged(log: FakeLog) -> Iterator[FakeLog]:
    """Judge every 10 ms, in a thread that ends with the block."""
    is_over = threading.Event()

    def judge() -> None:
        while not is_over.wait(0.01):
            log.pump()

    thread = threading.Thread(target=judge)
    thread.start()
    try:
        yield log
    finally:
        is_over.set()
        thread.join()

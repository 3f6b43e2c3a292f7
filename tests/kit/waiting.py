"""Waiting for something that others bring about: threads, processes, a broker."""

import time
from collections.abc import Callable

#: Between two looks.
LOOK_EVERY_S = 0.05


def wait_until(what: str, is_so: Callable[[], object], patience_s: float = 120.0) -> None:
    """Wait until it is so. The patience is longer than any wait should be: who reaches it fails."""
    deadline = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {patience_s:.0f} s"
        time.sleep(LOOK_EVERY_S)

"""Work that one process does, while others of the same machine wait for it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def one_at_a_time(lock_file: Path) -> Iterator[None]:
    """Hold a lock, whose folder is made if there is none. It ends with its process."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""Show progress: one line when a phase starts, one with its time when it is done."""

import sys
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

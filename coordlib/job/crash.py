"""Crashes on demand, for tests: a process ends as by SIGKILL, without any chance to tidy up.

    COORD_FAULT=before-commit:7         dies in batch 7, or in the first one after it that comes by
    COORD_FAULT=before-commit:7:stop    is suspended there (SIGSTOP) until somebody continues it
    COORD_FAULT=before-commit:7@claims  in a batch of that pipeline; without one: of the groups

The places, in the order of a micro-batch. Before the first and after the last of them only Spark's
own code runs: who wants a crash there kills the job from outside when no batch runs.

    batch-begins    planned in Spark's offset log, no task has run
    in-task         inside the state function, in a Python worker: kills the task, and so the query
    task-ends       the same at its end: its state is not committed, another task's may be
    batch-judged    all tasks have committed their state, nothing is written
    in-transaction  outputs are given to the producer, not yet all of them to the broker
    before-commit   all outputs stand in the log, in an open transaction
    after-commit    the transaction is committed, the driver does not know it yet
    batch-ends      all is done but for Spark's commit log
    decided         in the thread of decisions, behind one that was written
    fed             in the thread of the feeder, behind a message that was written to a shard
    tick            in the thread of the ticks, behind one that was written, whatever else goes on
"""

import os
import signal
import sys
import threading
from typing import Final, Self

VARIABLE: Final = "COORD_FAULT"
_PLANES: Final = ("groups", "claims")
PLACES: Final = (
    "batch-begins",
    "in-task",
    "task-ends",
    "batch-judged",
    "in-transaction",
    "before-commit",
    "after-commit",
    "batch-ends",
    "decided",
    "fed",
    "tick",
)
#: Of these, where the driver ends in a batch of its own thread, whichever pipeline's batch it is.
DRIVER_PLACES: Final = (
    "batch-begins",
    "batch-judged",
    "in-transaction",
    "before-commit",
    "after-commit",
    "batch-ends",
)
#: Where a Python worker ends and the driver does not: the query fails. That ends the groups' job;
#: claims are begun again by their watch. All others are struck beside the batches of the groups.
WORKER_PLACES: Final = ("in-task", "task-ends")


class CrashPoint:
    """Where this process is to end; nowhere, unless the environment sets it."""

    def __init__(self, place: str = "", batch: int = -1, number: int = signal.SIGKILL) -> None:
        self._place, self._batch, self._signal = place, batch, number

    @classmethod
    def from_environment(cls, pipeline: str = _PLANES[0]) -> Self:
        """That of a pipeline, by its label. Raises ValueError: it names no place, or no batch."""
        given = os.environ.get(VARIABLE, "")
        if not given:
            return cls()
        switch, at, named = given.partition("@")
        place, batch, how = [*switch.split(":"), "", ""][:3]
        is_switch = place in PLACES and batch.isdecimal() and how in ("", "stop")
        if not is_switch or (at and named not in _PLANES):
            form = f"PLACE:BATCH[:stop][@PLANE] with {PLACES} and {_PLANES}"
            raise ValueError(f"{VARIABLE}={given} is not {form}")
        if (named or _PLANES[0]) != pipeline:
            return cls()
        return cls(place, int(batch), signal.SIGSTOP if how else signal.SIGKILL)

    def maybe_crash(self, place: str, batch: int) -> None:
        """To be called at the place; does nothing at all others."""
        if place == self._place and 0 <= self._batch <= batch:
            print(f"{VARIABLE}: {place} in batch {batch}", file=sys.stderr, flush=True)
            self._place = ""  # who is continued after a stop goes on
            # To this thread: os.kill may stop the process by way of another one that has yet to
            # wake up, and this one would get far beyond its place meanwhile.
            signal.pthread_kill(threading.get_ident(), self._signal)

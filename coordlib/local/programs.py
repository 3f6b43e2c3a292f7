"""Identify operating-system processes, also after their parent is gone.

A process id is recycled, so it is kept together with the start time. And every process of a stack
has COORD_STACK=<folder> in its environment, which children inherit: so a driver or Python worker
that lost its parents is still found.
"""

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

STACK_VARIABLE = "COORD_STACK"
ROLE_VARIABLE = "COORD_ROLE"  # broker | job

_START_TIME_SLACK_S = 2.0  # the boot time that start times count from moves when the clock is set


@dataclass(frozen=True, slots=True)
class Program:
    """One running or past process: its id, and when it started in epoch seconds."""

    pid: int
    started_s: float

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has this id now, if any."""
        try:
            return cls(pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return None

    @property
    def is_running(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        try:
            found = psutil.Process(self.pid)
            same = abs(found.create_time() - self.started_s) < _START_TIME_SLACK_S
            return same and found.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens if the process is gone."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def environment_of(stack: Path, role: str) -> dict[str, str]:
    """The environment for a program of a stack, marked so that it can be found again.

    A stack may be started in any folder: the Python files there are no modules of its programs.
    """
    marks = {STACK_VARIABLE: str(stack), ROLE_VARIABLE: role}
    return os.environ | marks | {"PYTHONSAFEPATH": "1"}


def belonging_to(stack: Path, role: str | None = None) -> list[Program]:
    """Every running program of a stack, of one role or of any; never the caller itself."""

    def is_ours(environment: dict[str, str]) -> bool:
        same = environment.get(STACK_VARIABLE) == str(stack)
        return same and role in (None, environment.get(ROLE_VARIABLE))

    return [Program(p.pid, p.create_time()) for p in _search(is_ours) if p.pid != os.getpid()]


def _search(is_wanted: Callable[[dict[str, str]], bool]) -> Iterable[psutil.Process]:
    for found in psutil.process_iter():
        try:
            if found.status() != psutil.STATUS_ZOMBIE and is_wanted(found.environ()):
                found.create_time()
                yield found
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # gone, or another user's
            continue


def describe(pid: int) -> str:
    """`pid 123 (java)`, as far as it can be told."""
    try:
        return f"pid {pid} ({psutil.Process(pid).name()})"
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return f"pid {pid}"

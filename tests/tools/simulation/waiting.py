"""Waiting on virtual time: what a member's user waits with, in place of threads and their clock."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from coordlib.client.groups import member as member_module
from tests.tools.simulation.scheduler import Process

if TYPE_CHECKING:
    from concurrent.futures import Future

    from coordlib.client.groups.member import Member
    from coordlib.client.kit import events as sg


class VirtualCondition:
    """As much of a `threading.Condition` as a member uses. There is one thread, so no lock."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass

    def notify_all(self) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        return self.wait_for(lambda: False, timeout)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        for_ms = float("inf") if timeout is None else timeout * 1_000
        return for_ms > 0 and self._process.wait(for_ms, predicate)


class VirtualTime:
    """As much of the module `time` as a member that waits uses."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def monotonic(self) -> float:
        return self._process.scheduler.now_ms / 1_000

    def sleep(self, seconds: float) -> None:
        self._process.wait(seconds * 1_000, lambda: False)


def install(member: "Member[Any]", process: Process) -> None:
    """Let this member wait on virtual time, wherever it waits."""
    wait = type(member)._await

    def wait_virtually(future: "Future[sg.Answer]", timeout_s: float) -> "sg.Answer":
        process.wait(timeout_s * 1_000, future.done)
        return wait(member, future, 0.0)

    member._changed = VirtualCondition(process)  # type: ignore[assignment]  # as much as it uses
    member._await = wait_virtually  # type: ignore[method-assign]


@contextmanager
def on_virtual_time(process: Process) -> Iterator[None]:
    """While something is done that asks for the time while it waits."""
    with patch.object(member_module, "time", VirtualTime(process)):
        yield

"""A client and its process: clock, host name, forks, and the end of a `with` block.

A client stays with the process that has made it. librdkafka's threads are not in a forked child,
and both processes would hand out the same messages. So in the child every call of a client raises
at once, and `close` returns at once: there is nothing to end. A class of its own does that: no call
needs to look, and no lock is taken, which some thread of the parent may have held.  # INV-142
"""

import os
import socket
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import Any, Final, Self

from coordlib import limits
from coordlib.errors import CoordError

# Linux has it; elsewhere the monotonic clock is the nearest thing.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime_ms() -> int:
    """Milliseconds since some fixed moment; no relation to the time of day."""
    return boottime_ns() // 1_000_000


def boottime_ns() -> int:
    """The same in nanoseconds, to put in order what several processes of a machine did."""
    return time.clock_gettime_ns(_CLOCK)


def own_host() -> str | None:
    """The host name in plain characters; None: the machine has none."""
    name = "".join(
        each
        for each in socket.gethostname()
        if each.isascii() and (each.isalnum() or each in "-._")
    )
    return name[: limits.NAME_LENGTH_MAX] or None


_clients: "weakref.WeakSet[Any]" = weakref.WeakSet()
#: Of the parent: kept, since the library would wait for its threads when one is collected.
_kept: list[Any] = []
#: These return False, instead of raising: programs call them before each piece of work.
_NO: Final = frozenset({"may_work", "may_lead"})
_ENDS: Final = frozenset({"close"})


def made_here(client: object) -> None:
    """In a child of this process this client is to refuse whatever it is asked."""
    _clients.add(client)


def _leave_to_parent() -> None:
    for client in list(_clients):
        _kept.append(client)
        client.__class__ = _of_parent(type(client))  # type: ignore[arg-type]  # it is hashable


@cache
def _of_parent(kind: Any) -> type:
    found: dict[str, Any] = {}
    for name in dir(kind):
        was = getattr(kind, name)
        if name in _ENDS:
            found[name] = _answering(None)
        elif name in _NO:
            found[name] = _answering(False)
        elif not name.startswith("_") and isinstance(was, property):
            found[name] = property(_refuse)
        elif not name.startswith("_") and callable(was):
            found[name] = _refuse
    return type(kind.__name__, (kind,), found)


def _answering(answer: Any) -> Callable[..., Any]:
    return lambda *_args, **_named: answer


def _refuse(client: Any, *_args: Any, **_named: Any) -> Any:
    raise CoordError(
        f"This {type(client).__name__} was made in another process.",
        f"this is process {os.getpid()}, a child of it",
        "Make one here: no client of Kafka survives a fork.",
    )


os.register_at_fork(after_in_child=_leave_to_parent)


class Closing(ABC):
    """A client that is closed when its `with` block ends, however that ends."""

    def __new__(cls, *_args: Any, **_named: Any) -> Self:
        made = super().__new__(cls)
        made_here(made)
        return made

    @abstractmethod
    def close(self) -> None:
        """End, and give back what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

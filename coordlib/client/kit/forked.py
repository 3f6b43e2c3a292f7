"""Clients in a process that was forked: they stay with the process that has made them.

librdkafka's threads are not in the child, and both processes would hand out the same messages. So
in the child every call of a client raises at once, and `close` returns at once: there is nothing
to end. A class of its own does that: no call needs to look, and no lock is taken, which some thread
of the parent may have held.  # INV-142
"""

import os
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from coordlib.errors import CoordError

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

"""Futures of open questions, until the answer comes or whoever was asked ends.

A future that is completed calls what its holder has given it, code of the user, which may take the
user's locks. A thread that holds those may be waiting for the client. So answers are noted under
the client's lock, and told outside it.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from threading import get_ident
from typing import Generic, TypeVar

from coordlib.client.kit.uninterrupted import may_call_user

Result = TypeVar("Result")
Given = TypeVar("Given")


@dataclass(slots=True, eq=False)
class _Answered(Generic[Result, Given]):
    future: "Future[Result]"
    answer: Given
    #: The thread that completes it.
    teller: int | None = None


class OpenFutures(Generic[Result, Given]):
    """Open futures by ticket. Callers have them, so any of them may be cancelled already.

    Args:
        complete: ends a future with what was answered.
    """

    def __init__(self, complete: Callable[["Future[Result]", Given], None]) -> None:
        self._complete = complete
        self._tickets = count(1)
        self._open: dict[int, Future[Result]] = {}
        #: Those whose answer is here, and is to be told.
        self._answered: deque[_Answered[Result, Given]] = deque()

    @property
    def tickets(self) -> list[int]:
        """Of the questions without an answer."""
        return list(self._open)

    def expect(self) -> "tuple[int, Future[Result]]":
        """A ticket for a new question, and the future of its answer."""
        ticket = next(self._tickets)
        future = self._open[ticket] = Future()
        return ticket, future

    def settle(self, ticket: int, answer: Given) -> None:
        """Note the answer of a future; one without an open future is dropped."""
        future = self._open.pop(ticket, None)
        if future is not None:
            self._answered.append(_Answered(future, answer))

    def tell(self) -> None:
        """Complete those whose answer is here, unless that is for another thread to do.

        To be called without the client's lock.

        One stays here until it is complete: a thread that was interrupted goes on with it.
        """
        me = get_ident()
        if not may_call_user():
            return
        for each in list(self._answered):
            if each.teller not in (None, me):
                continue
            each.teller, future = me, each.future
            # False: it was cancelled, and its waiters were notified then.
            if future.running() or (not future.done() and future.set_running_or_notify_cancel()):
                self._complete(future, each.answer)
            with suppress(ValueError):  # its own callback may have told the others
                self._answered.remove(each)

"""Futures of open questions, until the answer comes or whoever was asked ends.

A future that is completed calls what its holder has given it, code of the user, which may take the
user's locks. A thread that holds those may be waiting for the client. So answers are noted under
the client's lock, and told outside it.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import Generic, TypeVar

Result = TypeVar("Result")
Given = TypeVar("Given")


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
        self._answered: deque[tuple[Future[Result], Given]] = deque()

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
            self._answered.append((future, answer))

    def tell(self) -> None:
        """Complete those whose answer is here. To be called without the client's lock."""
        while True:
            try:
                future, answer = self._answered.popleft()
            except IndexError:
                return
            # False: it was cancelled, and its waiters were notified then.
            if future.set_running_or_notify_cancel():
                self._complete(future, answer)

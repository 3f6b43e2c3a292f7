"""Futures of changes of in-sync replicas, until the answer comes or the broker ends.

A future that is completed calls what its holder has given it, code of the user, which may take the
user's locks. A thread that holds those may be waiting for the agent. So answers are noted under the
agent's lock, and told outside it.
"""

from collections import deque
from concurrent.futures import Future
from itertools import count

from coordlib.client.brokers.signals import Altered
from coordlib.errors import CannotReach, CoordError
from coordlib.records import responses as rs


class Futures:
    """Open futures by ticket. Callers have them, so any of them may be cancelled already."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._tickets = count(1)
        self._open: dict[int, Future[rs.AlteredRow]] = {}
        #: Those whose answer is here, and is to be told.
        self._answered: deque[tuple[Future[rs.AlteredRow], Altered]] = deque()

    def expect(self) -> "tuple[int, Future[rs.AlteredRow]]":
        """A ticket for a new question, and the future of its answer."""
        ticket = next(self._tickets)
        future = self._open[ticket] = Future()
        return ticket, future

    def settle(self, answer: Altered) -> None:
        """Note the answer of a future; one without an open future is dropped."""
        future = self._open.pop(answer.ticket, None)
        if future is not None:
            self._answered.append((future, answer))

    def abandon(self, broken: CoordError | None) -> None:
        """Fail all open futures: no answer will come any more."""
        closed = CannotReach("Closed before the answer came.", self._where)
        for ticket in list(self._open):
            self.settle(Altered(ticket, error=broken or closed))

    def tell(self) -> None:
        """Complete those whose answer is here. To be called without the agent's lock."""
        while True:
            try:
                future, answer = self._answered.popleft()
            except IndexError:
                return
            # False: it was cancelled, and its waiters were notified then.
            if not future.set_running_or_notify_cancel():
                continue
            if answer.row is not None:
                future.set_result(answer.row)
            else:
                future.set_exception(answer.error or CoordError("There is no answer.", self._where))

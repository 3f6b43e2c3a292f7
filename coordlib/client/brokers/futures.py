"""Futures of changes of in-sync replicas, until the answer comes or the broker ends."""

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

    def expect(self) -> "tuple[int, Future[rs.AlteredRow]]":
        """A ticket for a new question, and the future of its answer."""
        ticket = next(self._tickets)
        future = self._open[ticket] = Future()
        return ticket, future

    def settle(self, answer: Altered) -> None:
        """Complete the future of an answer; an answer without an open future is dropped."""
        future = self._open.pop(answer.ticket, None)
        # False: it was cancelled, and its waiters were notified then.
        if future is None or not future.set_running_or_notify_cancel():
            return
        if answer.row is not None:
            future.set_result(answer.row)
        else:
            future.set_exception(answer.error or CoordError("There is no answer.", self._where))

    def abandon(self, broken: CoordError | None) -> None:
        """Fail all open futures: no answer will come any more."""
        closed = CannotReach("Closed before the answer came.", self._where)
        for ticket in list(self._open):
            self.settle(Altered(ticket, error=broken or closed))

"""Futures of changes of in-sync replicas, until the answer comes or the broker ends."""

from concurrent.futures import Future

from coordlib.client.controller.signals import Altered
from coordlib.client.kit.open_futures import OpenFutures
from coordlib.core.wire import responses as rs
from coordlib.errors import CannotReach, CoordError


class Futures:
    """Open futures by ticket."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._futures: OpenFutures[rs.AlteredRow, Altered] = OpenFutures(self._complete)

    def expect(self) -> "tuple[int, Future[rs.AlteredRow]]":
        """A ticket for a new question, and the future of its answer."""
        return self._futures.expect()

    def settle(self, answer: Altered) -> None:
        """Note the answer of a future; one without an open future is dropped."""
        self._futures.settle(answer.ticket, answer)

    def abandon(self, broken: CoordError | None) -> None:
        """Fail all open futures: no answer will come any more."""
        closed = CannotReach("Closed before the answer came.", self._where)
        for ticket in self._futures.tickets:
            self.settle(Altered(ticket, error=broken or closed))

    def tell(self) -> None:
        """Complete those whose answer is here. To be called without the agent's lock."""
        self._futures.tell()

    def _complete(self, future: "Future[rs.AlteredRow]", answer: Altered) -> None:
        if answer.row is not None:
            future.set_result(answer.row)
        else:
            future.set_exception(answer.error or CoordError("There is no answer.", self._where))

"""Futures of a member's open questions, until the answer comes or the member ends."""

from concurrent.futures import Future

from coordlib.client.machine.signals import Answer
from coordlib.client.shell.open_futures import OpenFutures
from coordlib.errors import CoordError


class Answers:
    """Open futures by ticket, and which of them are of commits."""

    def __init__(self) -> None:
        self._futures: OpenFutures[Answer, Answer] = OpenFutures(Future.set_result)
        self._commits: set[int] = set()

    @property
    def commits_are_open(self) -> bool:
        """Whether a caller waits for the outcome of a commit."""
        return bool(self._commits)

    def expect(self, is_commit: bool) -> "tuple[int, Future[Answer]]":
        """A ticket for a new question, and the future of its answer."""
        ticket, future = self._futures.expect()
        if is_commit:
            self._commits.add(ticket)
        return ticket, future

    def settle(self, answer: Answer) -> None:
        """Note the answer of a future; one without an open future is dropped."""
        self._commits.discard(answer.ticket)
        self._futures.settle(answer.ticket, answer)

    def abandon(self, error: CoordError) -> None:
        """Fail all open futures: no answer will come any more."""
        for ticket in self._futures.tickets:
            self.settle(Answer(ticket, error=error))

    def tell(self) -> None:
        """Complete those whose answer is here. To be called without the member's lock."""
        self._futures.tell()

"""Futures of a member's open questions, until the answer comes or the member ends."""

from concurrent.futures import Future
from itertools import count

from coordlib.client.machine.signals import Answer
from coordlib.errors import CoordError


class Answers:
    """Open futures by ticket. Callers have them, so any of them may be cancelled already."""

    def __init__(self) -> None:
        self._tickets = count(1)
        self._open: dict[int, Future[Answer]] = {}
        self._commits: set[int] = set()

    @property
    def commits_are_open(self) -> bool:
        """Whether a caller waits for the outcome of a commit."""
        return bool(self._commits)

    def expect(self, is_commit: bool) -> "tuple[int, Future[Answer]]":
        """A ticket for a new question, and the future of its answer."""
        ticket = next(self._tickets)
        future = self._open[ticket] = Future()
        if is_commit:
            self._commits.add(ticket)
        return ticket, future

    def settle(self, answer: Answer) -> None:
        """Complete the future of an answer; an answer without an open future is dropped."""
        self._commits.discard(answer.ticket)
        future = self._open.pop(answer.ticket, None)
        # False: it was cancelled, and its waiters were notified then.
        if future is not None and future.set_running_or_notify_cancel():
            future.set_result(answer)

    def abandon(self, error: CoordError) -> None:
        """Fail all open futures: no answer will come any more."""
        for ticket in list(self._open):
            self.settle(Answer(ticket, error=error))

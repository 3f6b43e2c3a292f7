"""Futures of a member's open questions, until the answer comes or the member ends.

A future that is completed calls what its holder has given it, code of the user, which may take the
user's locks. A thread that holds those may be waiting for the member. So answers are noted under
the member's lock, and told outside it.
"""

from collections import deque
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
        #: Those whose answer is here, and is to be told.
        self._answered: deque[tuple[Future[Answer], Answer]] = deque()

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
        """Note the answer of a future; one without an open future is dropped."""
        self._commits.discard(answer.ticket)
        future = self._open.pop(answer.ticket, None)
        if future is not None:
            self._answered.append((future, answer))

    def abandon(self, error: CoordError) -> None:
        """Fail all open futures: no answer will come any more."""
        for ticket in list(self._open):
            self.settle(Answer(ticket, error=error))

    def tell(self) -> None:
        """Complete those whose answer is here. To be called without the member's lock."""
        while True:
            try:
                future, answer = self._answered.popleft()
            except IndexError:
                return
            # False: it was cancelled, and its waiters were notified then.
            if future.set_running_or_notify_cancel():
                future.set_result(answer)

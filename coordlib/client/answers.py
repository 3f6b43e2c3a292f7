"""What the user waits for: a future for each question, until its answer comes or none will."""

from concurrent.futures import Future
from itertools import count

from coordlib.client.machine.signals import Answer
from coordlib.errors import CoordError


class Answers:
    """Open futures by ticket. They are handed out, so anybody may have cancelled one."""

    def __init__(self) -> None:
        self._tickets = count(1)
        self._open: dict[int, Future[Answer]] = {}
        self._commits: set[int] = set()

    @property
    def commits_are_open(self) -> bool:
        """Whether somebody waits to hear what became of a commit."""
        return bool(self._commits)

    def expect(self, is_commit: bool) -> "tuple[int, Future[Answer]]":
        """A ticket to ask under, and the future of its answer."""
        ticket = next(self._tickets)
        future = self._open[ticket] = Future()
        if is_commit:
            self._commits.add(ticket)
        return ticket, future

    def settle(self, answer: Answer) -> None:
        """It has come. One that nobody waits for any more is nobody's."""
        self._commits.discard(answer.ticket)
        future = self._open.pop(answer.ticket, None)
        # False: it was cancelled, and whoever waited for it was told so.
        if future is not None and future.set_running_or_notify_cancel():
            future.set_result(answer)

    def abandon(self, error: CoordError) -> None:
        """None will come any more."""
        for ticket in list(self._open):
            self.settle(Answer(ticket, error=error))

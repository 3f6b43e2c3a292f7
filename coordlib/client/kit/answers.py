"""Futures of a member's open questions, until the answer comes or the member ends."""

from collections.abc import Sequence
from concurrent.futures import Future
from itertools import count

from coordlib.client.kit.open_futures import OpenFutures
from coordlib.client.kit.signals import Answer
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


def of_all(parts: "Sequence[Future[Answer]]") -> "Future[Answer]":
    """One answer for questions that were asked in several requests: all rows, or the first error.

    It is there when all of theirs are, under the first one's ticket.
    """
    if len(parts) == 1:
        return parts[0]
    whole: Future[Answer] = Future()
    left = count(len(parts) - 1, -1)  # `next` of it is one step for all threads

    def note(_: "Future[Answer]") -> None:
        if next(left) == 0 and whole.set_running_or_notify_cancel():
            answers = [each.result() for each in parts]
            error = next((each.error for each in answers if each.error is not None), None)
            offsets = tuple(row for each in answers for row in each.offsets)
            failed = tuple(row for each in answers for row in each.failed)
            whole.set_result(Answer(answers[0].ticket, offsets, failed, error))

    for each in parts:
        each.add_done_callback(note)
    return whole

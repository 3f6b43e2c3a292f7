"""A state machine that a transport's threads drive, and a user's thread waits for.

The machine runs under one lock. An exception in it leaves its state unknown: it then stands still
for good, sends nothing any more, and its fence and its session end by themselves.

A future that is completed calls what its holder has given it, code of the user, which may take the
user's locks. A thread that holds those may be waiting for the client. So answers are noted under
the client's lock, and futures are completed outside it.
"""

import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from threading import get_ident
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from coordlib.client.kit.calls import may_call_user, uninterrupted
from coordlib.client.kit.events import Answer
from coordlib.client.kit.process import Closing
from coordlib.errors import CoordError, NotAllowed

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


InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)
#: A call that is interrupted may wait so long still, and the next one waits for it.
WAIT_SLICE_S: Final = 0.2


class Machine(Protocol[In_contra, Out_co]):
    """A state machine without IO."""

    def handle(self, event: In_contra) -> Iterable[Out_co]:
        """Take one input; the outputs are to be done in order."""

    def wake_ms(self) -> int | None:
        """When `Elapsed` must be fed at the latest; None: not before something else."""

    def reading_lasts_ms(self) -> int | None:
        """How old the newest complete reading may become; None: nothing depends on it."""


class Driven(Closing, Generic[InputT, OutputT]):
    """The base of members and of brokers' agents: the side that faces the transport."""

    #: What it is, for errors.
    NOUN: ClassVar[str]

    def __init__(self, machine: Machine[InputT, OutputT]) -> None:
        self._machine = machine
        #: Guards the state machine; waited upon by `poll` and `close`.
        self._changed = threading.Condition(threading.RLock())
        #: Set when a step raised in the transport; the machine stands still from then on.
        self._broken: CoordError | None = None
        #: How often something has happened to it.
        self.changes = 0
        #: Its program has dropped it: it stands still, and its session ends by itself.  # INV-143
        self.is_dropped = False

    def feed(self, event: InputT) -> None:
        """Take what happened (the transport's threads)."""
        self._step(event)
        self._tell()

    def _give(self, event: InputT) -> None:
        """The same from the user's thread: a step that was interrupted is done all the same."""
        self._step_whole(event)
        self._tell()

    def _step(self, event: InputT) -> None:
        with self._changed:
            if self._broken is not None or self.is_dropped:
                return
            self.changes += 1
            for output in self._machine.handle(event):
                self._do(output)
            self._changed.notify_all()

    _step_whole = uninterrupted(_step)

    @uninterrupted
    def wait_for_change(self, timeout_s: float) -> None:
        """Until something has happened. Not for long: whatever comes next waits as well."""
        with self._changed:
            self._changed.wait(timeout_s)

    def _wait_until(self, timeout_s: float, is_so: Callable[[], bool]) -> bool:
        """Until this is so; False: time was up. In slices, for calls of other clients wait too."""
        until = time.monotonic() + timeout_s
        left_s = timeout_s
        while not self._is_so(min(WAIT_SLICE_S, left_s), is_so):
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
        return True

    @uninterrupted
    def _is_so(self, timeout_s: float, is_so: Callable[[], bool]) -> bool:
        with self._changed:
            return self._changed.wait_for(is_so, timeout_s)

    def wake_ms(self) -> int | None:
        """When `Elapsed` must be fed at the latest; None: not before something else."""
        with self._changed:
            return None if self._broken or self.is_dropped else self._machine.wake_ms()

    def reading_lasts_ms(self) -> int | None:
        """How old the newest complete reading may become; None: nothing depends on it."""
        with self._changed:
            return None if self._broken or self.is_dropped else self._machine.reading_lasts_ms()

    def fail(self, problem: Exception) -> None:
        """Stop for good, because the state of the state machine is unknown now.

        It sends nothing any more, so that its session ends. Every poll raises.
        """
        with self._changed:
            self.changes += 1
            if self._broken is None and isinstance(problem, NotAllowed):
                self._broken = problem
            elif self._broken is None:
                what = f"The {self.NOUN} has failed: {problem!r}"
                mend = "Close it, and make a new one. Its session ends by itself."
                self._broken = CoordError(what, self._where, mend)
                self._broken.__cause__ = problem
            self._abandon()
            self._changed.notify_all()
        self._tell()

    @abstractmethod
    def _do(self, output: OutputT) -> None:
        """Carry one output out."""

    @abstractmethod
    def _abandon(self) -> None:
        """No answer will come any more: end what waits for one."""

    @abstractmethod
    def _tell(self) -> None:
        """End the futures that have their answers. Not under the lock: they call the user."""

    @property
    @abstractmethod
    def _where(self) -> str:
        """For errors."""

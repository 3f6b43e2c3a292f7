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
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from coordlib.client.kit.calls import Callbacks, may_call_user, uninterrupted
from coordlib.client.kit.events import Left, Raise, Send
from coordlib.client.kit.process import Closing
from coordlib.client.kit.requests import Identity
from coordlib.client.kit.transport import Transport
from coordlib.errors import CannotReach, CoordError, NotAllowed

Result = TypeVar("Result")
AnswerT = TypeVar("AnswerT")
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)
#: How long one wait for a change lasts.
WAIT_S: Final = 0.05
#: A call that is interrupted may wait so long still, and the next one waits for it.
WAIT_SLICE_S: Final = 0.2


@dataclass(slots=True, eq=False)
class _Answered(Generic[Result, AnswerT]):
    future: "Future[Result]"
    answer: AnswerT
    #: The thread that completes it.
    thread: int | None = None


class OpenFutures(Generic[Result, AnswerT]):
    """Open futures by ticket. Callers have them, so any of them may be cancelled already.

    Args:
        complete: ends a future with its answer.
        failed: the answer to a ticket that has none but this error.
        where: for errors.
    """

    def __init__(
        self,
        complete: Callable[["Future[Result]", AnswerT], None],
        failed: Callable[[int, CoordError], AnswerT],
        where: str,
    ) -> None:
        self._complete, self._failed, self._where = complete, failed, where
        self._tickets = count(1)
        self._open: dict[int, Future[Result]] = {}
        #: Those whose answer is here, and that are to be completed.
        self._answered: deque[_Answered[Result, AnswerT]] = deque()

    def expect(self) -> "tuple[int, Future[Result]]":
        """A ticket for a new question, and the future of its answer."""
        ticket = next(self._tickets)
        future = self._open[ticket] = Future()
        return ticket, future

    def settle(self, ticket: int, answer: AnswerT) -> None:
        """Note the answer of a future; one without an open future is dropped."""
        future = self._open.pop(ticket, None)
        if future is not None:
            self._answered.append(_Answered(future, answer))

    def abandon(self, broken: CoordError | None) -> None:
        """Fail all open futures: no answer will come any more."""
        closed = CannotReach("Closed before the answer came.", self._where)
        for ticket in list(self._open):
            self.settle(ticket, self._failed(ticket, broken or closed))

    def complete(self) -> None:
        """Complete those whose answer is here, unless that is for another thread to do.

        To be called without the client's lock.

        One stays here until it is complete: a thread that was interrupted goes on with it.
        """
        if not self._answered or not may_call_user():
            return
        me = threading.get_ident()
        for each in list(self._answered):
            if each.thread not in (None, me):
                continue
            each.thread, future = me, each.future
            # False: it was cancelled, and its waiters were notified then.
            if future.running() or (not future.done() and future.set_running_or_notify_cancel()):
                self._complete(future, each.answer)
            with suppress(ValueError):  # its own callback may have completed the others
                self._answered.remove(each)


class Machine(Protocol[In_contra, Out_co]):
    """A state machine without IO."""

    def handle(self, event: In_contra) -> Iterable[Out_co]:
        """Take one input; the outputs are to be done in order."""

    def wake_ms(self) -> int | None:
        """When `Elapsed` must be fed at the latest; None: not before something else."""

    def reading_lasts_ms(self) -> int | None:
        """How old the newest complete reading may become; None: nothing depends on it."""


MachineT = TypeVar("MachineT", bound=Machine[Any, Any])


class Driver(Closing, Generic[MachineT, InputT, OutputT]):
    """The base of members and of brokers' agents.

    Args:
        machine: the state machine.
        identity: who sends its requests.
        transport: delivers to it; `owns_transport`: and is closed with it.
        callbacks: the user's.
        futures: those of questions that its users ask.
    """

    #: What it is, for errors.
    NOUN: ClassVar[str]

    def __init__(
        self,
        machine: MachineT,
        identity: Identity,
        transport: Transport,
        owns_transport: bool,
        callbacks: Callbacks[Any],
        futures: OpenFutures[Any, Any],
    ) -> None:
        self.identity = identity
        self._machine, self._transport, self._owns_transport = machine, transport, owns_transport
        self.callbacks, self._futures = callbacks, futures
        #: Guards the state machine; waited upon by `poll` and `close`.
        self._changed = threading.Condition(threading.RLock())
        #: Set when a step raised in the transport; the machine stands still from then on.
        self._broken: CoordError | None = None
        #: What the next `poll` raises.
        self._raised: CoordError | None = None
        #: Whether the log has its last request.
        self._is_left = False
        #: Whether questions are answered no more.
        self._is_closed = False
        #: Whether `close` has come to its end.
        self.has_ended = False
        #: How often something has happened to it.
        self.changes = 0
        #: Its program has dropped it: it stands still, and its session ends by itself.  # INV-143
        self.is_dropped = False
        #: Called without a lock, in any thread, when the transport has fed it something.
        self.on_change: Callable[[], None] = lambda: None

    # ---- the transport's side -----------------------------------------------------------------

    def feed(self, event: InputT) -> None:
        """Take what happened (the transport's threads)."""
        self._step(event)
        self._futures.complete()
        self.on_change()

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
                hint = "Close it, and make a new one. Its session ends by itself."
                self._broken = CoordError(what, self._where, hint)
                self._broken.__cause__ = problem
            self._futures.abandon(self._broken)
            self._changed.notify_all()
        self._futures.complete()
        self.on_change()

    # ---- the user's side ----------------------------------------------------------------------

    def _give(self, event: InputT) -> None:
        """Feed it from the user's thread: a step that was interrupted is done all the same."""
        self._step_whole(event)
        self._futures.complete()

    def ask(self, event: Callable[[int, int], InputT]) -> "Future[Any]":
        """Feed an event made of the time and a ticket; the future ends with its answer."""
        future = self._expect(event)
        self._futures.complete()
        return future

    @uninterrupted
    def _expect(self, event: Callable[[int, int], InputT]) -> "Future[Any]":
        with self._changed:
            ticket, future = self._futures.expect()
            self._step(event(self._transport.now_ms(), ticket))
            if self._broken is not None or self._is_closed:
                self._futures.abandon(self._broken)
        return future

    def _raise_failure(self) -> None:
        problem = self._broken or self._raised
        if problem is not None:
            self._raised = None
            raise problem

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

    @uninterrupted
    def _end(self) -> None:
        if self.has_ended:
            return
        self.has_ended = self._is_closed = True
        with self._changed:
            self._futures.abandon(self._broken)
        self._transport.detach(self)
        self._free()
        if self._owns_transport:
            self._transport.close()

    # ---- the state machine --------------------------------------------------------------------

    def _step(self, event: InputT) -> None:
        with self._changed:
            if self._broken is not None or self.is_dropped:
                return
            self.changes += 1
            for output in self._machine.handle(event):
                match output:
                    case Send(request):
                        self._transport.send(self, request)
                    case Raise(error):
                        self._raised = error
                    case Left():
                        self._is_left = True
                    case _:
                        self._do(output)
            self._changed.notify_all()

    _step_whole = uninterrupted(_step)

    @abstractmethod
    def _do(self, output: OutputT) -> None:
        """Carry out one output that is its own."""

    def _free(self) -> None:
        """Give back what it holds beside its transport."""

    @property
    @abstractmethod
    def _where(self) -> str:
        """For errors."""

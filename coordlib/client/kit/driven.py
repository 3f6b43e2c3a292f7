"""A state machine that a transport's threads drive, and a user's thread waits for.

The machine runs under one lock. An exception in it leaves its state unknown: it then stands still
for good, sends nothing any more, and its fence and its session end by themselves.
"""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from coordlib.client.kit.closing import Closing
from coordlib.client.kit.uninterrupted import uninterrupted
from coordlib.errors import CoordError, NotAllowed

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

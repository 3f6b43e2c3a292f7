"""How a transport over Kafka fails, and how a handler of it does."""

import logging
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from confluent_kafka import KafkaException

from coordlib import limits
from coordlib.client.kit.forked import made_here
from coordlib.errors import CannotReach, CoordError, NotAllowed
from coordlib.kafka.clients import reason_of
from coordlib.kafka.fatal_errors import is_fatal

_log = logging.getLogger("coordlib.client")

#: Of a message that librdkafka takes for written, since the broker has answered a repeated try with
#: DUPLICATE_SEQUENCE_NUMBER: nobody says where it stands, so it counts as one that may be written.
NO_OFFSET: Final = "it was written before, and the broker does not say where"

_ANEW: Final = "Close what uses the transport, then make it and its users anew."

#: Of the producer of requests.
PRODUCER_CONFIG: dict[str, Any] = {
    "enable.idempotence": True,  # rule 12; order is kept and nothing is written twice
    "acks": "all",
    "linger.ms": 2,
    "reconnect.backoff.max.ms": 1_000,  # rule 12
    "message.max.bytes": limits.REQUEST_BYTES_MAX + 64 * limits.KIB,
    "message.timeout.ms": 30_000,
}


class Fallible(Protocol):
    """What a transport serves."""

    def fail(self, problem: Exception) -> None:
        """It raised in a thread of the transport: its `poll` is to raise the problem."""


HandlerT = TypeVar("HandlerT", bound=Fallible)


class FailingTransport(ABC, Generic[HandlerT]):
    """The base of transports: one failure ends them for all of their handlers."""

    def __new__(cls, *_args: Any, **_named: Any) -> Self:
        made = super().__new__(cls)
        made_here(made)
        return made

    _is_closed: threading.Event
    #: Whoever had it for itself was dropped: its threads end, whatever still holds it.
    is_dropped = False
    #: That it writes to.
    _topic: str
    #: Why it does nothing any more; None: it has not failed.
    _failure: CoordError | None = None

    def _start(
        self, name: str, wait: Callable[[], Any], turn: Callable[[Any, Any], None]
    ) -> threading.Thread:
        """A thread that takes turns until the transport is closed, or no program has it any more.

        While it waits it does not hold the transport, nor does the transport hold its handlers:
        what a program drops without `close` is collected, and no signs of life follow.  # INV-143
        """
        args = (weakref.ref(self), wait, turn)
        thread = threading.Thread(target=_take_turns, args=args, name=name, daemon=True)
        thread.start()
        return thread

    @abstractmethod
    def _guarded(self, turn: Callable[[], None]) -> bool:
        """Take a turn; False: it has failed, and the thread ends."""

    def check(self) -> None:
        """Raises CannotReach when the transport has failed or is closed; NotAllowed, StartRefused.

        `poll` would be silent for ever where nobody serves the transport any more.  # INV-156
        """
        if self._failure is not None:
            raise self._failure
        if self._is_closed.is_set():
            raise CannotReach("The transport is closed.", self._topic, _ANEW)

    def _failed(self, problem: Exception, mend: str = _ANEW) -> CoordError:
        """What ended it, as `check` raises it."""
        if isinstance(problem, CoordError):
            return problem
        told = reason_of(problem) if isinstance(problem, KafkaException) else repr(problem)
        failed = CannotReach(f"The transport has failed: {told}", self._topic, mend)
        failed.__cause__ = problem
        return failed

    def _end(self, step: Callable[[], object]) -> None:
        """A producer that has failed for ever says so once more when it is closed."""
        try:
            step()
        except KafkaException as problem:
            if self._failure is None and not is_fatal(problem):
                raise

    def _for(self, handler: HandlerT, work: Callable[[], None]) -> None:
        """Call one handler; an exception fails that one alone.  # INV-70"""
        try:
            work()
        except NotAllowed as problem:
            _log.warning("%s failed: %s", self._named(handler), problem.what)
            handler.fail(problem)
        except Exception as problem:  # noqa: BLE001  # its poll raises it, whatever it is
            _log.exception("%s failed", self._named(handler))
            handler.fail(problem)

    @abstractmethod
    def _named(self, handler: HandlerT) -> str:
        """A handler, for the log."""


def while_used(told: Callable[..., None], handler: object) -> Callable[..., None]:
    """Tells a handler unless its program has dropped it: what waits in the library holds it not."""
    used = weakref.ref(handler)

    def tell(*args: Any) -> None:
        if (found := used()) is not None:
            told(found, *args)

    return tell


def _take_turns(
    used: "weakref.ref[FailingTransport[Any]]",
    wait: Callable[[], Any],
    turn: Callable[[Any, Any], None],
) -> None:
    while True:
        found, problem = None, None
        try:
            found = wait()
        except Exception as raised:  # noqa: BLE001  # the transport judges it
            problem = raised
        if (transport := used()) is None or transport._is_closed.is_set() or transport.is_dropped:
            return
        work = partial(turn, transport, found) if problem is None else partial(_raise, problem)
        if not transport._guarded(work):
            return
        del transport, work


def _raise(problem: Exception) -> None:
    raise problem

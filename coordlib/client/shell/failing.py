"""How a transport over Kafka fails, and how a handler of it does."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from confluent_kafka import KafkaException

from coordlib.errors import CannotReach, NotAllowed, StartRefused

_log = logging.getLogger("coordlib.client")

#: Of a message that librdkafka takes for written, since the broker has answered a repeated try with
#: DUPLICATE_SEQUENCE_NUMBER: nobody says where it stands, so it counts as one that may be written.
NO_OFFSET: Final = "it was written before, and the broker does not say where"


class Fallible(Protocol):
    """What a transport serves."""

    def fail(self, problem: Exception) -> None:
        """It raised in a thread of the transport: its `poll` is to raise the problem."""


HandlerT = TypeVar("HandlerT", bound=Fallible)


class FailingTransport(ABC, Generic[HandlerT]):
    """The base of transports: one failure ends them for all of their handlers."""

    #: Why it does nothing any more; None: it has not failed.
    _failure: Exception | None = None

    def check(self) -> None:
        """Raises CannotReach when the transport itself has failed; NotAllowed, StartRefused."""
        if isinstance(self._failure, NotAllowed | StartRefused):
            raise self._failure
        if self._failure is not None:
            raise CannotReach("The transport has failed.", repr(self._failure)) from self._failure

    def _end(self, step: Callable[[], object]) -> None:
        """A producer that has failed for ever says so once more when it is closed."""
        try:
            step()
        except KafkaException:
            if self._failure is None:
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

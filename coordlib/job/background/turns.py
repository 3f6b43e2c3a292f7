"""A thread that lets something have its turns beside the query, until it fails for good."""

import threading
from typing import Final, Protocol

import structlog
from confluent_kafka import KafkaException

from coordlib.errors import CannotReach
from coordlib.kafka.clients import reason_of

_log = structlog.get_logger()
_PAUSE_S: Final = 0.02
_RETRY_PAUSE_S: Final = 0.5


class Turning(Protocol):
    """What has turns."""

    def turn(self) -> None:
        """Do what is due now. Raises KafkaException, TimeoutError: it is tried again later."""


class Turns:
    """Lets it have its turns.

    Args:
        name: of the thread, and in messages: a plural.
        without: what a job without it would lack, and that the next start mends it.
    """

    def __init__(self, turning: Turning, name: str, without: str) -> None:
        self._turning, self._name, self._without = turning, name, without
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._failure: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:  # else the start failed before
            self._thread.join(15)

    def check(self) -> None:
        """Raises CannotReach when the thread has ended."""
        if self._failure is not None:
            raise CannotReach(
                f"The {self._name} have ended: {self._failure!r}",
                "requests topic",
                self._without,
            ) from self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PAUSE_S):
                try:
                    self._turning.turn()
                except (KafkaException, TimeoutError) as problem:
                    _log.warning(f"{self._name} wait for the broker", error=reason_of(problem))
                    self._stop.wait(_RETRY_PAUSE_S)
        except Exception as problem:  # noqa: BLE001  raised by check(), which ends the job
            _log.exception(f"{self._name} have ended")
            self._failure = problem

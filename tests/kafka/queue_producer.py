"""A producer that keeps what it is given until a test says what became of it."""

from collections.abc import Callable
from typing import Any, ClassVar

from confluent_kafka import KafkaError, Message

Note = Callable[[KafkaError | None, Any], None]


class Queue:
    """Each new one is in `made`, which a test replaces by a list of its own."""

    made: ClassVar[list["Queue"]] = []

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.waiting: list[tuple[bytes, Note]] = []
        self.is_full = self.is_purged = self.is_closed = False
        #: Called by each poll.
        self.on_poll: Callable[[], None] = lambda: None
        self.made.append(self)

    def produce(
        self,
        _topic: str,
        value: bytes,
        _key: bytes | None = None,
        partition: int = -1,  # as the library names it
        *,
        on_delivery: Note,
    ) -> None:
        self._refuse_if_closed()
        if self.is_full:
            raise BufferError
        self.waiting.append((value, on_delivery))

    def end(self, error: KafkaError | None) -> None:
        """Say of the oldest record that it was written, or why not."""
        _, note = self.waiting.pop(0)
        note(error, Message())

    def poll(self, _timeout_s: float) -> None:
        self._refuse_if_closed()
        self.on_poll()

    def close(self) -> None:
        self.is_closed = True

    def purge(self) -> None:
        self._refuse_if_closed()
        self.is_purged = True

    def flush(self, _timeout_s: float) -> int:
        self._refuse_if_closed()
        while self.is_purged and self.waiting:
            self.end(KafkaError(KafkaError._PURGE_QUEUE))
        return len(self.waiting)

    def _refuse_if_closed(self) -> None:
        """As the library does, in whichever thread."""
        if self.is_closed:
            raise RuntimeError("Producer has been closed")

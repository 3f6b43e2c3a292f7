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
        self.is_full = self.is_purged = False
        self.made.append(self)

    def produce(
        self, _topic: str, value: bytes, _key: bytes | None, _at: int, *, on_delivery: Note
    ) -> None:
        if self.is_full:
            raise BufferError
        self.waiting.append((value, on_delivery))

    def end(self, error: KafkaError | None) -> None:
        """Say of the oldest record that it was written, or why not."""
        _, note = self.waiting.pop(0)
        note(error, Message())

    def poll(self, _timeout_s: float) -> None: ...

    def close(self) -> None: ...

    def purge(self) -> None:
        self.is_purged = True

    def flush(self, _timeout_s: float) -> None:
        while self.is_purged and self.waiting:
            self.end(KafkaError(KafkaError._PURGE_QUEUE))

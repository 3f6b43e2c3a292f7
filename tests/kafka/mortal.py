"""A producer that a fatal error ends: whatever is written through it afterwards is refused."""

from typing import Any, ClassVar

from confluent_kafka import KafkaError, KafkaException


class MortalProducer:
    """The first one fails fatally when it is flushed or polled for the first time."""

    made: ClassVar[list["MortalProducer"]] = []

    def __init__(self, _options: dict[str, Any]) -> None:
        self.written: list[bytes] = []
        self._is_doomed, self._is_dead = not self.made, False
        self.made.append(self)

    def produce(self, _topic: str, value: bytes, *_: object, **_more: object) -> None:
        if self._is_dead:
            raise KafkaException(KafkaError(KafkaError._FATAL, "dead"))
        self.written.append(value)

    def close(self) -> None: ...

    def purge(self) -> None:
        """What it has not written is told to whoever gave it."""

    def flush(self, _timeout_s: float) -> None:
        if self._is_doomed:
            self._is_doomed, self._is_dead = False, True
            raise KafkaException(KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "", True))

    poll = flush

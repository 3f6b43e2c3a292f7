"""An idempotent producer that outlives fatal errors."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from coordlib.kafka.clients import is_fatal, reason_of

_log = structlog.get_logger()
_GIVE_UP_S: Final = 5.0

#: As confluent-kafka calls it: the error, or None, and the record.
OnDelivery = Callable[[KafkaError | None, Message], None]


class LastingProducer:
    """A producer that is replaced by a new one after a fatal error.

    An idempotent producer that has failed fatally refuses every further record, for ever; a new one
    works. All is for any thread, but `renew` and `close` are not for delivery callbacks. What is
    produced while another thread renews may be refused. A closed one refuses whatever a thread that
    still has it asks for, and is not replaced (INV-156).

    Args:
        options: librdkafka's, with `bootstrap.servers`. The producer is always idempotent.
        content: name of its records in messages, as "lag samples".
        renew_interval_s: a producer that is younger than this is not replaced yet.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        content: str,
        renew_interval_s: float = 0.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = {"log_level": 2, **options, "enable.idempotence": True}
        self._content, self._renew_interval_s, self._now_s = content, renew_interval_s, now_s
        #: Held while the producer is replaced or closed.
        self._lock, self._is_closed = threading.Lock(), False
        self._open()

    @property
    def is_broken(self) -> bool:
        """Whether it has failed fatally, and was not replaced since."""
        return self._is_broken

    def produce(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Queue a record.

        Raises:
            KafkaException: it is refused.
            TimeoutError: the queue is full.
        """
        with self._using() as producer:

            def note(error: KafkaError | None, message: Message) -> None:
                self._note(producer, error)
                if on_delivery is not None:
                    on_delivery(error, message)

            try:
                producer.produce(topic, value, key, partition, on_delivery=note)
            except BufferError as problem:
                raise TimeoutError(f"The producer of {self._content} is full.") from problem

    def poll(self, timeout_s: float = 0.0) -> None:
        """Call the callbacks of delivered records, waiting this long. Raises KafkaException."""
        with self._using() as producer:
            producer.poll(timeout_s)

    def flush(self, timeout_s: float) -> int:
        """Wait until all records are delivered or given up; how many are not. Raises
        KafkaException."""
        with self._using() as producer:
            return producer.flush(timeout_s)

    def renew(self, at_once: bool = False) -> bool:
        """Replace a producer that has failed fatally, if it is old enough or `at_once`.

        The records that it still has are given up first, and their callbacks are called: such a
        record might reach the log behind one of the new producer. Returns whether it did.
        """
        with self._lock:
            is_due = at_once or self._now_s() >= self._renew_at_s
            if self._is_closed or not self._is_broken or not is_due:
                return False
            _log.info("a new producer replaces one that has failed", content=self._content)
            self._producer.purge()
            self._give_up(partial(self._producer.flush, _GIVE_UP_S))
            self._open()
            return True

    def list_topics(self, timeout: float) -> Any:
        """As confluent-kafka's."""
        with self._using() as producer:
            return producer.list_topics(timeout=timeout)

    def close(self) -> None:
        """Wait for queued records, for a few seconds; then they are given up. A second call does
        nothing."""
        with self._lock:  # a thread that replaces it would leave another one open
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._give_up(partial(self._producer.flush, _GIVE_UP_S))
        finally:
            self._producer.purge()
            self._give_up(self._producer.close)

    def _give_up(self, step: Callable[[], object]) -> None:
        """Ignore errors of a producer that has failed for ever: its owner has to close it."""
        try:
            step()
        except KafkaException as problem:
            _log.warning("a producer is given up", content=self._content, error=reason_of(problem))

    @contextmanager
    def _using(self) -> Iterator[Producer]:
        """The present producer. Notes where it fails for ever; raises KafkaException if closed."""
        producer = self._producer
        try:
            if self._is_closed:
                raise _closed(self._content)
            yield producer
        except KafkaException as problem:
            self._note(producer, problem)
            raise
        except RuntimeError as problem:
            if not self._is_closed:
                raise
            raise _closed(self._content) from problem  # by another thread, at this moment

    def _open(self) -> None:
        self._producer = Producer(self._options)
        self._is_broken, self._renew_at_s = False, self._now_s() + self._renew_interval_s

    def _note(self, producer: Producer, problem: KafkaException | KafkaError | None) -> None:
        # Not of one that is replaced: its reports may come late.
        if producer is self._producer and is_fatal(problem):
            self._is_broken = True


def _closed(content: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._STATE, f"The producer of {content} is closed."))

"""Everything that the driver writes into the log of requests: signed, numbered, by one producer.

Numbers of a shard must stand in the log in their order: a record that comes behind one with a
higher number does nothing. So ticks and listings share a producer, which keeps the order, and what
was not acknowledged is written again under another number. TIME-AND-FENCING.md, rule 17.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from coordlib.kafka.fatal_errors import is_fatal
from coordlib.records import codec
from coordlib.records.control import signed_bytes, with_signature
from coordlib.records.requests import Control

_log = structlog.get_logger()
_GIVE_UP_S: Final = 5.0

#: Told why the log did not take a record; nothing if it did.
Told = Callable[[str], None]


class Signer:
    """The values of one driver's control records. Not to be shared among threads.

    Args:
        start: number of the driver's start, higher than any before.
        key: by which shards find the public half.
        incarnation: of the topics.
        sign: what is to be signed -> the signature.
    """

    def __init__(
        self, start: int, key: str, incarnation: str, sign: Callable[[bytes], bytes]
    ) -> None:
        self.start = start
        self._key, self._incarnation, self._sign = key, incarnation, sign
        self._next: dict[int, int] = {}

    def value(self, shard: int, record: Control) -> bytes:
        """What is written into the log of this shard, behind all that came before."""
        number = self._next.get(shard, 0)
        self._next[shard] = number + 1
        named = msgspec.structs.replace(record, n=(self.start, number), key=self._key)
        unsigned = codec.encode(named)
        signature = self._sign(signed_bytes(self._incarnation, shard, unsigned))
        return with_signature(unsigned, signature)


class ControlWriter:
    """The one producer of a driver's control records. Any thread may call it.

    It is never transactional: what it writes must be read at once, whatever batch is open.
    """

    def __init__(self, prefix: str, client_options: Mapping[str, Any], signer: Signer) -> None:
        self._topic, self._signer = f"{prefix}.requests", signer
        self._options = dict(client_options)
        #: Held from taking a number until its record is queued.
        self._lock = threading.Lock()
        self._producer = self._open_producer()
        self._is_broken = False

    def write(self, shard: int, record: Control, told: Told) -> None:
        """Write it behind all before; `told` hears later. Raises KafkaException, TimeoutError."""

        def note(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                kind = type(record).__name__
                _log.warning("control record not acknowledged", kind=kind, error=error.str())
                self._is_broken = self._is_broken or is_fatal(error)
            told("" if error is None else error.str())

        with self._lock:
            self._replace_if_broken()
            value = self._signer.value(shard, record)
            try:
                self._producer.produce(self._topic, value, partition=shard, on_delivery=note)
            except BufferError as problem:
                raise TimeoutError("The producer of control records is full.") from problem
            except KafkaException as problem:
                self._is_broken = self._is_broken or is_fatal(problem)
                raise

    def serve(self, timeout_s: float = 0.0) -> None:
        """Tell what became of records; with a time, wait so long for all. Raises KafkaException."""
        try:
            _await(self._producer, timeout_s)
        except KafkaException as problem:
            self._is_broken = self._is_broken or is_fatal(problem)
            raise
        with self._lock:
            self._replace_if_broken()

    def close(self) -> None:
        self._producer.flush(_GIVE_UP_S)

    def _replace_if_broken(self) -> None:
        """An idempotent producer does not recover from a fatal error; a new one does.

        What the old one still has is given up first, and its writer is told: it might reach the
        log behind a record of the new one, be acknowledged, and count for nothing.
        """
        if not self._is_broken:
            return
        self._producer.purge()
        try:
            self._producer.flush(_GIVE_UP_S)
        except KafkaException as problem:
            _log.warning("producer of control records given up", error=repr(problem))
        self._producer, self._is_broken = self._open_producer(), False

    def _open_producer(self) -> Producer:
        return Producer(
            {
                **self._options,
                "enable.idempotence": True,
                "linger.ms": 0,
                "delivery.timeout.ms": 10_000,
                "log_level": 2,
            }
        )


def _await(producer: Producer, timeout_s: float) -> None:
    if timeout_s:
        producer.flush(timeout_s)
    else:
        producer.poll(0)

"""Everything that the driver writes into the log of requests: signed, numbered, by one producer.

Numbers of a shard must stand in the log in their order: a record that comes behind one with a
higher number does nothing. So ticks and listings share a producer, which keeps the order, and what
was not acknowledged is written again under another number. TIME-AND-FENCING.md, rule 17.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog
from confluent_kafka import KafkaError, Message

from coordlib.core.wire import codec
from coordlib.core.wire.control import signed_bytes, with_signature
from coordlib.core.wire.requests import Control
from coordlib.kafka.producer import LastingProducer

_log = structlog.get_logger()

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
        #: Held from taking a number until its record is queued.
        self._lock = threading.Lock()
        options = {**client_options, "linger.ms": 0, "delivery.timeout.ms": 10_000}
        self._producer = LastingProducer(options, "control records")

    def write(self, shard: int, record: Control, told: Told) -> None:
        """Write it behind all before; `told` hears later. Raises KafkaException, TimeoutError."""

        def note(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                kind = type(record).__name__
                _log.warning("control record not acknowledged", kind=kind, error=error.str())
            told("" if error is None else error.str())

        with self._lock:
            # Before a number is taken: what a failed producer still has must come before it.
            self._producer.renew()
            value = self._signer.value(shard, record)
            self._producer.produce(self._topic, value, partition=shard, on_delivery=note)

    def serve(self, timeout_s: float = 0.0) -> None:
        """Tell what became of records; with a time, wait so long for all. Raises KafkaException."""
        if timeout_s:
            self._producer.flush(timeout_s)
        else:
            self._producer.poll()
        with self._lock:
            self._producer.renew()

    def close(self) -> None:
        self._producer.close()

"""The transactional producer of the sink. When one gives way to another: `kafka/late_ends.py`."""

from collections.abc import Mapping
from typing import Any, Protocol

from confluent_kafka import Producer

from coordlib import limits
from coordlib.job.plane import Plane
from coordlib.kafka.late_ends import RETRY_OPTIONS


class TransactionalProducer(Protocol):
    """As much of confluent-kafka's Producer as the sink uses."""

    def init_transactions(self, timeout: float) -> Any: ...

    def begin_transaction(self) -> Any: ...

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        *,
        on_delivery: Any = None,
    ) -> Any: ...

    def flush(self, timeout: float) -> Any: ...

    def poll(self, timeout: float) -> Any: ...

    def commit_transaction(self, timeout: float) -> Any: ...

    def abort_transaction(self, timeout: float) -> Any: ...


def open_producer(
    plane: Plane, client_options: Mapping[str, str], transaction_timeout_ms: int
) -> Producer:
    """A producer of a plane's one transactional id."""
    return Producer(
        {
            **client_options,
            "transactional.id": plane.query_name,
            "transaction.timeout.ms": transaction_timeout_ms,
            **RETRY_OPTIONS,
            "message.max.bytes": limits.OUTPUT_BYTES_MAX,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "linger.ms": 2,
            "compression.type": "lz4",
            "log_level": 2,
        }
    )

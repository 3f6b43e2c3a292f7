"""The transactional producer of the sink, and when a transaction of it is doubtful.

An EndTxn that a client sent twice can end the *next* transaction half-way: the first one is held
up, the second commits, and the first arrives when the next transaction has begun. The broker cannot
tell the two apart, because both have the same producer id and epoch. KIP-890 gives every
transaction its own epoch, but librdkafka sends EndTxn version 1, without it. A new producer is the
cure from outside: `init_transactions` raises the epoch, and the broker refuses what is late.

When is it needed? librdkafka does not report that it sent EndTxn again: a closed connection is no
error for `error_cb`, and the call succeeds. But it waits before that, 80 % of `retry.backoff.ms` at
least, and 500 ms before it sends AddPartitionsToTxn again. So a transaction that was shorter sent
both once, and nothing of it can be late. It is doubtful from `DOUBTFUL_AFTER_MS` on.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from confluent_kafka import Producer

from coordlib import limits
from coordlib.streaming.plane import Plane

#: A transaction that took this long, from its beginning to the answer of its end, is doubtful.
DOUBTFUL_AFTER_MS: Final = 400
#: 80 % of it is above DOUBTFUL_AFTER_MS: librdkafka varies it by 20 %.
RETRY_BACKOFF_MS: Final = 600
#: A smaller bound, by an option of the user's, would cut the backoff.
RETRY_BACKOFF_MAX_MS: Final = 1_000


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
            "retry.backoff.ms": RETRY_BACKOFF_MS,
            "retry.backoff.max.ms": RETRY_BACKOFF_MAX_MS,
            "message.max.bytes": limits.OUTPUT_BYTES_MAX,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "linger.ms": 2,
            "compression.type": "lz4",
            "log_level": 2,
        }
    )

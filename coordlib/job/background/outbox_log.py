"""The outboxes of other cells' shards: their messages to shards of this job, and what they judged.

    a shard of another cell ─▶ its partition of `coord.outbox` ─▶ the feeder, or the ticks

A driver feeds its own shards alone (`feeder.py`), so a message is fed by the driver of the shard
that is to judge it, once the batch that has sent it is committed. What it finds here twice, or was
judged long ago, does nothing.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from coordlib.core.engine.channels import HEARD
from coordlib.core.engine.routing import OUTBOX
from coordlib.core.wire.outbox import HeardValue
from coordlib.job.background.feeder import Pair
from coordlib.job.background.turns import Turns
from coordlib.kafka.clients import reader_config
from coordlib.kafka.reading import PASSING

_log = structlog.get_logger()
_AT_ONCE: Final = 2_000
_WAIT_S: Final = 0.05
_decode_key: Final = msgspec.json.Decoder(tuple[str | int, ...]).decode
_decode_heard: Final = msgspec.json.Decoder(HeardValue).decode


class Hearing(Protocol):
    """Who is told of what other cells have written."""

    def message(self, pair: Pair, number: int, body: bytes) -> None:
        """A message to a shard of this job."""

    def heard(self, source: int, shard: int, number: int) -> None:
        """A shard of another cell has judged the messages of this job's `source` up to this."""


def tell(
    shard: int, key: bytes, value: bytes | None, owned: Container[int], hearing: Hearing
) -> None:
    """One record of a shard's outbox. Raises msgspec.MsgspecError: the job has not written it."""
    if value is None:
        return
    match _decode_key(key):
        case (str(what), int(source)) if what == HEARD and source in owned:
            hearing.heard(source, shard, _decode_heard(value).heard)
        case (int(source), int(to), int(number)) if to in owned:
            hearing.message((source, to), number, value)


class OutboxLog:
    """Follows the outboxes with a consumer of its own, from their beginnings.

    Args:
        others: the shards of other cells.
    """

    def __init__(
        self,
        client_options: Mapping[str, Any],
        prefix: str,
        owned: Container[int],
        others: Sequence[int],
        hearing: Hearing,
    ) -> None:
        self._owned, self._hearing = owned, hearing
        options = {**reader_config(client_options, log_level=2), "fetch.wait.max.ms": 20}
        self._consumer = Consumer(options)
        topic = f"{prefix}.{OUTBOX}"
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in others])

    def turn(self) -> None:
        """Hand on what has come. Raises KafkaException."""
        failure: KafkaException | None = None
        for record in self._consumer.consume(_AT_ONCE, _WAIT_S):
            error = record.error()
            if error is None:
                self._take(record.partition() or 0, record.key() or b"", record.value())
            elif error.code() not in (KafkaError._PARTITION_EOF, *PASSING):
                failure = failure or KafkaException(error)  # those behind it are consumed, too
        if failure is not None:
            raise failure

    def close(self) -> None:
        self._consumer.close()

    def _take(self, shard: int, key: bytes, value: Any) -> None:
        try:
            tell(shard, key, value, self._owned, self._hearing)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
            _log.warning("a record of an outbox is not the job's", shard=shard, error=str(problem))


class OutboxThread(Turns):
    """Lets an OutboxLog have its turns, beside the query."""

    def __init__(self, log: OutboxLog) -> None:
        super().__init__(
            log,
            "messages of other cells",
            "Start the job again; at its start it reads what waits in the outboxes.",
        )
        self._log_of_others = log

    def stop(self) -> None:
        super().stop()
        self._log_of_others.close()

"""How the driver asks Kafka about users' transactions: where logs end, what is committed."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coordlib.core.wire.requests import TxnDecided
from coordlib.job.background.decisions import Look, Seen
from coordlib.job.control import ControlWriter
from coordlib.kafka.bounds import every_offset
from coordlib.kafka.clients import has_moved, open_admin, reader_config
from coordlib.kafka.reading import PASSING

_ASK_TIMEOUT_S: Final = 10.0
_LOOK_TIMEOUT_S: Final = 10.0


class KafkaDecisions:
    """`decisions.Broker` over confluent-kafka. All calls but `write` are for one thread."""

    def __init__(
        self, prefix: str, control: ControlWriter, client_options: Mapping[str, Any]
    ) -> None:
        self._topic, self._control = f"{prefix}.requests", control
        self._options = client_options
        self._admin = open_admin(client_options, log_level=2)
        #: Opened for the first look: most jobs never make one.
        self._reader: Consumer | None = None

    def stable_ends(self, shards: Iterable[int]) -> dict[int, int]:
        return self._ask(shards, is_oldest=False)

    def log_starts(self, shards: Iterable[int]) -> dict[int, int]:
        return self._ask(shards, is_oldest=True)

    def _ask(self, shards: Iterable[int], is_oldest: bool) -> dict[int, int]:
        places = [(self._topic, shard) for shard in shards]
        try:
            found = every_offset(
                self._admin, places, _ASK_TIMEOUT_S, is_committed=True, is_oldest=is_oldest
            )
        except KafkaException as problem:
            if has_moved(problem):  # the next turn asks the one that leads
                self._admin.forget([self._topic])
            raise
        return {place.partition: offset for place, offset in found.items()}

    def look(self, look: Look) -> Seen:
        if self._reader is None:
            self._reader = Consumer(
                {
                    **reader_config(self._options),
                    "auto.offset.reset": "error",  # a record that is gone decides nothing
                    "fetch.wait.max.ms": 20,
                }
            )
        try:
            return _read(self._reader, self._topic, look)
        except KafkaException:
            self.close()  # the next look begins with another one
            raise

    def write(self, shard: int, record: TxnDecided, told: Callable[[str], None]) -> None:
        self._control.write(shard, record, told)

    def serve(self) -> None:
        self._control.serve()

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _read(reader: Consumer, topic: str, look: Look) -> Seen:
    """Read up to the last record that is looked for, or what stands behind it.

    The end of the partition counts as the broker returns it: a leader that was elected a moment ago
    may have less of the log than the one that was asked for the last stable offset.
    """
    found: set[int] = set()
    first, last = look.offsets[0], look.offsets[-1]
    reached, deadline = first, time.monotonic() + _LOOK_TIMEOUT_S
    reader.assign([TopicPartition(topic, look.shard, first)])
    try:
        while reached <= last:
            message = reader.poll(0.2)
            error = None if message is None else message.error()
            if message is not None and (error is None or error.code() == KafkaError._PARTITION_EOF):
                offset = message.offset()
                assert offset is not None
                if error is None:
                    found.add(offset)
                    reached = offset + 1
                else:
                    reached = max(reached, offset)
                    if reached <= last:
                        break
            elif error is not None and error.code() not in PASSING:
                raise KafkaException(error)
            elif time.monotonic() > deadline:
                raise KafkaException(error or KafkaError(KafkaError._TIMED_OUT))
    finally:
        reader.unassign()
    return Seen(found, reached)

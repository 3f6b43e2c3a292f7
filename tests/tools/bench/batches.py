"""What the job did in a while, by its own progress markers: batches and what they judged."""

from typing import Any, Final
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coordlib.core.wire.stored import decode_marker
from coordlib.errors import CannotReach
from coordlib.job.progress import MARKER_KEY
from tests.tools.bench.figures import spread
from tests.tools.bench.gauges import Pace

TIMEOUT_S: Final = 10.0


class Batches:
    """Read from `begin` to `figures`; nothing runs meanwhile."""

    def __init__(self, config: dict[str, str], prefix: str) -> None:
        self._requests = f"{prefix}.requests"
        self._source = TopicPartition(f"{prefix}.progress", 0)
        self._consumer = Consumer(
            {
                **config,
                "group.id": f"coordlib-unused-{uuid4().hex}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        self._pace = Pace()
        #: Next offset to read.
        self._position = -1
        self._judged_before = -1

    def begin(self) -> None:
        """Forget what was before. Raises CannotReach."""
        # From some before the end: the newest of them is where counting begins.
        self._source.offset = max(0, self._end() - 8)
        self._consumer.assign([self._source])
        self._read()
        self._pace.begin()
        self._judged_before = self._pace.judged

    def figures(self) -> dict[str, Any]:
        """Batches since `begin`, the time from one to the next, and requests that they judged."""
        self._read()
        batch_s = self._pace.batch_s
        return {
            "batches": len(self._pace.lag_s),
            "batch_s": spread(batch_s, 0.5, 0.9, 1.0),
            "requests": self._pace.judged - self._judged_before,
        }

    def close(self) -> None:
        self._consumer.close()

    def _end(self) -> int:
        try:
            found = self._consumer.get_watermark_offsets(self._source, timeout=TIMEOUT_S)
        except KafkaException as problem:
            raise CannotReach("The end of the markers is not known", str(self._source)) from problem
        return int(found[1])

    def _read(self) -> None:
        """All that is there by now. Raises CannotReach."""
        end = self._end()
        while self._position < end:
            message = self._consumer.poll(TIMEOUT_S)
            if message is None:
                raise CannotReach("The markers cannot be read to their end", str(self._source))
            error, offset = message.error(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise CannotReach("The markers cannot be read", error.str())
            assert offset is not None
            if error is not None:  # behind the marks of transactions, which take offsets too
                self._position = offset
                continue
            self._position = offset + 1
            if message.key() == MARKER_KEY:
                _, written_ms = message.timestamp()
                marker = decode_marker(message.value() or b"")
                self._pace.saw(marker, written_ms / 1000, self._requests)

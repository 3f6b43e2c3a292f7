"""Another cluster than the coordinator's, in memory: who writes there, and who reads.

As much of Kafka as records of the coordinator's transactions need: logs, an idempotent producer
that writes in order and once however often it tries, and a consumer of partitions that it is given.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.core.wire.data_headers import MARKER_HEADER, Marker, Stamp, read_headers
from tests.tools.simulation.scheduler import Process
from tests.tools.simulation.transactions.traps import Struck
from tests.tools.simulation.transport import Network

#: What is written there.
ABROAD: Final = "abroad"
NAME: Final = "another-cluster"
RETRY_MS: Final = 200
#: For how long a marker that was struck waits until those before it are written.
MARKS_WITHIN_MS: Final = 3_000
#: Where the process of a producer may die, or be stopped, while it uses it.
WRITING, WRITTEN, DECIDED, MARKING = "writing", "written", "decided", "marking"
Headers = Sequence[tuple[str, Any]]


class FarRecord(NamedTuple):
    """One record; `repeats`: the offset of the one that it is a copy of, -1: it is none."""

    value: bytes | None
    headers: Headers
    repeats: int = -1

    @property
    def said(self) -> Stamp | Marker | None:
        """What its headers say."""
        return read_headers(self.headers, has_value=self.value is not None)


class FarCluster:
    """One topic in it."""

    def __init__(self, partitions: int) -> None:
        self.logs: list[list[FarRecord]] = [[] for _ in range(partitions)]
        self.is_up = True

    def append(self, partition: int, record: FarRecord) -> int:
        """Its offset."""
        self.logs[partition].append(record)
        return len(self.logs[partition]) - 1

    def require_up(self) -> None:
        """Raises KafkaException."""
        if not self.is_up:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


class _Queued(NamedTuple):
    partition: int
    record: FarRecord
    since_ms: int
    on_delivery: Any


class FarProducer:
    """The idempotent producer of one process: `Writes`, simulated.

    Args:
        gives_up_after_ms: `message.timeout.ms`.
    """

    def __init__(
        self, process: Struck, cluster: FarCluster, network: Network, gives_up_after_ms: int
    ) -> None:
        self._process, self._cluster, self._network = process, cluster, network
        self._gives_up_after_ms = gives_up_after_ms
        self._queue: deque[_Queued] = deque()
        self._is_pumping = False
        #: Written, and not reported.
        self._flying = 0
        self._reports: deque[tuple[Any, KafkaError | None]] = deque()
        #: Markers since the last record.
        self._marks = 0

    # ---- calls of the client -------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: Any,
        _key: Any,
        partition: int,
        *,
        headers: Headers,
        timestamp: int,
        on_delivery: Any,
    ) -> None:
        assert (topic, timestamp) == (ABROAD, 0)
        is_marker = any(name == MARKER_HEADER for name, _ in headers)
        if is_marker:
            self._strike_before_marker()
        self._marks = self._marks + 1 if is_marker else 0
        written = value.encode() if isinstance(value, str) else value
        record = FarRecord(written, tuple(headers))
        self._queue.append(_Queued(partition, record, self._now_ms, on_delivery))
        self._pump_after(self._network.latency_ms())
        if not is_marker:
            self._process.maybe_crash(WRITING)

    def poll(self, timeout: float) -> int:
        if not self._reports and timeout > 0:
            self._process.wait(timeout * 1_000, lambda: bool(self._reports))
        count = len(self._reports)
        for _ in range(count):
            told, error = self._reports.popleft()
            told(error, None)
        return count

    def flush(self, timeout: float) -> int:
        self._process.wait(timeout * 1_000, lambda: not (self._queue or self._flying))
        self.poll(0)
        return len(self._queue) + self._flying

    def purge(self) -> None:
        self._queue.clear()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self._require_reachable()
        partitions = dict.fromkeys(range(len(self._cluster.logs)))
        known = {ABROAD: SimpleNamespace(partitions=partitions, error=None)}
        return SimpleNamespace(cluster_id=NAME, topics=known)

    # ---- records -------------------------------------------------------------------------------

    def _strike_before_marker(self) -> None:
        """Nothing is marked yet; or one partition is, and the others are not."""
        if self._marks == 0:
            self._process.maybe_crash(DECIDED)
        elif self._marks == 1 and MARKING in self._process.traps.at:
            self._process.wait(MARKS_WITHIN_MS, lambda: not self._queue)
            self._process.maybe_crash(MARKING)

    def _pump_after(self, delay_ms: float) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            self._process.after(delay_ms, self._pump)

    def _pump(self) -> None:
        """Write all that is queued, in order; what waited too long is given up."""
        self._is_pumping = False
        while self._queue and self._now_ms - self._queue[0].since_ms > self._gives_up_after_ms:
            given_up = self._queue.popleft()
            self._reports.append((given_up.on_delivery, KafkaError(KafkaError._MSG_TIMED_OUT)))
        if not self._is_reachable:
            if self._queue:
                self._pump_after(RETRY_MS)
            return
        while self._queue:
            each = self._queue.popleft()
            self._cluster.append(each.partition, each.record)
            self._flying += 1
            self._process.after(self._network.latency_ms(), partial(self._report, each))

    def _report(self, written: _Queued) -> None:
        if not self._is_reachable or self._network.loses_acks:
            self._process.after(RETRY_MS, partial(self._report, written))
            return
        self._flying -= 1
        self._reports.append((written.on_delivery, None))
        if written.record.value is not None:
            self._process.traps.spring(self._process, WRITTEN)

    # ---- small things --------------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        return self._process.scheduler.now_ms

    @property
    def _is_reachable(self) -> bool:
        return self._cluster.is_up and not self._network.is_cut

    def _require_reachable(self) -> None:
        if not self._is_reachable:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


class FarMessage:
    """As much of a confluent-kafka Message as a reader looks at."""

    def __init__(self, partition: int, offset: int, record: FarRecord | None) -> None:
        self._partition, self._offset, self._record = partition, offset, record

    def topic(self) -> str:
        return ABROAD

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return None if self._record is None else self._record.value

    def headers(self) -> Headers:
        return () if self._record is None else self._record.headers

    def error(self) -> KafkaError | None:
        """The end of the partition, if it is no record."""
        return KafkaError(KafkaError._PARTITION_EOF) if self._record is None else None

    def __len__(self) -> int:
        return len(self.value() or b"")


class FarConsumer:
    """As much of a confluent-kafka Consumer as `CommittedReader` uses."""

    def __init__(self, process: Process, cluster: FarCluster) -> None:
        self._process, self._cluster = process, cluster
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()
        #: Ends that were told of.
        self._told: dict[int, int] = {}

    def assign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        self._positions = {each.partition: each.offset for each in partitions}

    def pause(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        self._paused |= {each.partition for each in partitions}

    def resume(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        self._paused -= {each.partition for each in partitions}

    def poll(self, timeout: float) -> FarMessage | None:
        found = self._next()
        if found is None and timeout > 0:
            self._process.wait(timeout * 1_000, lambda: False)
            found = self._next()
        return found

    def get_watermark_offsets(
        self, partition: KafkaTopicPartition, _timeout: float, _cached: bool
    ) -> tuple[int, int]:
        self._cluster.require_up()
        return 0, len(self._cluster.logs[partition.partition])

    def close(self) -> None:
        self._positions.clear()

    def _next(self) -> FarMessage | None:
        for number, position in self._positions.items() if self._cluster.is_up else ():
            log = self._cluster.logs[number]
            if number in self._paused:
                continue
            if position < len(log):
                self._positions[number] = position + 1
                return FarMessage(number, position, log[position])
            if self._told.get(number) != position:
                self._told[number] = position
                return FarMessage(number, position, None)
        return None

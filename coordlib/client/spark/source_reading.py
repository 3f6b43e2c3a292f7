"""Reading the ranges of one batch on an executor, as Arrow batches.

A worker process keeps one consumer per set of options: a task that follows another one in the same
process continues with its connections. What was fetched beyond a range is dropped.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark.source_offsets import PlannedRange
from coordlib.client.spark.source_options import SourceOptions
from coordlib.errors import CannotReach
from coordlib.kafka.clients import reason_of

_log = structlog.get_logger()
ROWS_MAX: Final = 10_000
BYTES_MAX: Final = 8 << 20
#: A task that yields nothing for this long yields what it has.
YIELD_S: Final = 1.0
IDLE_S: Final = 60.0
#: Seconds without a record after which a task fails.
SILENCE_S: Final = 120.0
_ASK_S: Final = 10.0
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


@dataclass(frozen=True, slots=True)
class Task(InputPartition):
    """What one task reads."""

    ranges: Mapping[TopicPartition, PlannedRange]


def schema_of(options: SourceOptions) -> StructType:
    """Spark's schema of its Kafka source; `fence` is added."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if options.include_headers:
        fields.append(StructField("headers", ArrayType(_HEADER)))
    if options.include_fence:
        fields.append(StructField("fence", LongType()))
    return StructType(fields)


class _Consumers:
    """The consumers of this process, by their options."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[tuple[tuple[str, str], ...], tuple[Consumer, float]] = {}
        self._closer: threading.Thread | None = None

    def take(self, config: Mapping[str, str]) -> Consumer:
        """One that nobody else uses until it is given back."""
        with self._lock:
            found = self._idle.pop(tuple(sorted(config.items())), None)
        return found[0] if found else Consumer(dict(config))

    def give_back(self, config: Mapping[str, str], consumer: Consumer) -> None:
        with self._lock:
            before = self._idle.pop(key := tuple(sorted(config.items())), None)
            self._idle[key] = (consumer, time.monotonic())
            if self._closer is None:
                self._closer = threading.Thread(target=self._close_idle, daemon=True)
                self._closer.start()
        if before is not None:
            before[0].close()

    def _close_idle(self) -> None:
        while True:
            time.sleep(IDLE_S / 4)
            with self._lock:
                until_s = time.monotonic() - IDLE_S
                old = [key for key, (_, at_s) in self._idle.items() if at_s < until_s]
                closing = [self._idle.pop(key)[0] for key in old]
            for each in closing:
                each.close()


_CONSUMERS = _Consumers()


def reader_config(options: SourceOptions) -> dict[str, str]:
    """librdkafka's configuration of a task's consumer, which never commits."""
    return {
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": "100",
        "queued.min.messages": "200000",
        **options.data,
        "group.id": options.group,
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "error",
        "allow.auto.create.topics": "false",
    }


def read_task(options: SourceOptions, task: Task) -> Iterator[pa.RecordBatch]:
    """The records of a task's ranges, each partition's in order.

    Raises:
        CannotReach: the brokers send nothing.
        KafkaException: they refuse.
    """
    config = reader_config(options)
    consumer = _CONSUMERS.take(config)
    try:
        consumer.assign([KafkaPartition(*place, each.begin) for place, each in task.ranges.items()])
        yield from _Reading(consumer, options, task).batches()
        consumer.unassign()
    except BaseException:
        consumer.close()
        raise
    _CONSUMERS.give_back(config, consumer)


class _Reading:
    """One task: which ranges are not read to their end yet, and the rows that were read."""

    def __init__(self, consumer: Consumer, options: SourceOptions, task: Task) -> None:
        self._consumer, self._options = consumer, options
        self._left = dict(task.ranges)
        self._rows = _Rows(options)
        #: The newest, to be named where nothing comes.
        self._error: KafkaError | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = self._rows
        read_s = yielded_s = time.monotonic()
        while self._left:
            messages = self._consumer.consume(ROWS_MAX - len(rows), 0.1)
            if not messages and time.monotonic() - read_s > SILENCE_S:
                names = ", ".join(f"{each.topic}-{each.partition}" for each in sorted(self._left))
                reason = "" if self._error is None else f": {reason_of(self._error)}"
                raise CannotReach(f"The brokers send no records{reason}", names, "Do they run?")
            for message in messages:
                if self._take(message):
                    read_s = time.monotonic()
                if rows.size >= BYTES_MAX:
                    yield rows.take()
            if len(rows) >= ROWS_MAX or (len(rows) and time.monotonic() - yielded_s > YIELD_S):
                yield rows.take()
                yielded_s = time.monotonic()
        if len(rows):
            yield rows.take()

    def _take(self, message: Message) -> bool:
        """Whether it is a record, or says how far a log goes."""
        place = TopicPartition(str(message.topic()), int(message.partition() or 0))
        error, offset = message.error(), int(message.offset() or 0)
        is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        if error is not None and not is_end:
            self._error = error
        if (wanted := self._left.get(place)) is None:
            return False  # fetched beyond the range's end, or of no partition
        if error is None:
            if offset < wanted.end:
                self._rows.add(message, wanted.fence)
            is_read = offset + 1 >= wanted.end
        elif is_end:
            is_read = offset >= wanted.end
        else:
            is_read = self._is_gone(error, place, wanted)
        if is_read:
            # A range ends at a position: what lies before it may be a marker, or compacted away.
            del self._left[place]
            self._consumer.incremental_unassign([KafkaPartition(*place)])
        return error is None or is_read

    def _is_gone(self, error: KafkaError, place: TopicPartition, wanted: PlannedRange) -> bool:
        """Whether all of the range's records are gone for ever; what is left of them is read on.

        Raises KafkaException.
        """
        if error.code() not in _GONE:
            if error.retriable() or error.code() in _TRANSIENT:
                return False
            raise KafkaException(error)
        if self._options.is_strict:
            raise KafkaException(error)
        where = f"{place.topic}-{place.partition}"
        start = wanted.end if error.code() in _NO_TOPIC else self._start_of(place)
        _log.warning("records are gone before they were read", where=where, log_start=start)
        if start >= wanted.end:
            return True
        self._consumer.incremental_unassign([KafkaPartition(*place)])
        self._consumer.incremental_assign([KafkaPartition(*place, start)])
        return False

    def _start_of(self, place: TopicPartition) -> int:
        low, _ = self._consumer.get_watermark_offsets(KafkaPartition(*place), timeout=_ASK_S)
        return int(low)


_TRANSIENT: Final = frozenset(
    {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE}
)
_NO_TOPIC: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC}
)
_GONE: Final = _NO_TOPIC | {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class _Rows:
    """Columns of one Arrow batch that grows."""

    def __init__(self, options: SourceOptions) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._schema = to_arrow_schema(schema_of(options), timezone="UTC")
        self._options = options
        self._clear()

    def _clear(self) -> None:
        self.size = 0
        self._messages: list[Message] = []
        self._fences: list[int] = []

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Message, fence: int) -> None:
        self.size += len(message)
        self._messages.append(message)
        self._fences.append(fence)

    def take(self) -> pa.RecordBatch:
        some = self._messages
        times = [each.timestamp() for each in some]
        columns: list[Any] = [
            [each.key() for each in some],
            [each.value() for each in some],
            [each.topic() for each in some],
            [each.partition() for each in some],
            [each.offset() for each in some],
            [at * 1000 for _, at in times],
            [kind - 1 for kind, _ in times],
        ]
        if self._options.include_headers:
            columns.append([_headers(each) for each in some])
        if self._options.include_fence:
            columns.append(self._fences)
        arrays = [
            pa.array(column, type=field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _headers(message: Message) -> list[dict[str, Any]] | None:
    found = message.headers()
    if found is None:
        return None
    return [{"key": header[0], "value": header[1]} for header in found]

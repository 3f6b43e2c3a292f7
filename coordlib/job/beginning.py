"""What a driver finds before its first query: states to begin from, and sizes of requests."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from coordlib import limits
from coordlib.config import EngineConfig
from coordlib.core.wire.stored import Marker
from coordlib.errors import CannotReach
from coordlib.job import rebuild
from coordlib.job.batch import BatchSize, means_of, other_shards_bytes
from coordlib.job.checkpoint import CheckpointFolder, Identity
from coordlib.job.operator import Beginning
from coordlib.job.pipelines import Pipeline
from coordlib.job.progress import NewestByKey
from coordlib.job.rebuild import Replay
from coordlib.kafka.clients import denial, reader_config, reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Places in each partition, and how many records, or bytes of them, are read at each.
PLACES: Final = 16
SAMPLE: Final = 50
_SAMPLE_BYTES: Final = limits.REQUEST_BYTES_MAX
#: Of a span that is read whole: as much as at all places of a longer one.
_WHOLE_BYTES: Final = PLACES * _SAMPLE_BYTES
_SILENCE_S: Final = 20.0
_POLL_S: Final = 0.1
#: Errors about the group have no meaning: it is never joined.
_PASSING: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED})

#: (topic, partition) -> first and next offset of what waits.
Waiting = Mapping[tuple[str, int], tuple[int, int]]


class Reader(Protocol):
    """As much of confluent-kafka's Consumer as is used here."""

    def assign(self, partitions: list[TopicPartition], /) -> Any: ...

    def incremental_unassign(self, partitions: list[TopicPartition], /) -> Any: ...

    def consume(self, num_messages: int, timeout: float, /) -> list[Message]: ...

    def get_watermark_offsets(
        self, partition: TopicPartition, /, timeout: float
    ) -> tuple[int, int] | None: ...


def mean_bytes_waiting(
    client_options: Mapping[str, str],
    topics: Sequence[str],
    partitions: Sequence[int],
    next_offsets: Mapping[str, Mapping[str, int]],
) -> dict[str, float]:
    """Topic -> the mean size of the records that wait, where they are largest; 0: none wait.

    Args:
        client_options: librdkafka's, with `bootstrap.servers`.
        topics: the input topics, with their prefix.
        partitions: those of each of them that are read.
        next_offsets: topic -> partition -> first record that is not judged yet; absent: all.

    Raises:
        CannotReach: the broker does not answer.
    """
    consumer = Consumer(
        {
            **reader_config(client_options, is_committed=False),  # as the source reads
            "queued.max.messages.kbytes": 16 * limits.KIB,
        }
    )
    try:
        places = [(topic, partition) for topic in topics for partition in partitions]
        waiting = {place: _waiting(consumer, place, next_offsets) for place in places}
        return {
            topic: largest_mean(
                consumer, {place: span for place, span in waiting.items() if place[0] == topic}
            )
            for topic in topics
        }
    except KafkaException as problem:
        raise denial(problem, reading(topics[0]), client_options) or CannotReach(
            f"The requests that wait cannot be read: {problem.args[0].str()}",
            ", ".join(topics),
            "Check that the broker runs and that this job may read the topics.",
        ) from problem
    finally:
        consumer.close()


def _waiting(
    consumer: Reader, place: tuple[str, int], next_offsets: Mapping[str, Mapping[str, int]]
) -> tuple[int, int]:
    topic, partition = place
    bounds = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_SILENCE_S)
    start, end = bounds or (0, 0)
    return max(start, next_offsets.get(topic, {}).get(str(partition), 0)), end


def largest_mean(consumer: Reader, waiting: Waiting) -> float:
    """Of all places that are looked at, the largest mean size of records; 0: none wait."""
    few = {place: first for place, (first, end) in waiting.items() if 0 < end - first <= SAMPLE}
    many = {place: span for place, span in waiting.items() if span[1] - span[0] > SAMPLE}
    means = [0.0, *_means(consumer, few, _WHOLE_BYTES)]
    for number in range(PLACES):
        starts = {
            place: first + (end - first) * number // PLACES for place, (first, end) in many.items()
        }
        means += _means(consumer, starts, _SAMPLE_BYTES)
    return max(means)


def _means(consumer: Reader, starts: Mapping[tuple[str, int], int], bytes_max: int) -> list[float]:
    """The mean size of the records at one place of each partition, from `bytes_max` of them."""
    if not starts:
        return []
    consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
    sizes: dict[tuple[str, int], list[int]] = {place: [] for place in starts}
    missing = set(starts)
    deadline = time.monotonic() + _SILENCE_S
    while missing:
        done: list[TopicPartition] = []
        for message in consumer.consume(SAMPLE, _POLL_S):
            place = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is not None and error.code() not in _PASSING:
                raise KafkaException(error)
            if place not in missing:  # it does not keep the others waited for
                continue
            deadline = time.monotonic() + _SILENCE_S
            if error is None:
                sizes[place].append(len(message.value() or b""))
            if error is not None or _is_enough(sizes[place], bytes_max):
                missing.discard(place)
                done.append(TopicPartition(*place))
        if done and missing:
            consumer.incremental_unassign(done)
        if missing and time.monotonic() > deadline:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return [sum(found) / len(found) for found in sizes.values() if found]


def _is_enough(sizes: list[int], bytes_max: int) -> bool:
    return len(sizes) >= SAMPLE or sum(sizes) >= bytes_max


_log = structlog.get_logger()


def beginning_of(
    folder: CheckpointFolder,
    identity: Identity,
    marker: Marker | None,
    pipeline: Pipeline,
    newest_by_key: NewestByKey,
    id_pages: Mapping[bytes, bytes],
    replay: Replay | None = None,
) -> Beginning:
    """The states that shards begin from.

    A committed batch that this code judged differently is not judged again: the topics have its
    outcome, so the shards that take part in it go on from there.  # INV-34
    """
    seeds, difference = folder.seeds(identity, marker), folder.difference()
    newest = (marker.checkpoint, marker.batch) if marker else None
    noted = (difference.checkpoint, difference.batch) if difference else None
    if difference is None or noted != newest or difference.checkpoint != identity.checkpoint:
        return Beginning(seeds, {}, taken_over=-1)
    _log.warning("batch is taken over: other code processed it", batch=difference.batch)
    blobs = rebuild.seed_blobs(newest_by_key, id_pages, pipeline, identity.shards, marker, replay)
    return Beginning(seeds, blobs, taken_over=difference.batch)


def size_of_batches(
    client_options: Mapping[str, str],
    pipeline: Pipeline,
    shards: int,
    marker: Marker | None,
    engine: EngineConfig,
    memory: "Memory",
) -> BatchSize:
    """How many records a batch may have, by those that wait. Raises CannotReach."""
    own = pipeline.shards(shards)
    mean_bytes = mean_bytes_waiting(
        client_options,
        list(pipeline.inputs.values()),
        own,
        marker.next_offsets if marker else {},
    )
    size = BatchSize(
        engine.max_offsets_per_trigger,
        memory.worker_bytes,
        means_of(mean_bytes, pipeline.first_input),
        time.monotonic(),
        memory.collected_bytes,
        other_shards_bytes(len(own), shards),
    )
    if size.records < engine.max_offsets_per_trigger:
        _log.warning(
            "batches have fewer records: those that wait need more memory, or write more",
            records=size.records,
            mean_bytes={topic: round(mean) for topic, mean in mean_bytes.items()},
        )
    return size


class Memory(NamedTuple):
    """What a batch may need."""

    #: Of one Python worker: the setting, or Spark's own limit, if that is less.
    worker_bytes: int
    #: Outputs that the driver collects: Spark's limit (0: none), or half of the heap, if less.
    collected_bytes: int

    @classmethod
    def of(cls, spark: "SparkSession", engine: EngineConfig) -> Self:
        """As the session has it."""
        conf = spark.sparkContext.getConf()
        jvm = spark.sparkContext._jvm
        assert jvm is not None

        def size_of(name: str, unset: str = "0") -> int:
            text = conf.get(name) or unset
            parse = jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes
            return int(parse(text))

        worker_bytes = engine.worker_memory_bytes
        if limit := size_of("spark.executor.pyspark.memory"):
            worker_bytes = min(limit // int(conf.get("spark.executor.cores") or 1), worker_bytes)
        heap_bytes = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
        limit = size_of("spark.driver.maxResultSize", "1g") or heap_bytes
        return cls(worker_bytes, min(limit, heap_bytes // 2))

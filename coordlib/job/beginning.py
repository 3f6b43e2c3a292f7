"""What a driver finds before its first query: states to begin from, and sizes of requests."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Self

import structlog

from coordlib.config import EngineConfig
from coordlib.core.wire.stored import Marker
from coordlib.job import rebuild
from coordlib.job.backlog import mean_bytes_waiting
from coordlib.job.batch_size import BatchSize, beside_bytes, means_of
from coordlib.job.checkpoint import CheckpointFolder, Identity
from coordlib.job.operator import Beginning
from coordlib.job.plane import Plane
from coordlib.job.progress import NewestByKey
from coordlib.job.replay import Replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger()


def beginning_of(
    folder: CheckpointFolder,
    identity: Identity,
    marker: Marker | None,
    plane: Plane,
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
    _log.warning("batch is taken over: other code judged it", batch=difference.batch)
    blobs = rebuild.seed_blobs(newest_by_key, id_pages, plane, identity.shards, marker, replay)
    return Beginning(seeds, blobs, taken_over=difference.batch)


def size_of_batches(
    client_options: Mapping[str, str],
    plane: Plane,
    shards: int,
    marker: Marker | None,
    engine: EngineConfig,
    memory: "Memory",
) -> BatchSize:
    """How many records a batch may have, by those that wait. Raises CannotReach."""
    own = plane.shards(shards)
    mean_bytes = mean_bytes_waiting(
        client_options,
        list(plane.inputs.values()),
        own,
        marker.next_offsets if marker else {},
    )
    size = BatchSize(
        engine.max_offsets_per_trigger,
        memory.worker_bytes,
        means_of(mean_bytes, plane.first_input),
        time.monotonic(),
        memory.collected_bytes,
        beside_bytes(len(own), shards),
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

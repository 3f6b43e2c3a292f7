"""What a driver finds before its first query: states to begin from, and sizes of requests."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from coordlib import limits
from coordlib.config import EngineConfig
from coordlib.records.stored import Marker
from coordlib.streaming import rebuild
from coordlib.streaming.backlog import mean_bytes_waiting
from coordlib.streaming.batch_size import BatchSize
from coordlib.streaming.checkpoint import CheckpointFolder, Identity
from coordlib.streaming.operator import Beginning
from coordlib.streaming.plane import Plane
from coordlib.streaming.progress import NewestByKey
from coordlib.streaming.replay import Replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger()


def beginning_of(
    folder: CheckpointFolder,
    identity: Identity,
    marker: Marker | None,
    plane: Plane,
    newest_by_key: NewestByKey,
    replay: Replay | None = None,
) -> Beginning:
    """The states that shards begin from.

    A committed batch that this code judged differently is not judged again: the topics have its
    outcome, so the shards that take part in it go on from there.  # INV-34
    """
    seeds, difference = folder.seeds(identity, marker), folder.difference()
    newest = (marker.checkpoint, marker.batch) if marker else None
    if difference is None or newest != (identity.checkpoint, difference):
        return Beginning(seeds, {}, taken_over=-1)
    _log.warning("batch is taken over: other code judged it", batch=difference)
    blobs = rebuild.seed_blobs(newest_by_key, plane, identity.shards, marker, replay)
    return Beginning(seeds, blobs, taken_over=difference)


def size_of_batches(
    client_options: Mapping[str, str],
    plane: Plane,
    shards: int,
    marker: Marker | None,
    engine: EngineConfig,
    memory_bytes: int,
) -> BatchSize:
    """How many records a batch may have, by those that wait. Raises CannotReach."""
    mean_bytes = mean_bytes_waiting(
        client_options,
        list(plane.inputs.values()),
        plane.shards(shards),
        marker.next_offsets if marker else {},
    )
    size = BatchSize(engine.max_offsets_per_trigger, memory_bytes, mean_bytes, time.monotonic())
    if size.records < engine.max_offsets_per_trigger:
        _log.warning(
            "large requests wait: batches have fewer records",
            records=size.records,
            mean_bytes=round(mean_bytes),
        )
    return size


def worker_memory_bytes(spark: "SparkSession", engine: EngineConfig) -> int:
    """The memory of one Python worker: the setting, or Spark's own limit, if that is less."""
    conf = spark.sparkContext.getConf()
    limit = conf.get("spark.executor.pyspark.memory")
    if not limit:
        return engine.worker_memory_bytes
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    limit_mib = int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb(limit))
    cores = int(conf.get("spark.executor.cores") or 1)
    return min(limit_mib * limits.MIB // cores, engine.worker_memory_bytes)

"""The levers of a batch's time, switched from outside: the job has no flag for any of them.

Each is found where the job looks when it starts a query, and is put back when the block ends.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from coordlib.job import checkpoint, pipelines, query
from coordlib.job.main import coordinator
from coordlib.local import class_archive
from tests.tools.bench import batch_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HADOOPS: Final = "org.apache.hadoop.fs.LocalFileSystem"
_FILES: Final = class_archive.QUIET_PROPERTY.removeprefix("spark.hadoop.")
#: Otherwise the first block's file system would be everybody's.
_FILES_UNCACHED: Final = "fs.file.impl.disable.cache"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_RETAINED: Final = "spark.sql.streaming.minBatchesToRetain"
#: Of Kafka's consumer in Spark.
_FETCHED: Final = {
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}


@contextmanager
def switched(spark: "SparkSession", on: Collection[str]) -> Iterator[None]:
    """These levers are on and all others off, for a coordinator that is made and ends here."""
    spark.conf.set(_PARTITIONS, "1" if "partitions" in on else "2")
    spark.conf.set(_RETAINED, "2" if "retained" in on else "10")
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set(_FILES, class_archive.QUIET_CLASS if "files" in on else _HADOOPS)
    hadoop.set(_FILES_UNCACHED, "true")
    with ExitStack() as stack:
        stack.enter_context(patch.object(coordinator, "groups", _folding(on)))
        if "codegen" not in on:
            stack.enter_context(patch.object(query, "QUERY_CONF", {}))
        if "fetched" in on:
            stack.enter_context(patch.object(query, "read_inputs", _fetching_more))
        if "keys" not in on:
            stack.enter_context(patch.object(checkpoint, "balanced", _shard_numbers))
        yield


def _fetching_more(
    spark: "SparkSession",
    inputs: Mapping[str, str],
    options: Mapping[str, str],
    *others: Any,
) -> "DataFrame":
    return query.read_inputs(spark, inputs, {**options, **_FETCHED}, *others)


def _folding(on: Collection[str]) -> Callable[..., pipelines.Pipeline]:
    fold, fold_pages = batch_worker.fold_thawed, batch_worker.fold_pages_thawed
    if "gc" in on:
        fold, fold_pages = batch_worker.fold_frozen, batch_worker.fold_pages_frozen
    switch: dict[str, Any] = {"fold": fold, "fold_pages": fold_pages if "pages" in on else None}
    return lambda *of_job: replace(pipelines.groups(*of_job), **switch)


def _shard_numbers(shards: int, partitions: int) -> tuple[int, ...]:
    return tuple(range(shards))

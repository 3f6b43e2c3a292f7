"""The fold as a Spark operator: one key per shard, its state in pages or in one blob."""

import resource
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from coordlib.core.engine.pages import Kept, Packing, StoredPages, Turn
from coordlib.core.engine.state import (
    STATE_VERSION,
    UNTRUSTED_TIME_MS,
    InputRecord,
    ShardSettings,
)
from coordlib.job.batch import (
    EMPTY_ROW,
    PACKED_BYTES,
    UNREADABLE,
    FoldFn,
    FoldingPages,
    Judged,
    UnreadableState,
    held_bytes_max,
    judge_readable,
    output_rows,
    too_large,
    values_bytes,
)
from coordlib.job.crash import CrashPoint
from coordlib.job.pipelines import Pipeline

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.broadcast import Broadcast
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

#: A blob or a part; a state in pages.
_ZSTD: Final = b"\x01"
_PAGES: Final = b"\x02"
#: The size of a blob unpacked stands behind the first byte.
_SIZE_BYTES: Final = 8
#: The checksum of all parts stands behind the first byte: zstd alone lets a damaged byte pass.
_SUM_BYTES: Final = 4
#: Of a worker's memory. Rows that are kept take up to twice their bytes.
KEPT_SHARE: Final = 8

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(StoredPages).decode


def pack_state(blob: bytes) -> bytes:
    """A shard's blob as the state store has it: the first byte names the form."""
    size = len(blob).to_bytes(_SIZE_BYTES, "big")
    packed: bytes = _codec().compress(blob, asbytes=True)
    return _ZSTD + size + packed


def unpack_state(stored: bytes) -> bytes:
    """The blob again. Raises UnreadableState."""
    try:
        if stored[:1] == _ZSTD and len(stored) > 1 + _SIZE_BYTES:
            return _unpack_zstd(memoryview(stored)[1:])
    except (OSError, ValueError, MemoryError) as problem:
        what = f"{type(problem).__name__}: {problem}"
        raise UnreadableState(f"it cannot be unpacked: {what}") from problem
    raise UnreadableState(f"it begins with {stored[:4]!r}, which no code has written")


def _unpack_zstd(stored: memoryview) -> bytes:
    size = int.from_bytes(stored[:_SIZE_BYTES], "big")
    blob: bytes = _codec().decompress(stored[_SIZE_BYTES:], decompressed_size=size, asbytes=True)
    if len(blob) != size:
        raise ValueError(f"{len(blob)} bytes, and not {size}")
    return blob


def _codec() -> Any:
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=1)


# -- in pages ------------------------------------------------------------------------------


def pack_pages(stored: StoredPages) -> bytes:
    """A state in pages as the state store has it; its parts are packed already."""
    parts = _encode(stored)
    return _PAGES + zlib.crc32(parts).to_bytes(_SUM_BYTES, "big") + parts


def unpack_pages(stored: bytes) -> StoredPages:
    """The state again. Raises UnreadableState."""
    if stored[:1] != _PAGES:
        raise UnreadableState(f"it begins with {stored[:4]!r}, which no code has written")
    expected, parts = stored[1 : 1 + _SUM_BYTES], memoryview(stored)[1 + _SUM_BYTES :]
    if zlib.crc32(parts).to_bytes(_SUM_BYTES, "big") != expected:
        raise UnreadableState("its pages are damaged: they have another checksum")
    try:
        return _decode(parts)
    except msgspec.MsgspecError as problem:
        raise UnreadableState(f"its pages cannot be read: {problem}") from problem


class KeptPages:
    """The pages of the shards that this process judged last. What they are for: `pages.py`.

    Another process may have judged a shard since; then those of its pages that changed are read.
    """

    def __init__(self) -> None:
        #: (pipeline, shard) -> its pages and how many bytes these have; the newest one last.
        self._of: dict[tuple[str, int], tuple[Kept, int]] = {}

    def take(self, pipeline: str, shard: int) -> Kept:
        """They are the caller's now: nothing is left of them if the batch fails."""
        kept, _ = self._of.pop((pipeline, shard), ({}, 0))
        return kept

    def put(self, pipeline: str, shard: int, kept: Kept, size_bytes: int, bytes_max: int) -> None:
        """Cache these pages; evict others to stay under the bound on bytes."""
        self._of[pipeline, shard] = kept, size_bytes
        while sum(size for _, size in self._of.values()) > bytes_max:
            del self._of[next(iter(self._of))]


#: Of this worker.
KEPT: Final = KeptPages()


STATE_SCHEMA: Final = "version INT, blob BINARY"
#: `outputs` are packed; the last row of a shard has none, and reports its state to the driver.
OUTPUT_SCHEMA: Final = "shard INT, seq INT, outputs BINARY, report BINARY"
COLUMNS: Final = ["shard", "seq", "outputs", "report"]
#: Spark's setting: rows after which a buffer is handed over.
ROWS_PER_BATCH: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


class Beginning(NamedTuple):
    """The states from which shards begin, other than those that Spark keeps."""

    #: Shard -> its blob where Spark has no state of it yet (rebuild).
    seeds: dict[int, bytes]
    #: Shard -> its blob at the end of the batch `taken_over`, from the topics.
    blobs: dict[int, bytes]
    #: A batch that is committed, and that this code judges differently; -1: none.
    taken_over: int


def judge(
    rows: "DataFrame",
    pipeline: Pipeline,
    settings: ShardSettings,
    beginning: "Broadcast[Beginning]",
    worker_memory_bytes: int,
    keys: Sequence[int],
) -> "DataFrame":
    """The outputs of each batch, with OUTPUT_SCHEMA; `settings.shard` is filled in per key.

    Args:
        keys: of each shard, in Spark's state.
    """
    from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
    from pyspark.sql.streaming.state import GroupStateTimeout

    key = F.array(*map(F.lit, keys))[F.col("shard")]
    shard_of = {key: shard for shard, key in enumerate(keys)}
    return (
        rows.withColumn("key", key)
        .groupBy("key")
        .applyInPandasWithState(
            _judge_shard(
                Judging(
                    pipeline.fold,
                    pipeline.fold_pages,
                    pipeline.label,
                    worker_memory_bytes,
                    pack_state,
                ),
                settings,
                beginning,
                shard_of,
                int(rows.sparkSession.conf.get(ROWS_PER_BATCH) or 0),
            ),
            OUTPUT_SCHEMA,
            STATE_SCHEMA,
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )


def _judge_shard(
    judging: "Judging",
    settings: ShardSettings,
    beginning: "Broadcast[Beginning]",
    shard_of: Mapping[int, int],
    rows_per_batch: int,
) -> Callable[[Any, Any, Any], Iterator["pd.DataFrame"]]:
    def judge_shard(
        key: tuple[int], frames: Iterator["pd.DataFrame"], state: "GroupState"
    ) -> Iterator["pd.DataFrame"]:
        import pandas as pd

        crash, batch = CrashPoint.from_environment(judging.label), _batch_number()
        shard = shard_of[int(key[0])]
        crash.maybe_crash("in-task", batch)
        bytes_max = held_bytes_max(own_memory_bytes(judging.worker_memory_bytes))
        records = gather(frames, bytes_max, f"batch {batch}, shard {shard}")
        own, begin = msgspec.structs.replace(settings, shard=shard), beginning.value
        if batch == begin.taken_over and shard in begin.blobs:
            fresh, rows = judging.take_over(begin.blobs[shard], records, own)
        elif state.exists:
            fresh, rows = judging.judge(bytes(state.get[1]), records, own)
        else:
            fresh, rows = judging.begin(begin.seeds.get(shard), records, own)
        state.update((STATE_VERSION, fresh))
        for some in pieces(rows, rows_per_batch):
            yield pd.DataFrame(some, columns=COLUMNS)
        crash.maybe_crash("task-ends", batch)

    return judge_shard


def judge_alone(
    spark: "SparkSession",
    folding: FoldFn,
    settings: ShardSettings,
    blob: bytes | None,
    records: list[InputRecord],
) -> "DataFrame":
    """The outputs of records of one shard, with OUTPUT_SCHEMA, beside any query.

    Args:
        settings: of that shard.
        blob: its state; None: it has none yet.
    """
    given = spark.sparkContext.broadcast((blob, records))
    rows_per_batch = int(spark.conf.get(ROWS_PER_BATCH) or 0)

    def judge_them(_frames: Iterator["pd.DataFrame"]) -> Iterator["pd.DataFrame"]:
        import pandas as pd

        _, rows = judge_readable(folding, *given.value, settings)
        for some in pieces(rows, rows_per_batch):
            yield pd.DataFrame(some, columns=COLUMNS)

    return spark.range(0, 1, 1, 1).mapInPandas(judge_them, OUTPUT_SCHEMA)


def pieces(rows: list[tuple[Any, ...]], rows_per_batch: int) -> Iterator[list[tuple[Any, ...]]]:
    """A shard's rows, in parts of which each is a buffer of its own in Python, Arrow and Java.

    Spark ends a buffer by the number of rows alone, and it grows by doubling, up to 2 GiB: a part
    that others follow is filled up with empty rows, which `assemble` leaves out.
    """
    some: list[tuple[Any, ...]] = []
    size_bytes = 0
    for row in rows:
        some.append(row)
        size_bytes += len(row[2] or b"")
        if size_bytes >= PACKED_BYTES and row is not rows[-1]:
            yield some + [EMPTY_ROW] * max(rows_per_batch + 1 - len(some), 0)
            some, size_bytes = [], 0
    yield some


def own_memory_bytes(worker_memory_bytes: int) -> int:
    """The memory of this worker, or the limit set by Spark or the system, if that is less."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return (
        worker_memory_bytes if limit == resource.RLIM_INFINITY else min(limit, worker_memory_bytes)
    )


def gather(frames: Iterable["pd.DataFrame"], bytes_max: int, part: str) -> list[InputRecord]:
    """All records of a shard's part of a batch; `part` names it.

    Raises:
        BatchTooLarge: they have more than `bytes_max` bytes, or than the worker has memory for.
            The rest is counted and not kept.
    """
    records: list[InputRecord] = []
    count = size_bytes = 0
    try:
        for frame in frames:
            some = list(_records(frame))
            count += len(some)
            size_bytes += values_bytes(some)
            if size_bytes <= bytes_max:
                records += some
            else:
                records.clear()
    except MemoryError:
        if not count:
            raise
        records.clear()
        raise too_large(part, count, size_bytes, bytes_max, is_out_of_memory=True) from None
    if size_bytes > bytes_max:
        raise too_large(part, count, size_bytes, bytes_max)
    return records


def _batch_number() -> int:
    """The batch that this task belongs to; -1: unknown."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return -1 if number is None else int(number)


class Judging(NamedTuple):
    """How one shard's part of a batch is judged, from its stored state to the next one.

    All raise UnreadableState, and nothing else for what somebody else wrote.
    """

    fold: FoldFn
    #: None: the pipeline's state is one blob.
    fold_pages: FoldingPages | None
    label: str
    worker_memory_bytes: int
    #: A blob, or a part of a state in pages.
    pack: Turn

    def judge(self, stored: bytes, records: list[InputRecord], settings: ShardSettings) -> Judged:
        """A batch of a shard that has a state."""
        if self.fold_pages is None:
            return self.begin(unpack_state(stored), records, settings)
        return self._judge_pages(unpack_pages(stored), records, settings)

    def begin(
        self, blob: bytes | None, records: list[InputRecord], settings: ShardSettings
    ) -> Judged:
        """A batch of a shard without pages: it is new or rebuilt, or its pipeline has none."""
        if self.fold_pages is not None:
            return self._judge_pages(blob, records, settings)
        fresh, rows = judge_readable(self.fold, blob, records, settings)
        return self.pack(fresh), rows

    def take_over(self, blob: bytes, records: list[InputRecord], settings: ShardSettings) -> Judged:
        """A part of a batch that is committed: see `take_over`."""
        fresh, rows = take_over(self.fold, blob, records, settings)
        if self.fold_pages is None:
            return self.pack(fresh), rows
        return self._judge_pages(fresh, [], settings)[0], rows

    def _judge_pages(
        self, before: StoredPages | bytes | None, records: list[InputRecord], own: ShardSettings
    ) -> Judged:
        assert self.fold_pages is not None
        kept = KEPT.take(self.label, own.shard)
        try:
            done = self.fold_pages(before, records, own, Packing(self.pack, unpack_state), kept)
        except UNREADABLE as problem:
            raise UnreadableState(f"shard {own.shard}: {problem}") from problem
        bytes_max = self.worker_memory_bytes // KEPT_SHARE
        KEPT.put(self.label, own.shard, done.kept, done.size_bytes, bytes_max)
        return pack_pages(done.stored), output_rows(
            done.outputs, done.status, done.size_bytes, records
        )


def take_over(
    folding: FoldFn, blob: bytes, records: list[InputRecord], settings: ShardSettings
) -> Judged:
    """A part of a batch that is committed: its outcome is `blob`, and nothing is written again."""
    done = folding(blob, [], settings)
    return done.blob, output_rows(done.outputs, done.status, len(done.blob), records)


def _records(frame: "pd.DataFrame") -> Iterator[InputRecord]:
    # A time that a client wrote decides nothing: the shard refuses such a record.
    times = frame["timestamp_ms"].where(frame["is_log_append"], UNTRUSTED_TIME_MS)
    return map(
        InputRecord,
        frame["topic"].tolist(),
        frame["offset"].tolist(),
        times.tolist(),
        frame["value"].tolist(),
    )

"""The fold as a Spark operator: one key per shard, one blob of state, rows in and outputs out.

Everything that decides lies in the pure core; this file gathers rows (they come in several
frames and in no order), hands them over, and turns outputs into rows: many of them into one,
because Python, Arrow and the JVM each take a row in hand several times, and a flood of refused
joins spent most of a batch there.
State is (version, blob): other types crash the worker or cannot evolve. The blob is compressed:
the JVM copies it several times and writes it out, every batch.
"""

import resource
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from coordlib.coordinators.shard.shard import (
    STATE_VERSION,
    UNTRUSTED_TIME_MS,
    Fold,
    InputRecord,
    ShardSettings,
    UnknownStateVersion,
)
from coordlib.streaming.batch import BatchReport, pack_outputs
from coordlib.streaming.batch_size import held_bytes_max, too_large
from coordlib.streaming.crash import Crash
from coordlib.streaming.plane import GROUPS, Folding

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.broadcast import Broadcast
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

STATE_SCHEMA: Final = "version INT, blob BINARY"
#: `outputs` are packed; the last row of a shard has none, and reports its state to the driver.
OUTPUT_SCHEMA: Final = "shard INT, seq INT, outputs BINARY, report BINARY"
COLUMNS: Final = ["shard", "seq", "outputs", "report"]

#: First byte of a packed blob, and of one that code of before has packed (zlib).
_ZSTD: Final = b"\x01"
_ZLIB: Final = b"\x78"
#: Its size unpacked stands behind the first byte.
_SIZE_BYTES: Final = 8


class UnreadableState(ValueError):
    """The blob of a shard is not what this code wrote. Known by its name: see `failures`."""


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
    folding: Folding,
    settings: ShardSettings,
    beginning: "Broadcast[Beginning]",
    worker_memory_bytes: int,
    keys: Sequence[int],
    label: str = GROUPS,
) -> "DataFrame":
    """The outputs of each batch, with OUTPUT_SCHEMA; `settings.shard` is filled in per key.

    Args:
        keys: of each shard, in Spark's state.
        label: the plane's.
    """
    from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
    from pyspark.sql.streaming.state import GroupStateTimeout

    key = F.array(*map(F.lit, keys))[F.col("shard")]
    shard_of = {key: shard for shard, key in enumerate(keys)}
    return (
        rows.withColumn("key", key)
        .groupBy("key")
        .applyInPandasWithState(
            _judge_shard(folding, settings, beginning, worker_memory_bytes, shard_of, label),
            OUTPUT_SCHEMA,
            STATE_SCHEMA,
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )


def _judge_shard(
    folding: Folding,
    settings: ShardSettings,
    beginning: "Broadcast[Beginning]",
    worker_memory_bytes: int,
    shard_of: Mapping[int, int],
    label: str,
) -> Callable[[Any, Any, Any], Iterator["pd.DataFrame"]]:
    def judge_shard(
        key: tuple[int], frames: Iterator["pd.DataFrame"], state: "GroupState"
    ) -> Iterator["pd.DataFrame"]:
        import pandas as pd

        crash, batch = Crash.from_environment(label), _batch_number()
        shard = shard_of[int(key[0])]
        crash.strike("in-task", batch)
        bytes_max = held_bytes_max(own_memory_bytes(worker_memory_bytes))
        records = gather(frames, bytes_max, f"batch {batch}, shard {shard}")
        own, begin = msgspec.structs.replace(settings, shard=shard), beginning.value
        if batch == begin.taken_over and shard in begin.blobs:
            fresh, rows = take_over(folding, begin.blobs[shard], records, own)
        else:
            blob = unpack_state(bytes(state.get[1])) if state.exists else begin.seeds.get(shard)
            fresh, rows = judge_readable(folding, blob, records, own)
        state.update((STATE_VERSION, pack_state(fresh)))
        yield pd.DataFrame(rows, columns=COLUMNS)
        crash.strike("task-ends", batch)

    return judge_shard


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
            size_bytes += _size_bytes(some)
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


def _size_bytes(records: Iterable[InputRecord]) -> int:
    return sum(len(record.value) for record in records if record.value is not None)


def pack_state(blob: bytes) -> bytes:
    """A shard's blob as the state store has it: the first byte names the form."""
    size = len(blob).to_bytes(_SIZE_BYTES, "big")
    packed: bytes = _codec().compress(blob, asbytes=True)
    return _ZSTD + size + packed


def unpack_state(stored: bytes) -> bytes:
    """The blob again, whichever code has packed it. Raises UnreadableState."""
    try:
        if stored[:1] == _ZLIB:
            return zlib.decompress(stored)
        if stored[:1] == _ZSTD and len(stored) > 1 + _SIZE_BYTES:
            return _unpack_zstd(memoryview(stored)[1:])
    except (zlib.error, OSError, ValueError, MemoryError) as problem:
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


def _batch_number() -> int:
    """The batch that this task belongs to; -1: unknown."""
    from pyspark import TaskContext

    context = TaskContext.get()
    told = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return -1 if told is None else int(told)


def judge_readable(
    folding: Folding, blob: bytes | None, records: list[InputRecord], settings: ShardSettings
) -> tuple[bytes, list[tuple[Any, ...]]]:
    """`judge_rows`; raises UnreadableState, and nothing else for what somebody else wrote."""
    try:
        return judge_rows(folding, blob, records, settings)
    except (msgspec.MsgspecError, UnknownStateVersion) as problem:
        raise UnreadableState(f"shard {settings.shard}: {problem}") from problem


def judge_rows(
    folding: Folding, blob: bytes | None, records: list[InputRecord], settings: ShardSettings
) -> tuple[bytes, list[tuple[Any, ...]]]:
    """One shard's part of a batch: its new blob, and rows of OUTPUT_SCHEMA, the report last."""
    outcome = folding(blob, records, settings)
    return outcome.blob, _rows(outcome, records)


def take_over(
    folding: Folding, blob: bytes, records: list[InputRecord], settings: ShardSettings
) -> tuple[bytes, list[tuple[Any, ...]]]:
    """A part of a batch that is committed: its outcome is `blob`, and nothing is written again."""
    outcome = folding(blob, [], settings)
    return outcome.blob, _rows(outcome, records)


def _rows(outcome: Fold, records: list[InputRecord]) -> list[tuple[Any, ...]]:
    shard = outcome.status.shard
    report = BatchReport(
        status=outcome.status,
        ranges=_ranges(records),
        state_bytes=len(outcome.blob),
        records=len(records),
        input_bytes=_size_bytes(records),
    )
    rows: list[tuple[Any, ...]] = [
        (shard, seq, packed, None) for seq, packed in enumerate(pack_outputs(outcome.outputs))
    ]
    rows.append((shard, len(rows), None, msgspec.json.encode(report)))
    return rows


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


def _ranges(records: list[InputRecord]) -> dict[str, tuple[int, int]]:
    ranges: dict[str, tuple[int, int]] = {}
    for letter in sorted({record.topic for record in records}):
        offsets = [record.offset for record in records if record.topic == letter]
        ranges[letter] = min(offsets), max(offsets)
    return ranges

"""The fold as a Spark operator: one key per shard, one blob of state, rows in and outputs out.

Everything that decides lies in the pure core; this file gathers rows (they come in several
frames and in no order), hands them over, and turns outputs into rows: many of them into one,
because Python, Arrow and the JVM each take a row in hand several times, and a flood of refused
joins spent most of a batch there.
State is (version, blob): other types crash the worker or cannot evolve. The blob is compressed:
the JVM copies it several times and writes it out, every batch.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from coordlib.coordinators.shard import (
    UNTRUSTED_TIME_MS,
    InputRecord,
    ShardSettings,
    UnknownStateVersion,
    fold,
)
from coordlib.streaming.batch import BatchReport, pack_outputs
from coordlib.streaming.crash import Crash

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.broadcast import Broadcast
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

STATE_SCHEMA: Final = "version INT, blob BINARY"
#: `outputs` are packed; the last row of a shard has none, and tells the driver where it stands.
OUTPUT_SCHEMA: Final = "shard INT, seq INT, outputs BINARY, report BINARY"
COLUMNS: Final = ["shard", "seq", "outputs", "report"]

STATE_VERSION: Final = 1
#: The fastest: a state of 20 MB takes 0.04 s each way.
_COMPRESSION_LEVEL: Final = 1


class UnreadableState(ValueError):
    """The blob of a shard is not what this code wrote. Known by its name: see `failures`."""


def judge(
    rows: "DataFrame", settings: ShardSettings, seeds: "Broadcast[dict[int, bytes]]"
) -> "DataFrame":
    """The outputs of each batch, with OUTPUT_SCHEMA; `settings.shard` is filled in per key."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    return rows.groupBy("shard").applyInPandasWithState(
        _judge_shard(settings, seeds),
        OUTPUT_SCHEMA,
        STATE_SCHEMA,
        "append",
        GroupStateTimeout.NoTimeout,
    )


def _judge_shard(
    settings: ShardSettings, seeds: "Broadcast[dict[int, bytes]]"
) -> Callable[[Any, Any, Any], Iterator["pd.DataFrame"]]:
    def judge_shard(
        key: tuple[int], frames: Iterator["pd.DataFrame"], state: "GroupState"
    ) -> Iterator["pd.DataFrame"]:
        import pandas as pd

        crash, batch = Crash.from_environment(), _batch_number()
        shard = int(key[0])
        crash.strike("in-task", batch)
        blob = unpack_state(bytes(state.get[1])) if state.exists else seeds.value.get(shard)
        records = [record for frame in frames for record in _records(frame)]
        fresh, rows = judge_readable(blob, records, msgspec.structs.replace(settings, shard=shard))
        state.update((STATE_VERSION, pack_state(fresh)))
        yield pd.DataFrame(rows, columns=COLUMNS)
        crash.strike("task-ends", batch)

    return judge_shard


def pack_state(blob: bytes) -> bytes:
    """A shard's blob as the state store has it."""
    return zlib.compress(blob, _COMPRESSION_LEVEL)


def unpack_state(stored: bytes) -> bytes:
    """The blob again. Raises UnreadableState."""
    try:
        return zlib.decompress(stored)
    except zlib.error as problem:
        raise UnreadableState(f"it cannot be unpacked: {problem}") from problem


def _batch_number() -> int:
    """Of the batch that this task belongs to; decides nothing but where a test wants a crash."""
    from pyspark import TaskContext

    context = TaskContext.get()
    told = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return -1 if told is None else int(told)


def judge_readable(
    blob: bytes | None, records: list[InputRecord], settings: ShardSettings
) -> tuple[bytes, list[tuple[Any, ...]]]:
    """`judge_rows`; raises UnreadableState, and nothing else for what somebody else wrote."""
    try:
        return judge_rows(blob, records, settings)
    except (msgspec.MsgspecError, UnknownStateVersion) as problem:
        raise UnreadableState(f"shard {settings.shard}: {problem}") from problem


def judge_rows(
    blob: bytes | None, records: list[InputRecord], settings: ShardSettings
) -> tuple[bytes, list[tuple[Any, ...]]]:
    """One shard's part of a batch: its new blob, and rows of OUTPUT_SCHEMA, the report last."""
    shard, outcome = settings.shard, fold(blob, records, settings)
    report = BatchReport(
        status=outcome.status, ranges=_ranges(records), state_bytes=len(outcome.blob)
    )
    rows: list[tuple[Any, ...]] = [
        (shard, seq, packed, None) for seq, packed in enumerate(pack_outputs(outcome.outputs))
    ]
    rows.append((shard, len(rows), None, msgspec.json.encode(report)))
    return outcome.blob, rows


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
    for topic in ("r", "o"):
        offsets = [record.offset for record in records if record.topic == topic]
        if offsets:
            ranges[topic] = (min(offsets), max(offsets))
    return ranges

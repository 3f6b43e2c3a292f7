"""A batch: how many records it may have, and what lies between operator and sink."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from coordlib import limits
from coordlib.core.engine import effects
from coordlib.core.engine.effects import Output
from coordlib.core.engine.pages import BrokenPages, Kept, Packing, PagesFold, StoredPages
from coordlib.core.engine.state import Fold, InputRecord, ShardSettings, Status, UnknownStateVersion
from coordlib.core.wire.stored import JudgedRecord

#: Of a record: it tells two apart that stand at one offset.
_DIGEST_BYTES: Final = 16


class BatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one shard to the driver about one batch."""

    status: Status
    #: Letter of an input -> first and last offset that the batch brought.
    ranges: dict[str, tuple[int, int]]
    state_bytes: int
    #: Records that the batch brought, and bytes of their values.
    records: int = 0
    input_bytes: int = 0
    #: Of its outputs, as they are packed.
    output_bytes: int = 0
    #: Letter of an input -> the newest record that the batch brought.
    newest: dict[str, JudgedRecord] = {}


def judged_record(record: InputRecord) -> JudgedRecord:
    """By what a judged record is found again: what was judged of it."""
    value = b"-" if record.value is None else b"+" + record.value
    digest = hashlib.blake2b(value, digest_size=_DIGEST_BYTES).hexdigest()
    return JudgedRecord(time_ms=record.timestamp_ms, digest=digest)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one micro-batch wants to be written."""

    number: int
    outputs: list[Output]
    reports: list[BatchReport]

    def digest(self) -> str:
        """SHA-256 over all outputs in order: two runs of one batch must agree."""
        return hashlib.sha256(_pack(self.outputs)).hexdigest()

    def ranges(self, inputs: Mapping[str, str]) -> dict[str, dict[str, tuple[int, int]]]:
        """topic -> partition -> first and last input offset; `inputs`: topics by letter."""
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for report in self.reports:
            for letter, (first, last) in report.ranges.items():
                found.setdefault(inputs[letter], {})[str(report.status.shard)] = (first, last)
        return found


_decode_report: Final = msgspec.json.Decoder(BatchReport).decode
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(list[Output]).decode
#: Outputs in one row, and bytes from which on a row is full: a few rows carry a flood, and none of
#: them comes near Arrow's 2 GiB.
PACKED_OUTPUTS: Final = 200
PACKED_BYTES: Final = 16 * limits.MIB


#: A row of a shard without anything in it.
EMPTY_ROW: Final = (-1, -1, None, None)


def pack_outputs(outputs: list[Output]) -> Iterator[bytes]:
    """Outputs as few rows carry them, in order."""
    some: list[Output] = []
    size_bytes = 0
    for output in outputs:
        some.append(output)
        size_bytes += len(output.value or b"")
        if len(some) == PACKED_OUTPUTS or size_bytes >= PACKED_BYTES:
            yield _pack(some)
            some, size_bytes = [], 0
    if some:
        yield _pack(some)


def assemble(number: int, rows: Iterable[tuple[Any, ...]]) -> Batch:
    """Put collected rows (OUTPUT_SCHEMA) in order: by shard, then as the shard wrote them."""
    outputs: list[Output] = []
    reports: list[BatchReport] = []
    for _, _, packed, report in sorted(rows, key=lambda row: (row[0], row[1])):
        if report is not None:
            reports.append(_decode_report(report))
        elif packed is not None:
            outputs += _unpack(packed)
    return Batch(number=number, outputs=outputs, reports=reports)


#: Of a worker's memory. A record is held as Arrow's bytes and as Python's; the shard's state, its
#: outputs and the interpreter need the rest.
PLANNED_SHARE: Final = 4
HELD_SHARE: Final = 2
#: Spark gathers a shard's part of a batch in one buffer, which has 2 GiB at most. Half of them, as
#: a mean size is no bound.
PLANNED_MAX: Final = 1024 * limits.MIB
#: Of what the driver collects, the share that a batch's outputs are planned for: what shards write
#: within their own bounds (`answered.bytes_max`) comes beside it, and has the rest. Where that is
#: too little for them, the share is less, down to the least.
COLLECTED_SHARE: Final = 2
_COLLECTED_SHARE_LEAST: Final = 8
#: How many times its bytes a record may write without being refused: of the first input, of which
#: the log bounds all beyond (`core/engine/effects.py`), and of the others, with the longest names.
WRITTEN_SHARE: Final = effects.FREE_SHARE
WRITTEN_SHARE_OF_OTHERS: Final = 20
#: Less than this share of the planned bytes is no measure of a backlog: one large JoinGroup among
#: a few records must not slow the job down. Batches that bring less are added up for a while: what
#: comes in few records at a time comes all at once when the job has stood still.
_TELLING_SHARE: Final = 32
#: A bound that was lowered is raised after batches of small records for this long.
_CALM_S: Final = 60.0
#: After a batch that has ended the job: no batch has as many records again until batches have gone
#: well for so many times `_CALM_S`. Not for ever: with one record of each partition a job is as
#: good as down, and what was too much is through by then.
_CAREFUL_TIMES: Final = 10


class BatchTooLarge(MemoryError):
    """A batch has more bytes than a worker may hold. Known by its name: see `failures`."""


def held_bytes_max(worker_memory_bytes: int) -> int:
    """How many bytes of one shard's records a worker takes, before it ends with BatchTooLarge."""
    return worker_memory_bytes // HELD_SHARE


def too_large(
    part: str, records: int, size_bytes: int, bytes_max: int, is_out_of_memory: bool = False
) -> BatchTooLarge:
    """The error, with the setting that would hold such a batch (`failures` reads it).

    Args:
        is_out_of_memory: what comes behind these records could not be counted, and Arrow's copies
            need more than their share: at least four times the memory is named.
    """
    needed_bytes = max(size_bytes, 4 * bytes_max) if is_out_of_memory else size_bytes
    return BatchTooLarge(
        f"{part}: {size_bytes:,} bytes of requests in its first {records:,} records, and a Python "
        f"worker holds {min(size_bytes, bytes_max):,} (enough: {needed_bytes * HELD_SHARE})"
    )


class Means(NamedTuple):
    """Bytes of records: of one, or of several together."""

    #: Of its value.
    size: float = 0.0
    #: Of the outputs that follow from it.
    written: float = 0.0


NO_MEANS: Final = Means()


def other_shards_bytes(shards: int, all_shards: int) -> int:
    """What so many shards, of all that there are, may write beyond what a batch is planned for."""
    return shards * 2 * effects.bytes_max(all_shards)


def means_of(sizes: Mapping[str, float], first_input: str) -> Means:
    """What records of these mean sizes, by topic, need at most."""
    written = [
        effects.FREE_BYTES
        + size * (WRITTEN_SHARE if topic == first_input else WRITTEN_SHARE_OF_OTHERS)
        for topic, size in sizes.items()
        if size
    ]
    return Means(max(sizes.values(), default=0.0), max(written, default=0.0))


class BatchSize:
    """The number of records that a batch may have, for as long as a driver runs.

    Args:
        records_max: the setting; never exceeded.
        worker_memory_bytes: of one Python worker.
        mean: of the records that are waiting; of none: nothing waits.
        now_s: monotonic.
        collected_bytes: outputs of one batch that the driver takes.
        other_shards_bytes: of these, what may come whatever the batch has.
    """

    def __init__(
        self,
        records_max: int,
        worker_memory_bytes: int,
        mean: Means = NO_MEANS,
        now_s: float = 0,
        collected_bytes: int = 2 * PLANNED_MAX,
        other_shards_bytes: int = 0,
    ) -> None:
        self._records_max = records_max
        self._planned = Means(
            min(worker_memory_bytes // PLANNED_SHARE, PLANNED_MAX),
            min(
                collected_bytes // COLLECTED_SHARE,
                max(
                    collected_bytes - other_shards_bytes, collected_bytes // _COLLECTED_SHARE_LEAST
                ),
            ),
        )
        #: What the running query plans with.
        self.records = self._fitting(mean)
        #: The largest means since `_since_s`, of a telling batch or of several together.
        self._largest, self._since_s = mean, now_s
        #: Of batches since then that were too small to count alone: records, and bytes.
        self._untold_records, self._untold = 0, NO_MEANS
        #: So many have ended the job; 0: none have.
        self._deadly = 0
        #: How many times batches have gone well since, and whether one has since `_since_s`.
        self._calm_times, self._has_committed = 0, False

    def batch_ended(self, records: int, size_bytes: int, written_bytes: int = 0) -> None:
        """One shard's part of a batch has ended; `written_bytes`: of its outputs."""
        self._has_committed = True
        sizes = Means(size_bytes, written_bytes)
        if not self._is_telling(sizes):  # by itself
            self._untold_records += records
            self._untold = Means(*map(sum, zip(self._untold, sizes, strict=True)))
            records, sizes = self._untold_records, self._untold
            if not self._is_telling(sizes):
                return
            self._forget_untold()
        each = (bytes_ / max(records, 1) for bytes_ in sizes)
        self._largest = Means(*map(max, self._largest, each))

    def _is_telling(self, sizes: Means) -> bool:
        return any(
            bytes_ * _TELLING_SHARE >= planned
            for bytes_, planned in zip(sizes, self._planned, strict=True)
        )

    def _forget_untold(self) -> None:
        self._untold_records, self._untold = 0, NO_MEANS

    def next(self, now_s: float) -> int:
        """What the next batches are to be planned with; differs from `records` by twice at least.

        Every other value needs a new query, which costs a second or two without answers.
        """
        fitting = self._fitting(self._largest)
        if fitting * 2 <= self.records:
            return fitting
        if now_s - self._since_s < _CALM_S or (self._deadly and not self._has_committed):
            return self.records
        self._largest, self._since_s, self._has_committed = NO_MEANS, now_s, False
        self._forget_untold()
        if self._deadly:
            self._calm_times += 1
            careful = self._deadly - 1 if self._calm_times < _CAREFUL_TIMES else self._records_max
            fitting = min(fitting, careful, 2 * self.records)
        return fitting if fitting >= self.records * 2 else self.records

    def limit(self, records: int) -> None:
        """Begin with so many at most, as twice as many have ended the job; twice as many again
        are planned each time when batches have gone well for long."""
        self.records, self._deadly = min(self.records, records), 2 * records

    def renewed(self, records: int, now_s: float) -> None:
        """The query plans with another number from now on."""
        self.records, self._since_s = records, now_s

    def _fitting(self, means: Means) -> int:
        fitting = [int(p / mean) for p, mean in zip(self._planned, means, strict=True) if mean > 0]
        return max(1, min([self._records_max, *fitting]))


# -- one shard's part ----------------------------------------------------------------------


#: State before, records, settings: what follows. Pure.
FoldFn = Callable[[bytes | None, Iterable[InputRecord], ShardSettings], Fold]
#: The same of a state in pages.
FoldingPages = Callable[
    [StoredPages | bytes | None, Iterable[InputRecord], ShardSettings, Packing, Kept], PagesFold
]
#: What the state store gets, and rows of OUTPUT_SCHEMA, the report last.
Judged = tuple[bytes, list[tuple[Any, ...]]]


class UnreadableState(ValueError):
    """The state of a shard is not what this code wrote. Known by its name: see `failures`."""


#: What reading a state raises that somebody else wrote.
UNREADABLE: Final = (msgspec.MsgspecError, UnknownStateVersion, BrokenPages)


def judge_readable(
    folding: FoldFn, blob: bytes | None, records: list[InputRecord], settings: ShardSettings
) -> Judged:
    """One shard's part of a batch: its new blob, and its rows.

    Raises UnreadableState, and nothing else for what somebody else wrote.
    """
    try:
        done = folding(blob, records, settings)
    except UNREADABLE as problem:
        raise UnreadableState(f"shard {settings.shard}: {problem}") from problem
    return done.blob, output_rows(done.outputs, done.status, len(done.blob), records)


def output_rows(
    outputs: list[Output], status: Status, state_bytes: int, records: list[InputRecord]
) -> list[tuple[Any, ...]]:
    """Rows of OUTPUT_SCHEMA (operator.py), the report last."""
    shard = status.shard
    rows: list[tuple[Any, ...]] = [
        (shard, seq, packed, None) for seq, packed in enumerate(pack_outputs(outputs))
    ]
    report = BatchReport(
        status=status,
        ranges=_ranges(records),
        state_bytes=state_bytes,
        records=len(records),
        input_bytes=values_bytes(records),
        output_bytes=sum(len(packed) for _, _, packed, _ in rows),
        newest=_newest(records),
    )
    rows.append((shard, len(rows), None, msgspec.json.encode(report)))
    return rows


def values_bytes(records: Iterable[InputRecord]) -> int:
    """Of their values."""
    return sum(len(record.value) for record in records if record.value is not None)


def _newest(records: list[InputRecord]) -> dict[str, JudgedRecord]:
    newest: dict[str, InputRecord] = {}
    for record in records:
        known = newest.get(record.topic)
        if known is None or known.offset < record.offset:
            newest[record.topic] = record
    return {letter: judged_record(record) for letter, record in sorted(newest.items())}


def _ranges(records: list[InputRecord]) -> dict[str, tuple[int, int]]:
    ranges: dict[str, tuple[int, int]] = {}
    for letter in sorted({record.topic for record in records}):
        offsets = [record.offset for record in records if record.topic == letter]
        ranges[letter] = min(offsets), max(offsets)
    return ranges

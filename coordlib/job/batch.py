"""A batch between the operator and the sink: its outputs in order, its reports, its digest."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from coordlib import limits
from coordlib.core.engine.routing import Output
from coordlib.core.engine.shard import InputRecord, Status
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

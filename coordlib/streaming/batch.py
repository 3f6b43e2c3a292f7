"""A batch between the operator and the sink: its outputs in order, its reports, its digest."""

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from coordlib.coordinators.shard import Status
from coordlib.effects.routing import Output


class BatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one shard tells the driver of one batch."""

    status: Status
    #: "r" and "o" -> first and last offset that the batch brought.
    ranges: dict[str, tuple[int, int]]
    state_bytes: int


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one micro-batch wants to be written."""

    number: int
    outputs: list[Output]
    reports: list[BatchReport]

    def digest(self) -> str:
        """SHA-256 over all outputs in order: two runs of one batch must agree."""
        digest = hashlib.sha256()
        for output in self.outputs:
            digest.update(msgspec.msgpack.encode(output))
        return digest.hexdigest()

    def ranges(self, prefix: str) -> dict[str, dict[str, tuple[int, int]]]:
        """topic -> partition -> first and last input offset."""
        names = {"r": f"{prefix}.requests", "o": f"{prefix}.offsets"}
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for report in self.reports:
            for topic, (first, last) in report.ranges.items():
                found.setdefault(names[topic], {})[str(report.status.shard)] = (first, last)
        return found


_decode_report = msgspec.json.Decoder(BatchReport).decode


def assemble(number: int, rows: Iterable[tuple[Any, ...]], report_topic: str) -> Batch:
    """Put collected rows (OUTPUT_SCHEMA) in order: by shard, then as the shard wrote them."""
    outputs: list[Output] = []
    reports: list[BatchReport] = []
    for _, _, topic, partition, key, value in sorted(rows, key=lambda row: (row[0], row[1])):
        if topic == report_topic:
            reports.append(_decode_report(value))
        else:
            outputs.append(Output(topic, partition, key, value))
    return Batch(number=number, outputs=outputs, reports=reports)

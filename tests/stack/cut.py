"""Take the end of a partition's log away, as a disk does that is put back."""

import os
from pathlib import Path

#: Of a batch: its first offset, and the number of bytes that follow.
_HEAD = 12


def cut_log(segments: Path, partition: str, end: int | None = None) -> None:
    """Of a broker that is down.

    Args:
        segments: the broker's folder of logs.
        partition: as its folder is called: `coord.events-0`.
        end: where a batch begins; None: half of the log's bytes go.
    """
    for file in (segments / partition).iterdir():
        if file.suffix == ".log":
            half = file.stat().st_size // 2
            os.truncate(file, half if end is None else _bytes_before(file.read_bytes(), end))
        elif file.suffix in (".index", ".timeindex", ".snapshot", ".txnindex"):
            file.unlink()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (segments / name).unlink(missing_ok=True)


def _bytes_before(log: bytes, end: int) -> int:
    """Where the first batch begins whose first offset is not below this one."""
    at = 0
    while at + _HEAD <= len(log) and int.from_bytes(log[at : at + 8]) < end:
        at += _HEAD + int.from_bytes(log[at + 8 : at + _HEAD])
    return at

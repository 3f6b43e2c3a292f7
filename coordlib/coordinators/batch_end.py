"""What a shard writes once per batch, whatever its records were; and that it can be written."""

from collections.abc import Mapping
from typing import Any

from coordlib import limits
from coordlib.coordinators.cell import Cell
from coordlib.coordinators.group import BrokenInvariant
from coordlib.coordinators.machine import Machine
from coordlib.effects import effect as fx
from coordlib.records import responses as rs


def saved(name: str, cell: Cell | None) -> list[fx.Effect]:
    """A changed group whole; a deleted one as a tombstone, unless it came again."""
    if cell is None:
        return [fx.SaveGroup(name, None)]
    if not cell.changed or cell.group is None:
        return []
    cell.encode_group()
    return [fx.SaveGroup(name, cell.machine.encode_saved(cell.group))]


def check_writable(machine: Machine, group: Any, before: Any) -> None:
    """Raise BrokenInvariant if the step has made the group larger than its record may be.  # INV-67

    The step then fails, and what is kept is the group before it: however the log is cut, as a check
    at the end of the batch could not. Whatever admission lets through is smaller; this is for what
    nobody has thought of. JSON has at most twice as many bytes as the shard's blob, so only large
    groups are encoded for it.
    """
    if machine.size_bytes(group) <= limits.RECORD_BYTES_MAX // 2:
        return
    size_bytes = len(machine.encode_saved(group))
    if size_bytes <= limits.RECORD_BYTES_MAX:
        return
    if before is None or size_bytes > len(machine.encode_saved(before)):
        raise BrokenInvariant(f"{group.group}: its record would have {size_bytes} bytes")


def progress(shard: int, offset: int, time_ms: int, cells: Mapping[str, Cell]) -> list[fx.Effect]:
    """How far the shard has judged, to everybody who reads answers of its groups."""
    judged = rs.Progress(shard=shard, offset=offset, time_ms=time_ms)
    replies = {reply for cell in cells.values() for reply in cell.stored.replies}
    return [fx.Notify(reply, judged) for reply in sorted(replies)]

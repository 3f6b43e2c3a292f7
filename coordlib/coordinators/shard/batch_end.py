"""What a shard writes once per batch, whatever its records were."""

from collections.abc import Mapping

from coordlib.coordinators.shard.row import Row
from coordlib.effects import effect as fx
from coordlib.records import responses as rs


def saved(name: str, cell: Row | None) -> list[fx.Effect]:
    """A changed group whole; a deleted one as a tombstone, unless it came again."""
    if cell is None:
        return [fx.SaveGroup(name, None)]
    if not cell.changed or cell.group is None:
        return []
    cell.encode_group()
    return [fx.SaveGroup(name, cell.machine.encode_saved(cell.group))]


def progress(shard: int, offset: int, time_ms: int, cells: Mapping[str, Row]) -> list[fx.Effect]:
    """How far the shard has judged, to everybody who reads answers of its groups."""
    judged = rs.Progress(shard=shard, offset=offset, time_ms=time_ms)
    replies = {reply for cell in cells.values() for reply in cell.stored.replies}
    return [fx.Notify(reply, judged) for reply in sorted(replies)]

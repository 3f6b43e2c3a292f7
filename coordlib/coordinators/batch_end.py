"""What a shard writes once per batch, whatever its records were."""

from collections.abc import Iterator, Mapping, Set

from coordlib.coordinators.cell import Cell
from coordlib.effects import effect as fx
from coordlib.records import responses as rs


def saved_groups(cells: Mapping[str, Cell], deleted: Set[str]) -> Iterator[fx.Effect]:
    """Changed groups whole, deleted ones as tombstones, unless they came again."""
    for name in sorted(cells.keys() | deleted):
        cell = cells.get(name)
        if cell is None:
            yield fx.SaveGroup(name, None)
        elif cell.changed and cell.group is not None:
            yield fx.SaveGroup(name, cell.machine.encode_saved(cell.group))


def progress(shard: int, offset: int, time_ms: int, cells: Mapping[str, Cell]) -> list[fx.Effect]:
    """How far the shard has judged, to everybody who reads answers of its groups."""
    judged = rs.Progress(shard=shard, offset=offset, time_ms=time_ms)
    replies = {reply for cell in cells.values() for reply in cell.stored.replies}
    return [fx.Notify(reply, judged) for reply in sorted(replies)]

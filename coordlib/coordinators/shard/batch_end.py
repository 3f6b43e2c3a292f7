"""What a shard writes once per batch, whatever its records were."""

from collections.abc import Iterable

from coordlib.coordinators.shard.family import Family
from coordlib.coordinators.shard.kind import Facts
from coordlib.coordinators.shard.row import Row
from coordlib.effects import effect as fx
from coordlib.records import responses as rs


def saved(family: type[Family], name: str, row: Row | None) -> list[fx.Effect]:
    """A changed head whole; a deleted one as a tombstone, unless the entity was made again."""
    key = family.head_key(name)
    if row is None:
        return [fx.Save(family.HEADS, key, None)]
    if not row.changed or row.value is None:
        return []
    row.encode_head()
    return [fx.Save(family.HEADS, key, row.kind.save(row.value))]


def progress(shard: int, offset: int, time_ms: int, facts: Iterable[Facts]) -> list[fx.Effect]:
    """How far the shard has judged, for everybody who reads answers of its entities."""
    judged = rs.Progress(shard=shard, offset=offset, time_ms=time_ms)
    replies = {reply for each in facts for reply in each.replies}
    return [fx.Notify(reply, judged) for reply in sorted(replies)]

"""A lost state of the engine, made again from a snapshot and the log behind it.

Signs keep their true age: nobody gets time that clients do not see.  # INV-65
"""

from collections.abc import Iterable

from coordlib.core.claims.blob import STATE_VERSION, StoredClaims, coordination, encode_blob
from coordlib.core.claims.fold import Claims, fold
from coordlib.core.claims.pages import Snapshot
from coordlib.core.claims.slot import Key
from coordlib.core.claims.world import World
from coordlib.core.engine.blob import InputRecord, ShardSettings


def belongs(snapshot: Snapshot | None, settings: ShardSettings) -> bool:
    """Whether it is of this topic as it is now: a topic made anew has other offsets."""
    if snapshot is None:
        return False
    ours = coordination(settings).topic_id, settings.shards
    return (snapshot.topic_id, snapshot.partitions) == ours


def begin_at(snapshot: Snapshot) -> bytes:
    """The blob as of the snapshot's offset: the next record is the one behind it."""
    return encode_blob(StoredClaims(STATE_VERSION, snapshot.world, pages=snapshot.pages))


def catch_up(blob: bytes | None, records: Iterable[InputRecord], settings: ShardSettings) -> bytes:
    """The blob after these records, whose outputs are committed: they are not written again."""
    return fold(blob, records, settings).blob


def begin_late(
    positions: dict[Key, tuple[int, str]], gap_from: int, settings: ShardSettings, pages: int = 0
) -> bytes:
    """The blob of a log whose next record is not there: only positions are known.

    Args:
        positions: of the newest snapshot (`positions_of`).
        gap_from: the first offset that should have come next: history says so once.
        pages: of the newest snapshot.
    """
    where = coordination(settings).topic, settings.shard, settings.shards
    world = World(*where, is_late=True, positions=positions)
    return encode_blob(
        StoredClaims(STATE_VERSION, world.snapshot(), pages=pages, gap_from=gap_from)
    )


def positions_of(world: World) -> dict[Key, tuple[int, str]]:
    """What a late reader may begin with: positions, with their topics' ids."""
    return {
        key: (slot.position, slot.topic_id)
        for key, slot in sorted(world.slots.items())
        if slot.position is not None
    }


def begun(blob: bytes, settings: ShardSettings) -> World:
    """The world in a blob. Raises UnknownStateVersion, msgspec.MsgspecError."""
    return Claims(blob, settings).world

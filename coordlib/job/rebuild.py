"""From the compacted topics to one seed blob per shard: a start without the old checkpoint."""

import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from coordlib.core.engine.kind import UnknownSavedVersion
from coordlib.core.engine.restore import PROGRESS
from coordlib.core.engine.routing import Output
from coordlib.core.wire.stored import Marker, ShardPosition
from coordlib.errors import StartRefused
from coordlib.job.plane import Plane, Restoring
from coordlib.job.progress import NewestByKey
from coordlib.job.replay import Replay
from coordlib.kafka.cut_logs import AGAIN_S, lost_at_two_looks, named
from coordlib.kafka.places import Bounds, Place

#: Of the entities without a saved head, those that a warning names.
GROUPS_NAMED_MAX: Final = 10
_log = structlog.get_logger()
_NOWHERE = ShardPosition(clock_ms=0, previous_ms=0, published=-1)


def seed_blobs(
    newest_by_key: NewestByKey,
    id_pages: Mapping[bytes, bytes],
    plane: Plane,
    shards: int,
    marker: Marker | None,
    replay: Replay | None = None,
) -> dict[int, bytes]:
    """Fold the compacted topics into the shards' states at the marker.

    Args:
        id_pages: as the progress topic was read.
        shards: of the prefix; those of the plane are rebuilt.
        replay: of a plane whose topics have older states.
    """
    if marker is None:
        raise StartRefused(
            "There is nothing to rebuild from: the topics have no progress marker.",
            f"prefix {plane.prefix}",
            "Start without --rebuild.",
        )
    return {
        shard: seed_blob(newest_by_key, id_pages, plane, shard, marker, replay)
        for shard in plane.shards(shards)
    }


def cut(bounds: Mapping[Place, Bounds | None], marker: Marker | None) -> list[str]:
    """The compacted topics that lack records, each with what shows it.

    Compaction leaves where a log begins and ends alone. It begins later where somebody has deleted
    records, or where the topic had another cleanup policy for a while; it ends before what was
    written where a disk was put back, or by an unclean leader election. What had not been written
    again since, is missing, and nothing in the rest tells so.  # INV-153

    Args:
        bounds: of the partitions that a rebuild reads.
    """
    saved = {} if marker is None else marker.saved
    told: list[str] = []
    for (topic, partition), found in sorted(bounds.items()):
        end = saved.get(topic, {}).get(str(partition), 0)
        if found is not None and found.start > 0:
            told.append(f"{topic}, partition {partition}, begins at offset {found.start}")
        if found is not None and found.end < end:
            told.append(
                f"{topic}, partition {partition}, ends at offset {found.end}, and {end} was written"
            )
    return told


def cut_at_two_looks(
    look: Callable[[], Mapping[Place, Bounds | None]],
    marker: Marker | None,
    wait: Callable[[], None] = lambda: time.sleep(AGAIN_S),
) -> tuple[list[str], dict[Place, Bounds | None]]:
    """What `cut` finds also at a second look, and the newest bounds of each partition.

    One that does not answer at the second look is what it was at the first.
    """
    bounds: dict[Place, Bounds | None] = {}

    def told() -> list[str]:
        bounds.update(look())
        return cut(bounds, marker)

    return lost_at_two_looks(told, wait), bounds


def refuse_cut(
    look: Callable[[], Mapping[Place, Bounds | None]],
    marker: Marker | None,
    wait: Callable[[], None] = lambda: time.sleep(AGAIN_S),
) -> None:
    """Refuse to rebuild from compacted topics that lack records.

    Args:
        look: asks for the bounds of the partitions that a rebuild reads.
    """
    told, _ = cut_at_two_looks(look, marker, wait)
    if told:
        raise StartRefused(
            "Compacted topics have lost records. What these held would be missing: groups, "
            "offsets, partitions of clusters.",
            named(told),
            "Restore the topics; or, to go on with what is left, name an empty folder and add "
            "--rebuild --accept-loss.",
        )


def withdrawn(newest_by_key: NewestByKey, plane: Plane, replay: Replay) -> list[Output]:
    """Tombstones for what shards that began late know nothing of: a dead owner would stand there
    for ever."""
    if isinstance(plane.restore, Restoring):
        return []
    topic = plane.restore.unknown_when_late
    return [
        Output(topic, shard, key, None)
        for shard in sorted(replay.late)
        for key in sorted(newest_by_key(f"{plane.prefix}.{topic}", shard))
    ]


def seed_blob(
    newest_by_key: NewestByKey,
    id_pages: Mapping[bytes, bytes],
    plane: Plane,
    shard: int,
    marker: Marker,
    replay: Replay | None = None,
) -> bytes:
    """Fold the compacted topics into one shard's state at the marker. Raises StartRefused."""
    began = time.monotonic()
    prefix = plane.prefix
    topics = {name: newest_by_key(f"{prefix}.{name}", shard) for name in plane.restored_from}
    read = time.monotonic()
    position = marker.shards.get(str(shard), _NOWHERE)
    try:
        if isinstance(plane.restore, Restoring):
            blob = plane.restore.restore({**topics, PROGRESS: id_pages}, position)
            left_out = plane.restore.left_out(topics)
        else:
            assert replay is not None, "its input is folded again"
            judged = marker.next_offsets.get(plane.first_input, {})
            blob, left_out = replay.brought_up(plane, shard, topics, judged.get(str(shard), 0)), []
    except (UnknownSavedVersion, msgspec.MsgspecError) as problem:
        raise StartRefused(
            f"What is saved of shard {shard} cannot be read: {problem}",
            f"{', '.join(f'{prefix}.{name}' for name in topics)}, partition {shard}",
            "Rebuild with the code that wrote it, or with newer code.",
        ) from problem
    if left_out:
        _log.warning(
            "entries without a saved head were left out of the rebuild",
            shard=shard,
            groups=len(left_out),
            first=left_out[:GROUPS_NAMED_MAX],
        )
    _log.info(
        "shard rebuilt",
        shard=shard,
        **{name: len(found) for name, found in topics.items()},
        bytes=len(blob),
        read_s=round(read - began, 3),
        restored_s=round(time.monotonic() - read, 3),
    )
    return blob

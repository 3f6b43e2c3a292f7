"""From the compacted topics to one seed blob per shard: a start without the old checkpoint."""

from collections.abc import Mapping

from coordlib import compacted
from coordlib.coordinators.restore import restore
from coordlib.errors import StartRefused
from coordlib.records.stored import Marker, ShardPosition

_NOWHERE = ShardPosition(clock_ms=0, previous_ms=0, offset=-1, commits_offset=-1, published=-1)


def seed_blobs(
    client_options: Mapping[str, str], prefix: str, shards: int, marker: Marker | None
) -> dict[int, bytes]:
    """Fold `coord.groups` and `coord.committed` into the shards' states at the marker."""
    if marker is None:
        raise StartRefused(
            "There is nothing to rebuild from: the topics have no progress marker.",
            f"prefix {prefix}",
            "Start without --rebuild.",
        )
    return {shard: _seed(client_options, prefix, shard, marker) for shard in range(shards)}


def _seed(client_options: Mapping[str, str], prefix: str, shard: int, marker: Marker) -> bytes:
    groups = compacted.newest_by_key(client_options, f"{prefix}.groups", shard)
    committed = compacted.newest_by_key(client_options, f"{prefix}.committed", shard)
    position = marker.shards.get(str(shard), _NOWHERE)
    return restore(groups.values(), committed.items(), position)

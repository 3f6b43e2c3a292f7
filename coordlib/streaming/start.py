"""What must agree before a driver may run: topics, progress marker, checkpoint.

Everything here decides from what it is shown; it refuses before anything is read or written that
an older job of the same prefix would notice.
"""

from typing import Protocol

import structlog
from msgspec.structs import replace

from coordlib.errors import StartRefused
from coordlib.records.stored import Layout, Marker
from coordlib.streaming import rebuild
from coordlib.streaming.checkpoint import Identity
from coordlib.streaming.marker import check_identity
from coordlib.streaming.sink import NewestByKey, TransactionalSink

_log = structlog.get_logger()


class Folder(Protocol):
    """The folder of a checkpoint, in whatever file system."""

    path: str

    def identity(self) -> Identity | None: ...

    def create(
        self, prefix: str, shards: int, incarnation: str, rebuilt_from: Marker | None = None
    ) -> Identity: ...

    def has_batches(self) -> bool: ...

    def has_committed_batches(self) -> bool: ...

    def write_seed(self, shard: int, blob: bytes, continued: Marker) -> None: ...


def agree(
    sink: TransactionalSink,
    folder: Folder,
    layout: Layout,
    prefix: str,
    newest_by_key: NewestByKey,
    is_rebuild: bool = False,
) -> Identity:
    """Fence older drivers and settle which checkpoint goes on.

    Raises:
        StartRefused: the topics or the checkpoint are not what they must be.
        CannotReach: no broker answers.
    """
    # Before anybody is fenced: a start with a wrong folder must not end a healthy job.
    sink.read_progress()
    _refuse_wrong_checkpoint(folder, layout, sink.marker, prefix, is_rebuild)
    sink.open()
    _agree_on_layout(sink, layout, prefix)
    # Once more: the older driver may have committed a batch until it was fenced.
    _refuse_wrong_checkpoint(folder, layout, sink.marker, prefix, is_rebuild)
    identity, marker = folder.identity(), sink.marker
    incarnation = layout.topic_ids[f"{prefix}.requests"][:8]
    if identity is not None:
        return identity
    if marker is None:
        return folder.create(prefix, layout.shards, incarnation)
    sink.tell_loading(layout.reply_partitions)
    seeds = rebuild.seed_blobs(newest_by_key, prefix, layout.shards, marker)
    for shard, blob in seeds.items():
        folder.write_seed(shard, blob, marker)
    _log.info("rebuilt from the topics", shards=len(seeds), batch=marker.batch)
    return folder.create(prefix, layout.shards, incarnation, marker)


def _agree_on_layout(sink: TransactionalSink, layout: Layout, prefix: str) -> None:
    """Refuse other topics than the recorded ones; record the features of this job.

    They may be more than those of the job before, or fewer where older code is started again.
    """
    recorded = sink.layout
    if recorded is None:
        sink.write_layout(layout)
    elif replace(recorded, features=layout.features) != layout:
        raise StartRefused(
            f"The topics are not those that this prefix began with: {recorded.shards} shards, "
            f"{recorded.reply_partitions} response partitions then, "
            f"{layout.shards} and {layout.reply_partitions} now"
            + (", with other topic ids." if recorded.topic_ids != layout.topic_ids else "."),
            f"prefix {prefix}",
            "Shards are fixed for the topics' life. Use a new prefix, or delete all topics of "
            "this one and create them again.",
        )
    elif recorded != layout:
        sink.write_layout(layout)


def _refuse_wrong_checkpoint(
    folder: Folder, layout: Layout, marker: Marker | None, prefix: str, is_rebuild: bool
) -> None:
    identity = folder.identity()
    if identity is not None:
        if is_rebuild:
            raise StartRefused(
                "A rebuild begins a new checkpoint, and this folder holds one.",
                folder.path,
                "Name an empty folder, or start without --rebuild.",
            )
        check_identity(identity, marker, layout, prefix, folder.has_committed_batches())
    elif folder.has_batches():
        raise StartRefused(
            "This folder holds another query's checkpoint.", folder.path, "Name another."
        )
    elif marker is not None and not is_rebuild:
        raise StartRefused(
            f"The topics have history up to batch {marker.batch} of checkpoint "
            f"{marker.checkpoint}, and this folder is empty.",
            folder.path,
            "Name that checkpoint; if it is lost, add --rebuild.",
        )

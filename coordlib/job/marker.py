"""The progress marker: names the newest committed batch, written in its own transaction."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from coordlib.core.wire.cells import KEYS, MARKER, words
from coordlib.core.wire.stored import ControlKeys, Layout, Marker, ShardPosition
from coordlib.errors import ReplayDiffers, StartRefused
from coordlib.job.batch import Batch
from coordlib.job.checkpoint import Identity
from coordlib.job.plane import Plane

LAYOUT_KEY = b"layout"
#: Of a job over all shards; those of cells: `cells.key_of`.
MARKER_KEY = MARKER.encode()
KEYS_KEY = KEYS.encode()

decode_layout = msgspec.json.Decoder(Layout).decode
_decode_keys = msgspec.json.Decoder(ControlKeys).decode
KEYS_VERSION: Final = 1


class _Versioned(msgspec.Struct):
    """As much of the keys as every version has."""

    v: int


_decode_version = msgspec.json.Decoder(_Versioned).decode


def decode_keys(value: bytes) -> ControlKeys:
    """Read the keys of control records. Raises StartRefused: newer code has written them."""
    version = _decode_version(value).v
    if version != KEYS_VERSION:
        raise StartRefused(
            f"Newer code has written the keys of control records: version {version}, this code "
            f"knows {KEYS_VERSION}.",
            "key keys of the progress topic",
            "Start the code that wrote them, or newer code.",
        )
    return _decode_keys(value)


def next_marker(
    before: Marker | None,
    batch: Batch,
    identity: Identity,
    inputs: Mapping[str, str],
    starts: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
) -> Marker:
    """The marker of this batch: positions of shards without input stay as they were.

    Args:
        starts: topic -> partition -> where a log begins, for the first marker: what is removed of
            it later is missed by the next start.
    """
    shards: dict[str, ShardPosition] = dict(before.shards) if before else {}
    next_offsets = {t: dict(p) for t, p in (before.next_offsets if before else starts).items()}
    for report in batch.reports:
        shards[str(report.status.shard)] = report.status.position
    judged = {t: dict(p) for t, p in before.judged.items()} if before else {}
    for report in batch.reports:
        for letter in report.ranges:
            newest, topic = report.newest.get(letter), inputs[letter]
            known = judged.setdefault(topic, {})
            known.pop(str(report.status.shard), None)
            if newest is not None:
                known[str(report.status.shard)] = newest
    ranges = batch.ranges(inputs)
    for topic, partitions in ranges.items():
        for partition, (_, last) in partitions.items():
            next_offsets.setdefault(topic, {})[partition] = last + 1
    return Marker(
        checkpoint=identity.checkpoint,
        batch=batch.number,
        ranges=ranges,
        digest=batch.digest(),
        next_offsets=next_offsets,
        shards=shards,
        judged=judged,
    )


def is_repeat(
    marker: Marker | None,
    batch: Batch,
    identity: Identity,
    inputs: Mapping[str, str],
    taken_over: int = -1,
) -> bool:
    """Whether this batch was committed already, by this checkpoint.  # INV-34

    Args:
        inputs: the plane's topics, by letter.
        taken_over: number of a batch whose outcome was read back from the topics, not judged.

    Raises:
        ReplayDiffers: it was, with other outputs.
        StartRefused: the marker is not the batch before this one, nor this one.
    """
    if marker is None or marker.checkpoint != identity.checkpoint:
        _refuse_unless_first(marker, batch, identity)
        return False
    if marker.batch == batch.number and marker.ranges == batch.ranges(inputs):
        if batch.number != taken_over and marker.digest != batch.digest():
            raise ReplayDiffers(
                f"Batch {batch.number} is committed, and it ran again with other outputs: other "
                "code, another Python or another strategy judged it before.",
                f"checkpoint {identity.checkpoint}",
                "Start the job again: nothing has to be written, so it takes the groups' state "
                "after that batch from the topics, as a rebuild does.",
            )
        return True
    if marker.batch == batch.number - 1:
        return False
    raise StartRefused(
        f"The topics stand at batch {marker.batch}, this checkpoint is about to write "
        f"{batch.number}.",
        f"checkpoint {identity.checkpoint}",
        "An old copy of the checkpoint was put back. Use the newest one, or an empty folder "
        "with --rebuild.",
    )


def _refuse_unless_first(marker: Marker | None, batch: Batch, identity: Identity) -> None:
    continued = identity.rebuilt_from
    is_expected = (
        marker is None
        if continued is None
        else marker is not None
        and (marker.checkpoint, marker.batch) == (continued.checkpoint, continued.batch)
    )
    if is_expected and batch.number == 0:
        return
    raise StartRefused(
        f"The topics' progress marker is {'missing' if marker is None else 'of another checkpoint'}"
        f", this checkpoint is at batch {batch.number}.",
        f"checkpoint {identity.checkpoint}",
        "Another job took over this prefix, or its topics were made anew. Use its checkpoint, or "
        "an empty folder with --rebuild.",
    )


def check_identity(
    identity: Identity, marker: Marker | None, layout: Layout, plane: Plane, has_batches: bool
) -> None:
    """Refuse a checkpoint that does not belong to these topics, before anything is read."""
    incarnation, prefix = layout.topic_ids[plane.first_input][:8], plane.prefix
    if (identity.prefix, identity.shards, identity.incarnation) != (
        prefix,
        layout.shards,
        incarnation,
    ):
        raise StartRefused(
            f"The checkpoint was made for prefix {identity.prefix} with {identity.shards} shards "
            f"(topics {identity.incarnation}); these are {prefix}, {layout.shards}, {incarnation}.",
            f"checkpoint {identity.checkpoint}",
            "Name the checkpoint of these topics, or an empty folder.",
        )
    if identity.cell != plane.owned:
        raise StartRefused(
            f"The checkpoint was made for {words(identity.cell)}, and this job is to have "
            f"{words(plane.owned)}.",
            f"checkpoint {identity.checkpoint}",
            "Name the checkpoint of these shards, or an empty folder with --rebuild.",
        )
    if marker is None and has_batches:
        _refuse_foreign(identity, "have no progress marker")
    if marker is not None and marker.checkpoint != identity.checkpoint:
        continued = identity.rebuilt_from
        if continued is None or (continued.checkpoint, continued.batch) != (
            marker.checkpoint,
            marker.batch,
        ):
            _refuse_foreign(identity, f"were last written from checkpoint {marker.checkpoint}")


def _refuse_foreign(identity: Identity, fact: str) -> None:
    raise StartRefused(
        f"The topics {fact}.",
        f"checkpoint {identity.checkpoint}",
        "Another job took over, or the folder is an old copy: name the newest checkpoint, or an "
        "empty folder with --rebuild.",
    )

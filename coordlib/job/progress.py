"""The progress topic: the marker of each committed batch, and all that one driver reads there."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
import structlog
from confluent_kafka import KafkaException

from coordlib.core.wire import cells, stored
from coordlib.core.wire.cells import CELL, KEYS, MARKER, SET_ASIDE, CellValue, Owned, words
from coordlib.core.wire.stored import (
    ControlKeys,
    Layout,
    Marker,
    SetAside,
    ShardPosition,
    decode_marker,
)
from coordlib.errors import CoordError, ReplayDiffers, StartRefused
from coordlib.job.batch import Batch
from coordlib.job.checkpoint import Identity
from coordlib.job.pipelines import Pipeline
from coordlib.kafka.clients import reason_of
from coordlib.kafka.layout import LAYOUT_KEY

#: Of a job over all shards; those of job instances: `cells.key_of`.
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
        inputs: the pipeline's topics, by letter.
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
                "code, another Python or another strategy processed it before.",
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
        "Another job took over this prefix, or its topics were created again. Use its checkpoint, "
        "or an empty folder with --rebuild.",
    )


def check_identity(
    identity: Identity, marker: Marker | None, layout: Layout, pipeline: Pipeline, has_batches: bool
) -> None:
    """Refuse a checkpoint that does not belong to these topics, before anything is read."""
    incarnation, prefix = layout.topic_ids[pipeline.first_input][:8], pipeline.prefix
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
    if identity.cell != pipeline.owned:
        raise StartRefused(
            f"The checkpoint was made for {words(identity.cell)}, and this job is to have "
            f"{words(pipeline.owned)}.",
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


_log = structlog.get_logger()
_Known = TypeVar("_Known")
_decode_cell = msgspec.json.Decoder(CellValue).decode
_decode_set_aside = msgspec.json.Decoder(SetAside).decode
#: Marker, layout and keys that a job alone writes.
OfThisJob = tuple[Marker | None, Layout | None, ControlKeys | None]


class NewestByKey(Protocol):
    """The live records of a partition of a compacted topic, from an offset on: key -> value."""

    def __call__(self, topic: str, partition: int, first: int = 0, /) -> dict[bytes, bytes]: ...


class OtherCells(NamedTuple):
    """How a driver meets the other jobs of its prefix."""

    #: Takes a transactional id away from whoever has it.
    fence: Callable[[str], object]
    #: Reads what they write, too: it waits until all that was written before is decided.
    newest_decided: NewestByKey


class Progress:
    """The progress topic of a pipeline.

    Args:
        newest_by_key: reads up to the first open transaction.
        newest_decided: waits until all that was written before is decided: a registration or a
            marker may stand behind the open transaction of another job instance.
    """

    def __init__(
        self, pipeline: Pipeline, newest_by_key: NewestByKey, newest_decided: NewestByKey
    ) -> None:
        self._pipeline = pipeline
        self._newest_by_key, self._newest_decided = newest_by_key, newest_decided
        #: Offset of the newest record there that this driver has written, and the record.
        self.newest = 0
        self._written: tuple[bytes, bytes | None] | None = None
        #: All before this offset is known.
        self._read_from = 0
        #: Where the shards of this job stand.
        self.marker: Marker | None = None
        self.layout: Layout | None = None
        #: Pages of the ids that listings have shown, by key.
        self.id_pages: dict[bytes, bytes] = {}
        #: Of control records, with those of other job instances; None: no driver has signed any.
        self.keys: ControlKeys | None = None
        #: The jobs that have registered. These three are in the order of the log.
        self.cells: dict[Owned, CellValue] = {}
        self._markers: dict[Owned, Marker] = {}
        self._keys: dict[Owned, ControlKeys] = {}
        self._set_aside: dict[Owned, SetAside] = {}

    def wrote(self, offset: int, key: bytes, value: bytes | None) -> None:
        """This driver has committed a record there, its newest."""
        self.newest, self._written = offset, (key, value)

    def look(self) -> None:
        """Learn what can be read at once: before a predecessor is fenced, whose transaction may be
        open. Raises StartRefused, CannotReach."""
        found = self._newest_by_key(self._pipeline.progress, 0, self._read_from)
        self._learn_all(found)

    def read(self) -> bool:
        """Learn what is there; whether what this driver has written stands there, or anything.

        Raises StartRefused, CannotReach.
        """
        newest = self.newest
        found = self._newest_decided(self._pipeline.progress, 0, self._read_from)
        # Nobody tells where the reading has ended, but it has gone beyond this. Not what is written
        # next: between the two another job instance may have registered.
        self._read_from = newest
        self._learn_all(found)
        if self._written is None:
            return bool(found)
        key, value = self._written
        return key in found and (key == LAYOUT_KEY or found[key] == value)

    def _learn_all(self, found: dict[bytes, bytes]) -> None:
        for key, value in found.items():
            self._learn(key, value)
        self._put_together()

    def note_layout(self, layout: Layout) -> None:
        """This driver has written it."""
        self.layout = layout

    def note_marker(self, marker: Marker, owned: Owned) -> None:
        """This driver has written it; `owned`: whose it is."""
        _put_last(self._markers, owned, marker)
        if owned == self._pipeline.owned:  # it goes on from what was the furthest
            self.marker = marker
        else:
            self._put_together()

    def note_keys(self, keys: ControlKeys) -> None:
        """This driver has written them."""
        _put_last(self._keys, self._pipeline.owned, keys)
        self.keys = keys

    @property
    def set_aside(self) -> dict[str, str]:
        """Coordinate of a record that is not judged -> why; with those of other job instances."""
        return {at: why for each in self._set_aside.values() for at, why in each.records.items()}

    def note_set_aside(self, value: SetAside) -> None:
        """This driver has written it."""
        _put_last(self._set_aside, self._pipeline.owned, value)

    def note_cell(self, value: CellValue) -> None:
        """This driver has registered."""
        _put_last(self.cells, self._pipeline.owned, value)

    @property
    def of_this_job(self) -> OfThisJob:
        """What this job alone writes. All job instances write the layout."""
        owned = self._pipeline.owned
        layout = self.layout if owned is None else None
        return self._markers.get(owned), layout, self._keys.get(owned)

    def has_newer_driver(self) -> bool:
        """Whether another driver of the same shards has written behind this one."""
        owned = self._pipeline.owned
        read = self._newest_by_key if owned is None else self._newest_decided
        found = read(self._pipeline.progress, 0, self.newest)
        marker, layout, keys = self.of_this_job
        newest_keys, newest = (found.get(cells.key_of(what, owned)) for what in (KEYS, MARKER))
        starts = keys.starts if keys else 0
        if newest_keys is not None and decode_keys(newest_keys).starts > starts:
            return True
        # A pipeline whose driver signs nothing counts no starts; it has a marker and a layout.
        if newest is not None and self._read_marker(newest) != marker:
            return True
        recorded = found.get(LAYOUT_KEY)
        return owned is None and recorded is not None and decode_layout(recorded) != layout

    # -- other job instances -------------------------------------------------------------------

    @property
    def earlier(self) -> list[Owned]:
        """The jobs that have a shard of this one and have registered before it."""
        owned, later = self._pipeline.owned, self.later
        before = [
            each
            for each in self.cells
            if each != owned and each not in later and cells.is_shared(each, owned)
        ]
        # A job over all shards registers if there are others; it may have been before them.
        return before if owned is None or None in self.cells else [*before, None]

    @property
    def later(self) -> list[Owned]:
        """The jobs that have a shard of this one and have registered behind it.

        A job instance registers before it writes anything. A job over all shards does not, as
        long as there is no other.
        """
        owned = self._pipeline.owned
        if owned is not None and owned not in self.cells:
            return []
        return cells.later_than(self.cells, owned)

    def later_as_read(self) -> list[Owned]:
        """The same of the topic as it is now, if that can be found out."""
        try:
            self.look()
        except (CoordError, KafkaException) as problem:
            _log.warning("it is not known which job has taken over", error=reason_of(problem))
        return self.later

    # -- what was read -------------------------------------------------------------------------

    def _learn(self, key: bytes, value: bytes) -> None:
        if key == LAYOUT_KEY:
            self.layout = decode_layout(value)
        if stored.is_topic_id_page(key):
            self.id_pages[key] = value
        match cells.read_key(key):
            case (what, whose) if what == MARKER:
                _put_last(self._markers, whose, self._read_marker(value))
            case (what, whose) if what == KEYS:
                _put_last(self._keys, whose, decode_keys(value))
            case (what, whose) if what == CELL:
                cell = self._decoded(_decode_cell, value, "A job's registration", CELL)
                _put_last(self.cells, whose, cell)
            case (what, whose) if what == SET_ASIDE:
                found = self._decoded(_decode_set_aside, value, "What is set aside", SET_ASIDE)
                _put_last(self._set_aside, whose, found)

    def _put_together(self) -> None:
        owned, shards = self._pipeline.owned, self.layout.shards if self.layout else 0
        self.marker = cells.composed(self._markers, owned, shards)
        if self._keys.keys() - {owned}:
            named = {key.key: key for each in self._keys.values() for key in each.keys}
            starts = max(each.starts for each in self._keys.values())
            self.keys = ControlKeys(starts=starts, keys=tuple(named.values()))
        else:
            self.keys = self._keys.get(owned)

    def _read_marker(self, value: bytes) -> Marker:
        return self._decoded(decode_marker, value, "The progress marker", MARKER)

    def _decoded(
        self, decode: Callable[[bytes], _Known], value: bytes, what: str, key: str
    ) -> _Known:
        try:
            return decode(value)
        except msgspec.MsgspecError as problem:
            raise StartRefused(
                f"{what} cannot be read: {problem}",
                f"key {key} of {self._pipeline.progress}",
                "Start the code that wrote it, or newer code.",
            ) from problem


def _put_last(known: dict[Owned, _Known], whose: Owned, value: _Known) -> None:
    """The newest of all, in the order of the log."""
    known.pop(whose, None)
    known[whose] = value

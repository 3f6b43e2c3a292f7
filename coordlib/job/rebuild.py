"""States made anew: from the compacted topics, or by folding the input once more."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
import structlog
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaException, Message

from coordlib.core.engine.effects import Output
from coordlib.core.engine.state import (
    PROGRESS,
    UNTRUSTED_TIME_MS,
    InputRecord,
    ShardSettings,
    Topics,
)
from coordlib.core.engine.step import UnknownSavedVersion
from coordlib.core.wire.stored import Marker, ShardPosition
from coordlib.errors import CannotReach, StartRefused
from coordlib.job.pipelines import Pipeline, RestoreFns, Snapshots
from coordlib.job.progress import NewestByKey
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import denial, open_admin, reaching, reading, reason_of, refusing
from coordlib.kafka.logs import AGAIN_S, Bounds, Place, lost_at_two_looks, named
from coordlib.kafka.reading import read_range

#: Records that are folded at once: it bounds the memory of the driver.
AT_ONCE: Final = 20_000
_UNREACHABLE: Final = (
    "The input cannot be read again",
    "Check that the broker runs and that this job may read the topic.",
)
_log = structlog.get_logger()


class InputLog(Protocol):
    """The first input of a pipeline."""

    def starts(self) -> Mapping[int, int]:
        """Shard -> the offset of its oldest record, or of its next one.

        Raises CannotReach, NotAllowed.
        """

    def read(self, shard: int, first: int, end: int) -> Iterator[InputRecord]:
        """The records from `first` up to `end`, exclusive. Raises CannotReach, NotAllowed."""


class KafkaInput:
    """The topic, read uncommitted, as the query reads it."""

    def __init__(
        self, client_options: Mapping[str, Any], letter: str, topic: str, shards: int
    ) -> None:
        self._options, self._letter, self._topic = client_options, letter, topic
        self._places = [Place(topic, shard) for shard in range(shards)]

    def starts(self) -> Mapping[int, int]:
        admin = open_admin(self._options, log_level=2)
        with reaching(*_UNREACHABLE):
            denied = refusing(self._options, reading)
            found = log_bounds(admin, self._places, on_denied=denied)
        silent = [place.partition for place in self._places if found.get(place) is None]
        if silent:
            raise CannotReach(
                "Partitions of the input do not say where they begin.",
                f"{self._topic}, partitions {silent}",
                "Check that each partition has a leader, then try again.",
            )
        return {place.partition: log.start for place, log in found.items() if log is not None}

    def read(self, shard: int, first: int, end: int) -> Iterator[InputRecord]:
        try:
            for message in read_range(self._options, self._topic, shard, first, end):
                yield record_of(self._letter, message)
        except KafkaException as problem:
            what, hint = _UNREACHABLE
            denied = denial(problem, reading(self._topic), self._options)
            raise denied or CannotReach(what, reason_of(problem), hint) from problem


def record_of(letter: str, message: Message) -> InputRecord:
    """A message as the query's operator has it."""
    kind, time_ms = message.timestamp()
    is_trusted = kind == TIMESTAMP_LOG_APPEND_TIME
    offset, value = message.offset() or 0, message.value()
    raw = value.encode() if isinstance(value, str) else value
    return InputRecord(letter, offset, time_ms if is_trusted else UNTRUSTED_TIME_MS, raw)


@dataclass(frozen=True, slots=True)
class Replay:
    """How the states of a pipeline's shards are brought up to a marker.

    Its bounds are asked once: what is restored, and where the query begins, must agree.
    """

    settings: ShardSettings
    log: InputLog
    #: Shard -> where its input begins.
    starts: Mapping[int, int]
    #: Shards whose states began late.
    late: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, settings: ShardSettings, log: InputLog) -> "Replay":
        """Ask for the bounds. Raises CannotReach."""
        return cls(settings, log, log.starts())

    def cut(self, next_offsets: Mapping[str, int]) -> dict[int, tuple[int, int]]:
        """Shards whose input lacks records that were not judged: (first, end) of what is gone.

        Args:
            next_offsets: partition, as text -> next record to judge.
        """
        gone = {
            shard: (next_offsets.get(str(shard), start), start)
            for shard, start in self.starts.items()
        }
        return {shard: (first, end) for shard, (first, end) in gone.items() if first < end}

    def brought_up(self, pipeline: Pipeline, shard: int, topics: Topics, end: int) -> bytes:
        """The state after the record before `end`, by the pipeline's snapshots.

        Raises:
            CannotReach: the input cannot be read, or a part of it was deleted meanwhile.
        """
        snapshots = pipeline.restore
        assert isinstance(snapshots, Snapshots)
        own = msgspec.structs.replace(self.settings, shard=shard)
        blob = snapshots.begin(topics, own)
        first, start = _newest(pipeline, blob, own) + 1, self.starts.get(shard, 0)
        if start > first:
            gap_from = end if start > end else first
            _log.warning("records are gone: the state begins late", shard=shard, first=gap_from)
            self.late.add(shard)
            return snapshots.late(topics, own, gap_from)
        for some in _parts(self.log.read(shard, first, end)):
            blob = pipeline.fold(blob, some, own).blob
        return pipeline.fold(None, [], own).blob if blob is None else blob


def _newest(pipeline: Pipeline, blob: bytes | None, settings: ShardSettings) -> int:
    """The newest record that a state has judged; -1: none."""
    letter = next(iter(pipeline.inputs))
    return pipeline.fold(blob, [], settings).status.position.offsets.get(letter, -1)


def _parts(records: Iterable[InputRecord]) -> Iterator[list[InputRecord]]:
    some: list[InputRecord] = []
    for record in records:
        some.append(record)
        if len(some) == AT_ONCE:
            yield some
            some = []
    if some:
        yield some


#: Of the entities without a saved head, those that a warning names.
GROUPS_NAMED_MAX: Final = 10
_NOWHERE = ShardPosition(clock_ms=0, previous_ms=0, published=-1)


def seed_blobs(
    newest_by_key: NewestByKey,
    id_pages: Mapping[bytes, bytes],
    pipeline: Pipeline,
    shards: int,
    marker: Marker | None,
    replay: Replay | None = None,
) -> dict[int, bytes]:
    """Fold the compacted topics into the shards' states at the marker.

    Args:
        id_pages: as the progress topic was read.
        shards: of the prefix; those of the pipeline are rebuilt.
        replay: of a pipeline whose topics have older states.
    """
    if marker is None:
        raise StartRefused(
            "There is nothing to rebuild from: the topics have no progress marker.",
            f"prefix {pipeline.prefix}",
            "Start without --rebuild.",
        )
    return {
        shard: seed_blob(newest_by_key, id_pages, pipeline, shard, marker, replay)
        for shard in pipeline.shards(shards)
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
    lost: list[str] = []
    for (topic, partition), found in sorted(bounds.items()):
        end = saved.get(topic, {}).get(str(partition), 0)
        if found is not None and found.start > 0:
            lost.append(f"{topic}, partition {partition}, begins at offset {found.start}")
        if found is not None and found.end < end:
            lost.append(
                f"{topic}, partition {partition}, ends at offset {found.end}, and {end} was written"
            )
    return lost


def cut_at_two_looks(
    look: Callable[[], Mapping[Place, Bounds | None]],
    marker: Marker | None,
    wait: Callable[[], None] = lambda: time.sleep(AGAIN_S),
) -> tuple[list[str], dict[Place, Bounds | None]]:
    """What `cut` finds also at a second look, and the newest bounds of each partition.

    One that does not answer at the second look is what it was at the first.
    """
    bounds: dict[Place, Bounds | None] = {}

    def lost() -> list[str]:
        bounds.update(look())
        return cut(bounds, marker)

    return lost_at_two_looks(lost, wait), bounds


def refuse_cut(
    look: Callable[[], Mapping[Place, Bounds | None]],
    marker: Marker | None,
    wait: Callable[[], None] = lambda: time.sleep(AGAIN_S),
) -> None:
    """Refuse to rebuild from compacted topics that lack records.

    Args:
        look: asks for the bounds of the partitions that a rebuild reads.
    """
    lost, _ = cut_at_two_looks(look, marker, wait)
    if lost:
        raise StartRefused(
            "Compacted topics have lost records. What these held would be missing: groups, "
            "offsets, partitions of clusters.",
            named(lost),
            "Restore the topics; or, to go on with what is left, name an empty folder and add "
            "--rebuild --accept-loss.",
        )


def withdrawn(newest_by_key: NewestByKey, pipeline: Pipeline, replay: Replay) -> list[Output]:
    """Tombstones for what shards that began late know nothing of: a dead owner would stand there
    for ever."""
    if isinstance(pipeline.restore, RestoreFns):
        return []
    topic = pipeline.restore.unknown_when_late
    return [
        Output(topic, shard, key, None)
        for shard in sorted(replay.late)
        for key in sorted(newest_by_key(f"{pipeline.prefix}.{topic}", shard))
    ]


def seed_blob(
    newest_by_key: NewestByKey,
    id_pages: Mapping[bytes, bytes],
    pipeline: Pipeline,
    shard: int,
    marker: Marker,
    replay: Replay | None = None,
) -> bytes:
    """Fold the compacted topics into one shard's state at the marker. Raises StartRefused."""
    began = time.monotonic()
    prefix = pipeline.prefix
    topics = {name: newest_by_key(f"{prefix}.{name}", shard) for name in pipeline.restored_from}
    read = time.monotonic()
    position = marker.shards.get(str(shard), _NOWHERE)
    try:
        if isinstance(pipeline.restore, RestoreFns):
            blob = pipeline.restore.restore({**topics, PROGRESS: id_pages}, position)
            left_out = pipeline.restore.left_out(topics)
        else:
            assert replay is not None, "its input is folded again"
            judged = marker.next_offsets.get(pipeline.first_input, {})
            blob, left_out = (
                replay.brought_up(pipeline, shard, topics, judged.get(str(shard), 0)),
                [],
            )
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

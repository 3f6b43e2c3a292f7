"""What must agree before a driver may run, and which record is too much for it.

Keeps INV-144.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog
from confluent_kafka import Message
from msgspec.structs import replace

from coordlib.core.engine.effects import Output
from coordlib.core.engine.fold import coordinate
from coordlib.core.engine.state import InputRecord, ShardSettings
from coordlib.core.wire import api, codec
from coordlib.core.wire.cells import Owned, read_by_all
from coordlib.core.wire.stored import Layout, Marker
from coordlib.errors import StartRefused
from coordlib.job import rebuild
from coordlib.job.checkpoint import Begun, CheckpointFolder, Ended, Identity, Planned, Probe
from coordlib.job.judged_log import JudgedLog, bounds_of
from coordlib.job.pipelines import Pipeline
from coordlib.job.process import StopAsked
from coordlib.job.progress import NewestByKey, check_identity
from coordlib.job.rebuild import Replay, record_of
from coordlib.job.sink import TransactionalSink
from coordlib.kafka.clients import reaching
from coordlib.kafka.logs import Place
from coordlib.kafka.reading import read_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = structlog.get_logger()
#: Starts that end without an exception with the same planned batch, until it is not run again:
#: one alone may be a kill.
SILENT_ENDS = 2
#: Records that a log line names.
_NAMED_MAX: Final = 20
_OTHER_COUNTS = "Numbers of partitions are fixed for the topics' life."
_MADE_ANEW = "What a deleted topic held is lost, and other topics refer to it."
_NOT_THERE = "Start the code that recorded those topics, or newer code."
_AFRESH = (
    "To begin afresh, use a new prefix, or delete all topics of this one and create them again "
    "(coord topics create)."
)


class Folder(Protocol):
    """The folder of a checkpoint, in whatever file system."""

    path: str

    def identity(self) -> Identity | None: ...

    def create(
        self,
        prefix: str,
        shards: int,
        incarnation: str,
        rebuilt_from: Marker | None = None,
        owned: Owned = None,
    ) -> Identity: ...

    def has_batches(self) -> bool: ...

    def has_committed_batches(self) -> bool: ...

    def forget_batches(self) -> None: ...

    def planned(self, identity: Identity) -> Planned | None: ...

    def ended(self) -> Ended | None: ...

    def write_ended(self, ended: Ended) -> None: ...

    def begun(self) -> Begun | None: ...

    def write_seed(self, shard: int, blob: bytes, continued: Marker) -> None: ...


def agree(  # noqa: PLR0913  # the last three have a default
    sink: TransactionalSink,
    folder: Folder,
    layout: Layout,
    pipeline: Pipeline,
    newest_by_key: NewestByKey,
    is_rebuild: bool = False,
    replay: Replay | None = None,
    *,
    log: JudgedLog | None = None,
    require_whole: Callable[[], None] = lambda: None,
) -> Identity:
    """Fence older drivers and settle which checkpoint goes on.

    Args:
        replay: of a pipeline whose rebuild folds its input once more.
        log: where lost requests are looked for; None: nowhere.
        require_whole: raises StartRefused where the topics lack what a rebuild needs.

    Raises:
        StartRefused: the topics or the checkpoint are not what they must be, or requests are lost.
        CannotReach: no broker answers.
    """
    _take_over(sink, folder, layout, pipeline, is_rebuild)
    if log is not None:
        log.settle(sink, layout)
    identity, marker = folder.identity(), sink.marker
    is_anew = must_begin_anew(folder, marker)
    too_much = None if identity is None else ended_with(folder, identity, marker)
    if identity is not None and not is_anew and too_much is None:
        return identity
    # All that may fail comes before the batches are removed.
    try:
        if too_much is not None and not is_anew:
            require_whole()
        seeds = _seeds(sink, layout, pipeline, newest_by_key, replay)
    except StartRefused as problem:
        if identity is None or is_anew:
            raise
        hint = "give the job more memory, or do what the error says"
        _log.warning("the planned batch runs as it is: no rebuild", error=str(problem), hint=hint)
        return identity
    ended = None
    if identity is not None and too_much is not None:
        ended = _planned_less(identity, marker, too_much, pipeline)
    elif identity is not None and (probing := folder.ended()) is not None and probing.probes:
        ended = probing  # a start has died in it
    late = rebuild.withdrawn(newest_by_key, pipeline, replay) if marker and replay else []
    return make_anew(sink, folder, layout, pipeline, seeds, ended, late)


def make_anew(
    sink: TransactionalSink,
    folder: Folder,
    layout: Layout,
    pipeline: Pipeline,
    seeds: Mapping[int, bytes],
    ended: Ended | None,
    late: Iterable[Output] = (),
) -> Identity:
    """Let the folder begin with these states, at the newest marker.

    Args:
        ended: what this start and the next ones are to find of the batches before.
        late: written before it begins.
    """
    marker = sink.marker
    for shard, blob in seeds.items():
        assert marker is not None
        folder.write_seed(shard, blob, marker)
    if folder.identity() is not None:
        _log.warning("the checkpoint is created again: it cannot be continued", folder=folder.path)
        folder.forget_batches()
        if ended is not None:
            folder.write_ended(ended)
    if marker is not None:
        sink.write_extra(late)
        _log.info("rebuilt from the topics", shards=len(seeds), batch=marker.batch)
    incarnation = layout.topic_ids[pipeline.first_input][:8]
    return folder.create(pipeline.prefix, layout.shards, incarnation, marker, pipeline.owned)


def _take_over(
    sink: TransactionalSink, folder: Folder, layout: Layout, pipeline: Pipeline, is_rebuild: bool
) -> None:
    """Fence older drivers, where topics and checkpoint are what they must be."""
    # Before anybody is fenced: a start with a wrong folder, or of older code, must not end a
    # healthy job.
    sink.read_progress()
    refuse_other_topics(sink.layout, layout, pipeline.prefix)
    try:
        _refuse_wrong_checkpoint(folder, layout, sink.marker, pipeline, is_rebuild)
    except StartRefused:
        sink.progress.read()  # the marker may stand behind another job instance's open transaction
        _refuse_wrong_checkpoint(folder, layout, sink.marker, pipeline, is_rebuild)
    sink.open()
    # Nor a healthy job instance: until now its marker may have stood behind an open transaction.
    _refuse_wrong_checkpoint(folder, layout, sink.marker, pipeline, is_rebuild)
    sink.take_over(layout.shards)
    _agree_on_layout(sink, layout, pipeline)
    # Once more: the older driver may have committed a batch until it was fenced.
    _refuse_wrong_checkpoint(folder, layout, sink.marker, pipeline, is_rebuild)


def _seeds(
    sink: TransactionalSink,
    layout: Layout,
    pipeline: Pipeline,
    newest_by_key: NewestByKey,
    replay: Replay | None,
) -> dict[int, bytes]:
    """The shards' states by the topics; none where nothing was judged yet."""
    if sink.marker is None:
        return {}
    if layout.reply_partitions:
        sink.tell_loading(layout.reply_partitions)
    pages = sink.progress.id_pages
    return rebuild.seed_blobs(newest_by_key, pages, pipeline, layout.shards, sink.marker, replay)


def must_begin_anew(folder: Folder, marker: Marker | None) -> bool:
    """Whether a start has begun to remove the checkpoint's batches, and died.

    The state is to be taken from the topics then.
    """
    identity = folder.identity()
    if identity is None or marker is None or marker.checkpoint != identity.checkpoint:
        return False
    return not folder.has_batches()


def not_committed(folder: Folder, identity: Identity, marker: Marker | None) -> Planned | None:
    """The batch that Spark would run again; None: there is none.

    The newest committed one is among them, where Spark has not ended it: it is folded again.
    """
    planned = folder.planned(identity)
    if planned is None or marker is None or marker.checkpoint != identity.checkpoint:
        return planned
    return planned if planned.number >= marker.batch else None


def ended_with(folder: Folder, identity: Identity, marker: Marker | None) -> Planned | None:
    """The planned batch with which jobs have ended, if it is not to run again.  # INV-131

    Only ends that are recognised as too much count, and those without an exception: of a process
    that the kernel has killed for want of memory.
    """
    planned = not_committed(folder, identity, marker)
    if planned is None:
        return None
    ended, begun = folder.ended(), folder.begun()
    this = identity.checkpoint, planned.number
    if ended is not None and (ended.checkpoint, ended.batch) == this:
        return replace(planned, records=min(planned.records, ended.records))
    if begun is None or begun.times < SILENT_ENDS or (begun.checkpoint, begun.batch) != this:
        return None
    return replace(planned, records=min(planned.records, begun.records))


def ended_before(folder: Folder, identity: Identity, marker: Marker | None) -> Ended | None:
    """The batch that ended a job before this checkpoint, until one of this is committed.

    So many records are planned at most.  # INV-131
    """
    ended = folder.ended()
    has_begun = marker is not None and marker.checkpoint == identity.checkpoint
    if ended is None or has_begun or ended.checkpoint == identity.checkpoint:
        return None
    return ended


def begun_with(folder: Folder, identity: Identity, planned: Planned, records_max: int) -> Begun:
    """The note of this start; one that runs the batch of the start before counts on.  # INV-131"""
    before, this = folder.begun(), (identity.checkpoint, planned.number)
    is_again = before is not None and (before.checkpoint, before.batch) == this
    return Begun(
        checkpoint=identity.checkpoint,
        batch=planned.number,
        records=min(planned.records, records_max),
        times=before.times + 1 if before is not None and is_again else 1,
    )


def _planned_less(
    identity: Identity, marker: Marker | None, too_much: Planned, pipeline: Pipeline
) -> Ended | None:
    """Half as many records as were too much, down to one of each partition.  # INV-131"""
    is_committed = marker is not None and marker.checkpoint == identity.checkpoint
    if marker and is_committed and too_much.number <= marker.batch:
        return None  # it is not planned again
    records, is_smallest = max(1, too_much.records // 2), too_much.records <= 1
    if is_smallest:
        named = [f"{topic}-{at} at {first}" for topic, at, first, _ in too_much.spans[:_NAMED_MAX]]
        hint = "give the job more memory; one of these records needs more than it has"
        if pipeline.sets_aside:
            hint = "nothing: each of them is processed by itself, to find the one that is too much"
        _log.error("one record of each partition has ended the job", records=named, hint=hint)
    _log.warning("batches have fewer records: one has ended the job", records=records)
    return Ended(
        checkpoint=identity.checkpoint,
        batch=too_much.number,
        records=records,
        probes=is_smallest and pipeline.sets_aside,
    )


def _agree_on_layout(sink: TransactionalSink, layout: Layout, pipeline: Pipeline) -> None:
    """Refuse other topics than the recorded ones; record new topics and this job's wire version.

    It may be higher than that of the job before, or lower where older code is started again. Of
    job instances the lowest counts: a client does not ask which one judges its group.  # INV-84
    """
    recorded, prefix = sink.layout, pipeline.prefix
    wire_version = read_by_all(sink.progress.cells, pipeline.owned, layout.wire_version)
    layout = replace(layout, wire_version=wire_version)
    if recorded is None:
        sink.write_layout(layout)
        return
    refuse_other_topics(recorded, layout, prefix)
    renewed = replace(recorded, topic_ids=layout.topic_ids, wire_version=wire_version)
    if recorded == renewed:
        return
    new = sorted(layout.topic_ids.keys() - recorded.topic_ids.keys())
    if new:
        _log.info("the prefix has new topics", topics=new)
    sink.write_layout(renewed)


def refuse_other_topics(recorded: Layout | None, layout: Layout, prefix: str) -> None:
    """Topics may be more than the recorded ones; these must be as they were. StartRefused."""
    if recorded is None:
        return
    if recorded.v != layout.v:
        raise StartRefused(
            f"Newer code has recorded the topics: version {recorded.v}, this code reads "
            f"{layout.v}.",
            f"prefix {prefix}",
            "Start the code that recorded them, or newer code.",
        )
    differences = list(_changed_counts(recorded, layout))
    hints = [_OTHER_COUNTS] if differences else []
    now = layout.topic_ids
    anew = [name for name, id_ in recorded.topic_ids.items() if now.get(name, id_) != id_]
    if anew:
        differences.append(f"created again since, with other topic ids: {', '.join(anew)}")
        hints.append(_MADE_ANEW)
    gone = [name for name in recorded.topic_ids if name not in now]
    if gone:
        differences.append(f"recorded, and not among the topics of this code: {', '.join(gone)}")
        hints.append(_NOT_THERE)
    if differences:
        raise StartRefused(
            f"The topics are not those that this prefix has recorded: {'; '.join(differences)}.",
            f"prefix {prefix}",
            " ".join([*hints, _AFRESH]),
        )


def _changed_counts(recorded: Layout, layout: Layout) -> Iterator[str]:
    if recorded.input != layout.input:
        yield f"{layout.input or 'requests'} is read, not {recorded.input or 'requests'}"
    if recorded.shards != layout.shards:
        yield f"{layout.shards} shards, not {recorded.shards}"
    if recorded.reply_partitions != layout.reply_partitions:
        yield f"{layout.reply_partitions} response partitions, not {recorded.reply_partitions}"


def _refuse_wrong_checkpoint(
    folder: Folder, layout: Layout, marker: Marker | None, pipeline: Pipeline, is_rebuild: bool
) -> None:
    identity = folder.identity()
    if identity is not None:
        if is_rebuild:
            raise StartRefused(
                "A rebuild begins a new checkpoint, and this folder holds one.",
                folder.path,
                "Name an empty folder, or start without --rebuild.",
            )
        if len(identity.keys) != identity.shards:
            raise StartRefused(
                f"The checkpoint has keys for {len(identity.keys)} of {identity.shards} shards: "
                "code of another version made it.",
                folder.path,
                "Start the code that made it, or name an empty folder and add --rebuild.",
            )
        check_identity(identity, marker, layout, pipeline, folder.has_committed_batches())
    elif folder.has_batches() and marker is not None:
        raise StartRefused(
            "This folder holds batches of a query, and not the file that says whose they are: the "
            "rest of a checkpoint that was lost, or the checkpoint of something else. The topics "
            f"have history up to batch {marker.batch} of checkpoint {marker.checkpoint}.",
            folder.path,
            "If it was this job's, empty it and start with --rebuild; else name another.",
        )
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


#: The first record of a partition from an offset on; None: none is there yet.
NextRecord = Callable[[Place, int], Message | None]
#: What its sender is answered, and history says.
WHY: Final = (
    "The request is set aside: it has ended the job each time that it was judged, as it needs "
    "more memory than the job has. Send smaller requests, or give the job more memory, then send "
    "it again."
)
_MORE_MEMORY: Final = "give the job more memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """The probes of one start, whose checkpoint was made anew and has no batch of Spark's."""

    pipeline: Pipeline
    sink: TransactionalSink
    next_record: NextRecord
    newest_by_key: NewestByKey
    folder: CheckpointFolder
    identity: Identity
    #: For each record with what is set aside until then.
    settings: ShardSettings
    #: The outputs of records of one shard, from its state.
    judge: "Callable[[ShardSettings, bytes | None, list[InputRecord]], DataFrame]"
    #: Commits them as the batch of this number.
    write: "Callable[[DataFrame, int], None]"
    #: Whether the job is to stop; asked before each probe.
    is_stopped: Callable[[], bool] = lambda: False

    def run(self) -> None:
        """Judge the next record of each input of each shard.

        Raises:
            StopAsked: some of them are not judged; the next start goes on with those.
            Exception: whatever ends a batch.
        """
        at_start = self.sink.marker
        for shard, record in self._waiting():
            if self.is_stopped():
                if self.sink.marker is not at_start:  # the record of the note is judged
                    self.folder.forget_probe()
                _log.info("the job is to stop: other records are not processed by themselves")
                raise StopAsked
            at = coordinate(record.topic, shard, record.offset)
            noted = self.folder.probe()
            before = (
                noted if noted is not None and noted.record == at else Probe(record=at, times=0)
            )
            seed = self._seed(shard)
            if before.is_too_much or before.times >= SILENT_ENDS:
                if not self._set_aside(shard, seed, record, at):
                    continue
                before = Probe(record=at, times=0)
            _log.info("a record is processed by itself", record=at)
            self.folder.write_probe(replace(before, times=before.times + 1))
            self.write(self._judged(shard, seed, [record]), self._number())
        self.folder.forget_probe()

    def _waiting(self) -> Iterator[tuple[int, InputRecord]]:
        """The shards, and the record that comes next of each of their inputs.

        First the one that is noted: others come all the time, and there is one note.
        """
        noted, shards = self.folder.probe(), self.pipeline.shards(self.settings.shards)
        places = [(letter, shard) for letter in self.pipeline.inputs for shard in shards]
        if noted is not None:
            places.sort(key=lambda each: not noted.record.startswith("{}{}-".format(*each)))
        for letter, shard in places:
            topic, marker = self.pipeline.inputs[letter], self.sink.marker
            judged = marker.next_offsets.get(topic, {}) if marker else {}
            message = self.next_record(Place(topic, shard), judged.get(str(shard), 0))
            if message is not None:
                yield shard, record_of(letter, message)

    def _seed(self, shard: int) -> bytes | None:
        marker = self.sink.marker
        if marker is None:
            return None
        pages = self.sink.progress.id_pages
        return rebuild.seed_blob(self.newest_by_key, pages, self.pipeline, shard, marker)

    def _number(self) -> int:
        """Of the next batch."""
        marker = self.sink.marker
        if marker is None or marker.checkpoint != self.identity.checkpoint:
            return 0
        return marker.batch + 1

    def _set_aside(self, shard: int, seed: bytes | None, record: InputRecord, at: str) -> bool:
        """Whether the record that has ended the job is rejected from now on."""
        if at in self.sink.progress.set_aside:
            why = "it is set aside, and what its time brings about is too much"
        elif isinstance(codec.decode_request(record.value), api.Control):
            why = "the job has written it, and goes on behind nothing of its own"
        else:
            _log.warning("the state of a shard is processed without a record", shard=shard)
            self._judged(shard, seed, []).toArrow()
            self.sink.set_aside(at, WHY)
            _log.error("a record is set aside: it has ended the job", record=at)
            return True
        _log.error("a record has ended the job", record=at, why=why, hint=_MORE_MEMORY)
        return False

    def _judged(self, shard: int, seed: bytes | None, records: list[InputRecord]) -> "DataFrame":
        settings = replace(self.settings, shard=shard, set_aside=self.sink.progress.set_aside)
        return self.judge(settings, seed, records)


def next_record(options: Mapping[str, str], place: Place, first: int) -> Message | None:
    """`NextRecord`, of brokers. Raises CannotReach."""
    with reaching(f"{place.topic} cannot be read.", "Check that the broker runs."):
        start, end = bounds_of(options, [place])[place]
        found = read_range(options, *place, max(start, first), end)
        return next(found, None)

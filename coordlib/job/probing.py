"""The records that come next, each judged by itself: which of them is too much for the job?

Where one record of each partition has ended the job, Spark can plan nothing less. So a start reads
one record of one input at a time with a client of its own, judges it on the shard's state from the
topics, and commits the outcome as a batch. The record that ends the job here is set aside by the
next start: an entry in `coord.progress`, by which shards reject it, also when it is judged again.
It is written before the record is judged, so no two runs differ.  # INV-144

Not every record may be set aside. A message between shards that is not judged would hold up all
that its sender sends, and ticks carry the time; so what the driver has written is tried again.
Nor is a record to blame where its shard's state alone is too much: that is tried first.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from confluent_kafka import Message
from msgspec.structs import replace

from coordlib.core.engine.shard import InputRecord, ShardSettings
from coordlib.core.engine.transition import coordinate
from coordlib.core.wire import codec
from coordlib.core.wire import requests as rq
from coordlib.job import rebuild
from coordlib.job.checkpoint import CheckpointFolder, Identity, Probe
from coordlib.job.judged_log import bounds_of
from coordlib.job.lifecycle import StopAsked
from coordlib.job.plane import Plane
from coordlib.job.progress import NewestByKey
from coordlib.job.replay import record_of
from coordlib.job.sink import TransactionalSink
from coordlib.job.start import SILENT_ENDS
from coordlib.kafka.clients import reaching
from coordlib.kafka.places import Place
from coordlib.kafka.reading import read_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = structlog.get_logger()
#: The first record of a partition from an offset on; None: none is there yet.
NextRecord = Callable[[Place, int], Message | None]
#: What its sender is answered, and history says.
WHY: Final = (
    "The request is set aside: it has ended the job each time that it was judged, as it needs "
    "more memory than the job has. Ask in smaller parts, or give the job more memory, then send "
    "it again."
)
_MORE_MEMORY: Final = "give the job more memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """The probes of one start, whose checkpoint was made anew and has no batch of Spark's."""

    plane: Plane
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
                _log.info("the job is to stop: other records are not judged by themselves")
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
            _log.info("a record is judged by itself", record=at)
            self.folder.write_probe(replace(before, times=before.times + 1))
            self.write(self._judged(shard, seed, [record]), self._number())
        self.folder.forget_probe()

    def _waiting(self) -> Iterator[tuple[int, InputRecord]]:
        """The shards, and the record that comes next of each of their inputs.

        First the one that is noted: others come all the time, and there is one note.
        """
        noted, shards = self.folder.probe(), self.plane.shards(self.settings.shards)
        places = [(letter, shard) for letter in self.plane.inputs for shard in shards]
        if noted is not None:
            places.sort(key=lambda each: not noted.record.startswith("{}{}-".format(*each)))
        for letter, shard in places:
            topic, marker = self.plane.inputs[letter], self.sink.marker
            judged = marker.next_offsets.get(topic, {}) if marker else {}
            message = self.next_record(Place(topic, shard), judged.get(str(shard), 0))
            if message is not None:
                yield shard, record_of(letter, message)

    def _seed(self, shard: int) -> bytes | None:
        marker = self.sink.marker
        if marker is None:
            return None
        pages = self.sink.progress.id_pages
        return rebuild.seed_blob(self.newest_by_key, pages, self.plane, shard, marker)

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
        elif isinstance(codec.decode_request(record.value), rq.Control):
            why = "the job has written it, and goes on behind nothing of its own"
        else:
            _log.warning("the state of a shard is judged without a record", shard=shard)
            self._judged(shard, seed, []).toArrow()
            self.sink.set_aside(at, WHY)
            _log.error("a record is set aside: it has ended the job", record=at)
            return True
        _log.error("a record has ended the job", record=at, why=why, mend=_MORE_MEMORY)
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

"""A state that is older than the marker, brought up to it by folding the input once more.

Some planes save no value per entity but a snapshot of a whole shard from time to time. Their
restore gives a state at an older record; what was judged behind it is read from the input and
folded again, without its outputs, which are committed. Where retention has deleted some of it, the
shard begins late, behind the marker, with what is saved (`Snapshots.late`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
import structlog
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaException, Message

from coordlib.core.engine.shard import UNTRUSTED_TIME_MS, InputRecord, ShardSettings
from coordlib.errors import CannotReach
from coordlib.job.plane import Plane, Snapshots, Topics
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin, reaching, reason_of
from coordlib.kafka.denied import denial, reading, refusing
from coordlib.kafka.places import Place
from coordlib.kafka.reading import read_range

#: Records that are folded at once: it bounds the memory of the driver.
AT_ONCE: Final = 20_000
_UNREACHABLE: Final = (
    "The input cannot be read again",
    "Check that the broker runs and that this job may read the topic.",
)
_log = structlog.get_logger()


class InputLog(Protocol):
    """The first input of a plane."""

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
            what, mend = _UNREACHABLE
            denied = denial(problem, reading(self._topic), self._options)
            raise denied or CannotReach(what, reason_of(problem), mend) from problem


def record_of(letter: str, message: Message) -> InputRecord:
    """A message as the query's operator has it."""
    kind, time_ms = message.timestamp()
    is_trusted = kind == TIMESTAMP_LOG_APPEND_TIME
    offset, value = message.offset() or 0, message.value()
    raw = value.encode() if isinstance(value, str) else value
    return InputRecord(letter, offset, time_ms if is_trusted else UNTRUSTED_TIME_MS, raw)


@dataclass(frozen=True, slots=True)
class Replay:
    """How the states of a plane's shards are brought up to a marker.

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

    def brought_up(self, plane: Plane, shard: int, topics: Topics, end: int) -> bytes:
        """The state after the record before `end`, by the plane's snapshots.

        Raises:
            CannotReach: the input cannot be read, or a part of it was deleted meanwhile.
        """
        snapshots = plane.restore
        assert isinstance(snapshots, Snapshots)
        own = msgspec.structs.replace(self.settings, shard=shard)
        blob = snapshots.begin(topics, own)
        first, start = _newest(plane, blob, own) + 1, self.starts.get(shard, 0)
        if start > first:
            gap_from = end if start > end else first
            _log.warning("records are gone: the state begins late", shard=shard, first=gap_from)
            self.late.add(shard)
            return snapshots.late(topics, own, gap_from)
        for some in _parts(self.log.read(shard, first, end)):
            blob = plane.fold(blob, some, own).blob
        return plane.fold(None, [], own).blob if blob is None else blob


def _newest(plane: Plane, blob: bytes | None, settings: ShardSettings) -> int:
    """The newest record that a state has judged; -1: none."""
    letter = next(iter(plane.inputs))
    return plane.fold(blob, [], settings).status.position.offsets.get(letter, -1)


def _parts(records: Iterable[InputRecord]) -> Iterator[list[InputRecord]]:
    some: list[InputRecord] = []
    for record in records:
        some.append(record)
        if len(some) == AT_ONCE:
            yield some
            some = []
    if some:
        yield some

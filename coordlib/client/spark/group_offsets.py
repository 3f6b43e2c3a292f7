"""The offsets of a group that Spark reads: where its partitions begin, and commits of positions.

A partition begins at its committed offset, checked against the log:

    committed           the partition begins there
    nothing             at the log's start; with `latest` at its end, which is committed first
    within the log      at that offset
    below its start     at its start: the records between them are deleted for every reader
    beyond its end      as if nothing were committed: the topic was deleted and created again
    of another topic    the same: Kafka's id of the topic tells, where it is known  # INV-130

Partitions that do not exist, or have no leader now, are left out and looked for again; the
coordinator demands them back when it finds that their topic is gone. The others are read meanwhile.

Commits are written without waiting, and looked at when answered.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import structlog

from coordlib.client.groups.reading import COMMITS_MS, Start, TopicIds
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark.delta_writes import Tables
from coordlib.client.spark.positions import Otherwise
from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import readable_bounds
from coordlib.kafka.clients import open_admin
from coordlib.kafka.logs import Bounds, Place
from coordlib.kafka.options import KafkaOptions

_log = structlog.get_logger()
#: The reader's thread waits for it, and releases nothing meanwhile.
_TIMEOUT_S: Final = 5.0
_LOOK_EVERY_S: Final = 5.0

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Begin:
    """The partitions that are to be read."""

    #: The first offset of each partition.
    offsets: Offsets
    #: The committed offset of each partition that has one.
    committed: Offsets


class Beginnings:
    """Finds where partitions begin, and whether a query failed because of the log.

    Args:
        group: named in errors and logs.
        config: confluent-kafka's keys of the brokers that have the topics.
        otherwise: where partitions without a committed offset begin.
        is_strict: records that were deleted before they were read are an error, not a warning; a
            topic that is deleted as a whole is no error.
        ask: the committed offsets of these partitions, and perhaps of others before them.
        ids: of the topics that are read.
        note: takes the metadata of all that were answered.
        settle: commits where partitions begin; not answered here.
        is_committed: logs end where a reader of committed records comes to an end.
    """

    def __init__(  # noqa: PLR0913  # most by keyword
        self,
        group: str,
        config: Mapping[str, Any],
        otherwise: Otherwise,
        *,
        is_strict: bool,
        ask: Callable[[Sequence[TopicPartition]], "Future[sg.Answer]"],
        ids: TopicIds,
        note: Callable[[Iterable[str]], None],
        settle: Callable[[Offsets], None],
        is_committed: bool = False,
    ) -> None:
        self._group, self._config, self._is_committed = group, dict(config), is_committed
        self._otherwise, self._is_strict = otherwise, is_strict
        self._ask, self._ids, self._note, self._settle = ask, ids, note, settle
        self._admin: Admin | None = None
        #: The committed offsets of these fences, asked for and perhaps answered.
        self._asked: tuple[Mapping[TopicPartition, int], Start] | None = None
        #: Those of the newest look that could not be read.
        self.absent: frozenset[TopicPartition] = frozenset()
        self._looked_s = 0.0

    def find(self, fences: Mapping[TopicPartition, int]) -> Begin | None:
        """Where these begin, without those that are `absent`; None: ask again, answers are due.

        Raises:
            CannotReach: broker or coordinator do not answer.
            CoordError: records are gone, and the reader is strict.
        """
        if self._asked is None or self._asked[0] != fences:
            places = tuple(sorted(fences))
            ids = self._ids.ask_later({each.topic for each in places})
            self._asked = fences, Start(places, self._ask(places), ids)
        if not self._asked[1].is_ready(self._ids):
            return None
        start, self._asked = self._asked[1], None
        answer = start.answer.result(0)
        if answer.error is not None:
            what = f"Committed offsets are not known: {answer.error}"
            raise CannotReach(what, f"group {self._group}") from answer.error
        self._note(row.metadata for row in answer.offsets)
        self._ids.take_in()
        committed = {place: at for place, at in start.begin(self._ids).items() if at >= 0}
        return self._within(fences, committed)

    def are_back(self, held: Iterable[TopicPartition]) -> bool:
        """Whether some of those held that were absent can be read now; looks now and then."""
        self.absent = self.absent.intersection(held)
        if not self.absent or time.monotonic() - self._looked_s < _LOOK_EVERY_S:
            return False
        self._looked_s = time.monotonic()
        try:
            back = self.bounds(self.absent).keys()
        except CannotReach as problem:
            _log.warning("absent partitions are not known", group=self._group, error=str(problem))
            return False
        self.absent -= back
        return bool(back)

    def explain(self, positions: Offsets) -> bool:
        """Whether a query that has read up to there failed because of the log: partitions, or their
        next records, are gone, or a topic is another one. Then another query may go on."""
        topics = {each.topic for each in positions}
        if self._ids.refused(topics) or self._ids.made_anew(topics):
            return True
        try:
            bounds = self.bounds(positions)
        except CannotReach:
            return False  # reported as the query's own failure
        if bounds.keys() != positions.keys():
            return True
        return not self._is_strict and any(
            not bounds[place].start <= at <= bounds[place].end for place, at in positions.items()
        )

    def _within(self, fences: Mapping[TopicPartition, int], committed: Offsets) -> Begin | None:
        self._looked_s = time.monotonic()
        bounds = self.bounds(fences)
        self.absent = frozenset(fences.keys() - bounds.keys())
        if self.absent:
            names = _named(sorted(self.absent))
            _log.warning("partitions that are not there", group=self._group, partitions=names)
        offsets = {
            place: self.first(place, committed.get(place), bounds[place])
            for place in sorted(bounds)
        }
        known = {place: at for place, at in offsets.items() if at is not None}
        unsettled = offsets.keys() - known.keys()
        if unsettled and self._otherwise == "latest":
            # The next look finds them committed, before any record is read.
            self._settle({place: bounds[place].end for place in sorted(unsettled)})
            return None
        known |= {place: bounds[place].start for place in unsettled}
        return Begin(known, {place: at for place, at in committed.items() if place in known})

    def first(self, place: TopicPartition, at: int | None, bounds: Bounds) -> int | None:
        """The first offset of a partition that is at `at`; None: that is no offset of its log.

        Raises CoordError: records are gone, and that is an error.
        """
        if at is None or bounds.start <= at <= bounds.end:
            return at
        begins = bounds.start if at < bounds.start else None
        bounds_now = {"committed": at, "log_start": bounds.start, "log_end": bounds.end}
        if self._is_strict:
            what = f"Records are gone before they were read: {_named([place])}, {bounds_now}."
            hint = "Commit where the group is to continue, or read with failOnDataLoss=false."
            raise CoordError(what, f"group {self._group}", hint)
        partition = _named([place])
        _log.warning(
            "committed outside the log", group=self._group, partition=partition, **bounds_now
        )
        return begins

    def bounds(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """The log's bounds of the readable partitions. Raises CannotReach."""
        if self._admin is None:
            self._admin = open_admin(self._config)
        asked = [Place(*each) for each in sorted(places)]
        found = readable_bounds(
            self._admin, self._config, asked, _TIMEOUT_S, is_committed=self._is_committed
        )
        return {TopicPartition(*at): bounds for at, bounds in found.items()}


def _named(places: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{each.topic}-{each.partition}" for each in places)


class CommittedPositions:
    """What was committed last of each partition, as far as it was not refused."""

    def __init__(self, committed: Mapping[TopicPartition, int]) -> None:
        self._newest = dict(committed)

    def uncommitted(self, positions: Mapping[TopicPartition, int]) -> Offsets:
        """Those of the positions that are not written to the log yet."""
        return {each: at for each, at in positions.items() if at != self._newest.get(each)}

    def note(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These were written."""
        self._newest.update(offsets)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing is known of these any more."""
        for each in partitions:
            self._newest.pop(each, None)

    def refused(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These count as not written, unless a newer position was written meanwhile."""
        for each, offset in offsets.items():
            if self._newest.get(each) == offset:
                del self._newest[each]


#: The positions that note a commit, its offsets, and its answer to come.
_Open = tuple[CommittedPositions | None, Offsets, "Future[sg.Answer]"]


class Commits:
    """Commits that were written to the log and have no answer yet. Any thread may write one.

    Args:
        group: named in errors and logs.
        tables: commits offsets, with the tables that the group has written to.
    """

    def __init__(self, group: str, tables: Tables) -> None:
        self._group, self._tables = group, tables
        self._open: list[_Open] = []
        self._lock = threading.Lock()

    def send(self, positions: CommittedPositions | None, offsets: Offsets) -> None:
        """Commit offsets; `positions` notes them. None: they are the beginnings of partitions.

        Those of topics that were made anew are left out: what was read may be of either topic.
        """
        if not offsets:
            return
        anew = self._tables.ids.made_anew({each.topic for each in offsets}, COMMITS_MS)
        if good := {each: at for each, at in offsets.items() if each.topic not in anew}:
            if positions is not None:
                positions.note(good)
            commit = positions, good, self._tables.commit(good)
            with self._lock:
                self._open.append(commit)

    def take_answers(self) -> bool:
        """Take the answers that have come; return whether all beginnings among them were accepted.

        Positions that were refused are to be written again.
        """
        answered: list[_Open] = []
        waiting: list[_Open] = []
        with self._lock:
            for each in self._open:  # asked once: it may be answered at any moment
                (answered if each[2].done() else waiting).append(each)
            self._open = waiting
        is_well = True
        for positions, offsets, future in answered:
            answer = future.result(0)
            refused = offsets
            if answer.error is None:
                rows = {TopicPartition(row.topic, row.partition) for row in answer.failed}
                refused = {each: at for each, at in offsets.items() if each in rows}
            if refused:
                why = answer.error or ", ".join(sorted({row.error for row in answer.failed}))
                _log.warning("not committed", group=self._group, error=str(why))
                if positions is not None:
                    positions.refused(refused)
                is_well = is_well and positions is not None
        return is_well


def source_options(config: Mapping[str, Any]) -> dict[str, str]:
    """Options by which Spark's source reaches the same brokers as coordlib. Raises SetupError."""
    own = ("bootstrap.servers", "group.id", "client.id", "auto.offset.reset")
    values = {key: str(value) for key, value in config.items() if key not in own}
    if not (servers := config.get("bootstrap.servers")):
        hint = 'For example config={"bootstrap.servers": "localhost:9092"}.'
        raise SetupError("A reader needs its brokers.", "bootstrap.servers", hint)
    return {**KafkaOptions(values).spark(), "kafka.bootstrap.servers": str(servers)}


def is_true(options: Mapping[str, str], name: str) -> bool:
    """Whether an option of Spark's is set; Spark does not look at the case of names."""
    return any(
        key.lower() == name.lower() and value.lower() == "true" for key, value in options.items()
    )


#: Of Spark's Kafka source, for batches; all that begin with `kafka.` are its consumers'.
_BATCH_OPTIONS: Final = frozenset(
    {
        *("failOnDataLoss", "includeHeaders", "minPartitions", "maxRecordsPerPartition"),
        *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    }
)
_ITS_OWN: Final = "Leave it out: the group says what is read, and from where."
#: Those that have no meaning in a group, and what to do.
_NO_MEANING: Final = {
    **dict.fromkeys(("assign", "subscribe", "subscribePattern"), "Name topics: topics=[…]."),
    **dict.fromkeys(
        ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
        "Set auto.offset.reset in config; or commit where the group is to begin.",
    ),
    **dict.fromkeys(("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"), _ITS_OWN),
    **dict.fromkeys(("maxOffsetsPerTrigger", "minOffsetsPerTrigger"), "Set max_records."),
    "maxTriggerDelay": "Set max_records.",
    **dict.fromkeys(("kafka.group.id", "groupIdPrefix"), "The group is the loop's: group=…."),
    "kafka.bootstrap.servers": "Set bootstrap.servers in config.",
    "kafka.auto.offset.reset": "Set auto.offset.reset in config.",
    "kafka.enable.auto.commit": "Call commit, or write_once.",
}


def batch_options(config: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """All options by which Spark reads a batch, but the partitions and their offsets.

    Args:
        config: confluent-kafka's keys.
        given: of Spark's source; Spark does not look at the case of names.

    Raises:
        SetupError: an option is not known, or has no meaning in a group.
    """
    hints = {name.lower(): (name, hint) for name, hint in _NO_MEANING.items()}
    known = {name.lower(): name for name in _BATCH_OPTIONS}
    found = {"failOnDataLoss": "false"} | source_options(config)
    for key, value in given.items():
        name = key.lower()
        if name in hints:
            spelled, hint = hints[name]
            raise SetupError(f"{spelled} has no meaning in a group.", key, hint)
        if name not in known and not name.startswith("kafka."):
            hint = f"Known are kafka.* and {', '.join(sorted(_BATCH_OPTIONS))}."
            raise SetupError("Spark's Kafka source has no such option of a batch.", key, hint)
        found[known.get(name, key)] = str(value)
    if (strict := found["failOnDataLoss"].lower()) not in ("true", "false"):
        raise SetupError("failOnDataLoss is true or false.", repr(strict))
    return found | {"failOnDataLoss": strict}

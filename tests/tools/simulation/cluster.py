"""Kafka in memory: partitions, append times, transactions and what readers may see of them.

As much as coordlib depends on: offsets that control records take too, the last stable offset, end
markers that reach the partitions one by one, producer epochs, compaction, brokers with clocks that
differ, and the time during which nothing answers.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import NamedTuple
from zlib import crc32

from confluent_kafka import KafkaError, KafkaException

from tests.tools.simulation.scheduler import Clock, Scheduler

EPOCH_MS = 1_700_000_000_000  # wall time at the beginning
Place = tuple[str, int]


class Outcome(Enum):
    """What became of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    """One transaction: whose it is, where it has written, and what became of it."""

    def __init__(self, owner: str = "") -> None:
        self.owner = owner
        self.outcome = Outcome.OPEN
        self.places: dict[Place, int] = {}


@dataclass
class LateEnd:
    """An EndTxn that was sent twice: the first is held up until so many records are written."""

    epoch: int
    outcome: Outcome
    records: int


class Record(NamedTuple):
    """One record of a partition; `is_marker`: a transaction's end, which no reader is given."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    true_ms: int
    transaction: Transaction | None = None
    is_marker: bool = False


class Partition:
    """A log. `open`: transactions without an end marker here, with their first offset."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        #: What stands before it was removed, as by retention.
        self.start = 0
        self.end = 0
        #: Offsets that were judged and are gone: whatever is written there is lost.
        self.lost: list[tuple[int, int]] = []
        self._gone: list[Record] = []
        #: How often it has lost its end: another leader begins each time.
        self.cuts = 0
        self.open: dict[Transaction, int] = {}
        self.appended: list[Callable[[], None]] = []

    @property
    def last_stable(self) -> int:
        """Everything before it is decided."""
        return min(self.open.values(), default=self.end)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        true_ms: int,
        transaction: Transaction | None = None,
        is_marker: bool = False,
    ) -> int:
        offset = self.end
        if is_marker and transaction is not None:
            self.open.pop(transaction, None)
        elif transaction is not None:
            self.open.setdefault(transaction, offset)
        record = Record(offset, key, value, timestamp_ms, true_ms, transaction, is_marker)
        self.records.append(record)
        self.end += 1
        for told in self.appended:
            told()
        return offset

    def read(self, position: int, is_committed: bool = True) -> tuple[list[Record], int]:
        """Records from `position` on that a reader may see, and where it stands then."""
        until = self.last_stable if is_committed else self.end
        first = bisect_left(self.records, position, key=lambda record: record.offset)
        found = []
        for record in self.records[first:]:
            if record.offset >= until:
                break
            if not (record.is_marker or (is_committed and _is_aborted(record))):
                found.append(record)
        return found, max(position, until)

    def at(self, offset: int) -> Record:
        """The record that was judged there, or the first one behind it."""
        records = self.history
        at = bisect_left(records, offset, key=lambda record: record.offset)
        return records[min(at, len(records) - 1)]

    @property
    def history(self) -> list[Record]:
        """The records that are judged: where the log was cut, those that stood there first."""
        if not self.lost:
            return self.records
        kept = [each for each in self.records if not self._is_lost(each.offset)]
        return sorted([*kept, *self._gone], key=lambda record: record.offset)

    def _is_lost(self, offset: int) -> bool:
        return any(first <= offset < end for first, end in self.lost)

    def remove(self, before: int, kept_until: int = 0) -> None:
        """As retention does. What was judged, up to `kept_until`, is kept for those who check."""
        self.records = [each for each in self.records if not kept_until <= each.offset < before]
        self.start = before

    def cut(self, end: int, judged: int) -> None:
        """It loses its end, as with a leader that lacked it; up to `judged` all was judged."""
        self._gone += [
            each
            for each in self.records
            if end <= each.offset < judged and not self._is_lost(each.offset)
        ]
        self.lost.append((end, judged))
        self.records = [each for each in self.records if each.offset < end]
        self.end, self.cuts = end, self.cuts + 1

    def compact(self) -> None:
        """Keep the newest decided record of each key."""
        stable = self.last_stable
        newest = {
            record.key: record.offset
            for record in self.records
            if record.offset < stable and not record.is_marker and not _is_aborted(record)
        }
        self.records = [
            record
            for record in self.records
            if record.offset >= stable
            or (not record.is_marker and newest.get(record.key) == record.offset)
        ]


def _is_aborted(record: Record) -> bool:
    return record.transaction is not None and record.transaction.outcome is Outcome.ABORTED


class Cluster:
    """All partitions, and the transactions that write to them.

    Args:
        luck: draws how long a marker takes to reach its partition.
        brokers: clocks of the brokers; each partition is led by one of them.
    """

    def __init__(self, scheduler: Scheduler, luck: Random, brokers: list[Clock]) -> None:
        self.scheduler, self._luck = scheduler, luck
        self.brokers = brokers
        self.partitions: dict[Place, Partition] = {}
        self._leaders: dict[Place, int] = {}
        self._producers: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}
        self._unmarked: list[tuple[Transaction, Place]] = []
        #: EndTxn requests that are held up, by transactional id.
        self._late: dict[str, LateEnd] = {}
        #: How many of them were refused, because their epoch had gone by.
        self.late_refused = 0
        #: How often a member has noticed that a log was cut.
        self.cuts_noticed = 0
        #: How often a member has asked to join again, as the job said that its request was cut.
        self.joins_cut = 0
        #: How often a member has asked to join again for want of an answer.
        self.joins_unanswered = 0
        self.is_up = True
        #: Topics that the brokers do not tell of, and that nobody can read meanwhile.
        self.hidden: set[str] = set()
        #: Topics that brokers tell nobody of who does not ask for them by name.
        self.unlisted: set[str] = set()
        #: Topics that only the driver is told of: nobody here could read them.
        self.elsewhere: dict[str, int] = {}
        #: How often each topic was deleted and made anew.
        self.made_anew: dict[str, int] = {}
        #: How often a broker does not tell a driver of a topic, or not how many partitions it has.
        self.listing_errs = 0.02
        #: How long an end marker may take (V of time-and-fencing.md).
        self.marker_delay_ms = 50

    def create(self, topic: str, partitions: int) -> None:
        for number in range(partitions):
            place = (topic, number)
            self.partitions.setdefault(place, Partition())
            self._leaders[place] = self._luck.randrange(len(self.brokers))

    def create_quietly(self, topic: str, partitions: int = 1, is_listed: bool = True) -> None:
        """Led by the first broker for ever: whoever draws, draws as before."""
        for number in range(partitions):
            self.partitions.setdefault((topic, number), Partition())
        if not is_listed:
            self.unlisted.add(topic)

    def grow(self, topic: str) -> int:
        """Add a partition, led by the first broker; its number."""
        number = self.count(topic)
        self.partitions[topic, number] = Partition()
        return number

    def count(self, topic: str) -> int:
        return sum(1 for name, _ in self.partitions if name == topic)

    def id_of(self, topic: str) -> str:
        """Kafka's id of the topic that has this name now."""
        return f"{crc32(topic.encode()):08x}{self.made_anew.get(topic, 0):014d}"

    def listing(self) -> dict[str, int]:
        """All topics of which the brokers tell, by partition count. Raises KafkaException."""
        self.require_up()
        counts = Counter(topic for topic, _ in self.partitions)
        unreported = self.hidden | self.unlisted
        return {topic: counts[topic] for topic in sorted(counts) if topic not in unreported}

    def move_leaders(self) -> None:
        """Each partition gets a leader by chance: from now on another clock stamps its records."""
        for place in self._leaders:
            self._leaders[place] = self._luck.randrange(len(self.brokers))

    def append(
        self,
        place: Place,
        key: bytes | None,
        value: bytes | None,
        transaction: Transaction | None = None,
        is_marker: bool = False,
    ) -> int:
        clock = self.brokers[self._leaders.get(place, 0)]
        partition = self.partitions[place]
        wall_ms, true_ms = EPOCH_MS + clock.now_ms(), self.scheduler.now_ms
        return partition.append(key, value, wall_ms, true_ms, transaction, is_marker)

    def newest_by_key(self, topic: str, partition: int, first: int = 0) -> dict[bytes, bytes]:
        """As `coordlib.kafka.reading` reads it."""
        self.require_up()
        records, _ = self.partitions[(topic, partition)].read(first)
        found: dict[bytes, bytes] = {}
        for record in records:
            key = record.key or b""
            found.pop(key, None)
            if record.value is not None:
                found[key] = record.value
        return found

    def newest_decided(self, topic: str, partition: int, first: int = 0) -> dict[bytes, bytes]:
        """As `coordlib.kafka.reading`, without its patience: the supervisor has some."""
        log = self.partitions[topic, partition]
        if log.last_stable < log.end:
            self.write_markers()
        if log.last_stable < log.end:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return self.newest_by_key(topic, partition, first)

    def ends(self, places: Iterable[Place], visible: bool) -> dict[Place, int]:
        """The newest offset of each partition, or the newest that is decided."""
        self.require_up()
        found = {place: self.partitions[place] for place in places}
        return {
            place: (each.last_stable if visible else each.end) - 1 for place, each in found.items()
        }

    def require_up(self) -> None:
        if not self.is_up:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    # ---- transactions -------------------------------------------------------------------------

    def init_transactions(self, transactional_id: str) -> int:
        """End what this id has open, and fence its older producers; the new epoch."""
        self.require_up()
        self.write_markers(transactional_id)
        if (left_open := self._open.pop(transactional_id, None)) is not None:
            self._end(left_open, Outcome.ABORTED)
            self.write_markers(transactional_id)
        epoch = self._producers.get(transactional_id, -1) + 1
        self._producers[transactional_id] = epoch
        return epoch

    def require_epoch(self, transactional_id: str, epoch: int) -> None:
        self.require_up()
        if self._producers[transactional_id] != epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED))

    def open_transaction(self, transactional_id: str) -> Transaction:
        """The one under way, or a new one."""
        return self._open.setdefault(transactional_id, Transaction(transactional_id))

    def hold_up(self, transactional_id: str, late: LateEnd) -> None:
        """Its EndTxn was answered when it was sent again; the first one is still under way."""
        self._late[transactional_id] = late

    def note_record(self, transactional_id: str) -> None:
        """A producer of this id is about to write: a late EndTxn may arrive before that.

        The broker knows it by producer id and epoch alone, so that of the same epoch ends whatever
        is open.
        """
        late = self._late.get(transactional_id)
        if late is None:
            return
        late.records -= 1
        if late.records < 0:
            del self._late[transactional_id]
            if late.epoch == self._producers[transactional_id]:
                self.end_transaction(transactional_id, late.outcome)
            else:
                self.late_refused += 1

    def end_transaction(self, transactional_id: str, outcome: Outcome) -> None:
        transaction = self._open.pop(transactional_id, None)
        if transaction is not None:
            self._end(transaction, outcome)

    def time_out(self, transactional_id: str, transaction: Transaction) -> None:
        """The broker gives up a transaction that its producer does not end."""
        if self._open.get(transactional_id) is transaction:
            self.end_transaction(transactional_id, Outcome.ABORTED)
            self._producers[transactional_id] += 1

    def _end(self, transaction: Transaction, outcome: Outcome) -> None:
        transaction.outcome = outcome
        for place in transaction.places:
            self._unmarked.append((transaction, place))
            delay_ms = self._luck.uniform(0, self.marker_delay_ms)
            self.scheduler.after(delay_ms, partial(self._mark, transaction, place))

    def _mark(self, transaction: Transaction, place: Place) -> None:
        if (transaction, place) in self._unmarked:
            self._unmarked.remove((transaction, place))
            self.append(place, None, None, transaction, is_marker=True)

    def write_markers(self, owner: str | None = None) -> None:
        """All end markers that are still on their way; of one transactional id, if it is named."""
        for transaction, place in list(self._unmarked):
            if owner in (None, transaction.owner):
                self._mark(transaction, place)

    def end_when_marked(self, place: Place) -> int:
        """Where a partition ends when the end markers that are under way have come."""
        return self.partitions[place].end + sum(at == place for _, at in self._unmarked)

    def is_ending(self, transactional_id: str) -> bool:
        """Whether markers of its newest transaction are still on their way."""
        return any(each.owner == transactional_id for each, _ in self._unmarked)

    def is_newest(self, transactional_id: str, epoch: int) -> bool:
        """Whether no newer producer has this id."""
        return self._producers[transactional_id] == epoch

"""Reading of messages: the member's partitions, each from its start position.

Partitions come and go one by one, and those that stay are read on without a gap. Messages are
fetched first and handed out later, and only then count as read. One that was fetched ahead of a
revoke is never handed out; one that came while the fence was closed is kept for the moment when it
opens again, since no other member can have read it then.

Every change is done whole (`uninterrupted`). Messages are handed out in two steps: `take` prepares
what may be returned, and the line that returns some of it notes that (`HandingOut`). The next
change of any kind counts it as read.

**Ids of topics.** Messages name no topic's id. So the consumer asks for the id before it begins a
partition, before each commit, and every few seconds while it reads. Offsets are committed under the
id with which their partition was begun. If the topic has another id by now, it was deleted and made
anew: what was read may be of either, so it is not committed, and the partition is begun anew. What
is left: a consumer that begins a partition while a broker still serves the topic of before reads
records of that under the new id, until the broker has caught up.  # INV-130
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.groups.stored import StoredOffsets
from coordlib.client.kit import events as sg
from coordlib.client.kit import offsets as of
from coordlib.client.kit.calls import uninterrupted
from coordlib.client.kit.data import AHEAD_MAX, HandingOut, Prepared, Ready, SeenIds, seek_to
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.client.kit.offsets import Outcome, Unit
from coordlib.client.transactions.committed import TornTransaction, UndecidedTransaction
from coordlib.core.wire import api
from coordlib.errors import CannotReach, CoordError
from coordlib.kafka.clients import denial, reading

if TYPE_CHECKING:
    from coordlib.client.groups.member import Member

_log = logging.getLogger("coordlib.client")

#: How often it is asked while nothing is committed.
LOOK_MS: Final = 5_000
#: Asynchronous commits that follow each other so closely are written after one question.
COMMITS_MS: Final = 100

Ask = Callable[[Collection[str]], dict[str, str]]


class TopicIds:
    """The ids of the topics that one consumer reads.

    Any thread asks; the one that reads takes in what was answered, and begins partitions.

    Args:
        ask: the ids of those of the topics that are there; raises CannotReach; may block.
        beside: does something beside everything else.
        now_ms: the client's clock.
    """

    def __init__(
        self,
        ask: Ask,
        in_background: Callable[[Callable[[], None]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._ask, self._in_background, self._now_ms = ask, in_background, now_ms
        #: The id under which each topic was begun.
        self._begun: dict[str, str] = {}
        #: As answered; a topic that is gone keeps its last id.
        self._newest = SeenIds()
        #: The same, as far as it was taken in.
        self._seen: dict[str, str] = {}
        #: Whether something was answered that was not taken in.
        self._is_news = False
        #: When each topic was asked for, and answered.
        self._asked: dict[str, int] = {}
        #: When all of those that are read were asked for.
        self._looked_ms = -LOOK_MS
        #: When the topics were asked for in vain.
        self._failed: dict[str, int] = {}

    @classmethod
    def of(cls, member: "Member[Any]") -> Self:
        """Asked over the member's transport."""
        transport = member.transport
        in_background = partial(transport.in_background, member)
        return cls(transport.topic_ids, in_background, transport.now_ms)

    def ask(self, topics: Collection[str], no_older_ms: int = 0) -> bool:
        """Ask now, unless all were asked for within so many milliseconds; whether that is known.

        Who takes an older answer does not wait again so soon after there was none.
        """
        asked_ms = self._now_ms()
        if all(asked_ms - self._asked.get(each, -LOOK_MS) < no_older_ms for each in topics):
            return True
        failed_ms = max(self._failed.get(each, -LOOK_MS) for each in topics)
        if no_older_ms and asked_ms - failed_ms < LOOK_MS:
            return False
        try:
            answer = self._ask(topics)
        except CannotReach as problem:
            _log.info("The ids of topics are not known: %s", problem)
            self._failed.update(dict.fromkeys(topics, self._now_ms()))
            return False
        for each in topics:
            self._failed.pop(each, None)
        for topic, topic_id in answer.items():
            self._newest.take(topic, topic_id, asked_ms)
        self._asked.update(dict.fromkeys(topics, asked_ms))
        self._is_news = True
        return True

    def ask_later(self, topics: Collection[str]) -> "Future[bool]":
        """The same without waiting."""
        answer: Future[bool] = Future()
        self._in_background(lambda: answer.set_result(self.ask(topics)))
        return answer

    def look(self, topics: Collection[str]) -> None:
        """Ask beside every few seconds."""
        if topics and self._now_ms() - self._looked_ms >= LOOK_MS:
            self._looked_ms = self._now_ms()
            self.ask_later(topics)

    @property
    def is_due(self) -> bool:
        """Whether there is something to look for, or to be taken in."""
        return self._is_news or self._now_ms() - self._looked_ms >= LOOK_MS

    def refused(self, topics: Iterable[str]) -> set[str]:
        """Those of the topics that are not the ones that were begun, by the newest answers."""
        begun = [(each, self._begun.get(each, "")) for each in topics]
        return {each for each, id_ in begun if id_ and self._newest.present(each, id_) != id_}

    def made_anew(self, topics: Collection[str], no_older_ms: int = 0) -> set[str]:
        """The same, once they are asked for as by `ask`."""
        self.ask(topics, no_older_ms)
        return self.refused(topics)

    def take_in(self) -> None:
        """From now on the reading goes by the newest answers."""
        self._is_news = False
        self._seen = self._newest.copy()

    def anew(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics that are not the ones that were begun."""
        return [each for each in topics if self.is_other(each, self._begun.get(each, ""))]

    def is_other(self, topic: str, topic_id: str) -> bool:
        """Whether the topic has another id now, as far as it is known."""
        return bool(topic_id) and self._seen.get(topic, topic_id) != topic_id

    def begun(self, topic: str) -> str:
        """The id under which it was begun; empty: that is not known."""
        return self._begun.get(topic, "")

    def begin(self, topic: str, committed: str) -> None:
        """A partition is begun. `committed`: the id of the offset at which it is; empty: of none.

        It counts where the topic is not there at the moment: then it is not the topic that comes.
        """
        self._newest.suppose(topic, committed, self._now_ms())
        if topic_id := self._seen.get(topic, committed):
            self._begun[topic] = topic_id


@dataclass(slots=True)
class Start:
    """Partitions whose start positions are being fetched."""

    partitions: Partitions
    answer: "Future[sg.Answer]"
    #: Whether their topics' ids are known; asked together with the offsets.
    ids: "Future[bool]"
    #: Of a unit whose outcome is unknown: where it began, and the offset that is committed if it
    #: counts. Any other offset, or none, means that it does not.
    spans: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def is_ready(self, ids: TopicIds) -> bool:
        """Whether all is here; ids are asked for again where nobody answered."""
        if self.ids.done() and not self.ids.result():
            self.ids = ids.ask_later({each.topic for each in self.partitions})
        return self.answer.done() and self.ids.done()

    def begin(self, ids: TopicIds) -> dict[TopicPartition, int]:
        """The offsets to begin at; without those that are of a topic of before."""
        answer = self.answer.result()
        found: dict[TopicPartition, int] = {}
        spans = {each: at for each, at in self.spans.items() if not ids.anew([each.topic])}
        committed: dict[str, str] = {}
        # An answer may name a partition twice: the last row counts.
        for row in {(row.topic, row.partition): row for row in answer.offsets}.values():
            place, topic_id = TopicPartition(row.topic, row.partition), row.topic_id or ""
            if topic_id:
                committed[row.topic] = topic_id
            if ids.is_other(row.topic, topic_id):
                _log.warning("%s-%d is begun anew: the offset is of topic %s", *place, topic_id)
            else:
                found[place] = row.offset
        for topic in {each.topic for each in self.partitions}:
            ids.begin(topic, committed.get(topic, ""))
        for partition, (first, end) in spans.items():
            if found.get(partition) != end:
                found[partition] = first
        return found


#: A partition to be assigned with one of these starts where the group stopped.
WHERE_THE_GROUP_STOPPED = (OFFSET_INVALID, OFFSET_STORED)


class Reading:
    """Everything about messages and positions of one consumer.

    Args:
        reader: confluent-kafka's Consumer, or something like it; never subscribes or commits.
        fetch: asks for committed offsets.
        otherwise: where to start without one: an offset, or a logical one.
        ids: which topics are read.
        options: librdkafka's; an error names by them who lacks a right.
        stores: whether offsets are stored of what was handed out, to be committed later.
    """

    def __init__(
        self,
        reader: Any,
        fetch: Callable[[Partitions], "Future[sg.Answer]"],
        otherwise: int,
        ids: TopicIds,
        options: Mapping[str, Any] | None = None,
        *,
        stores: bool = False,
    ) -> None:
        self.ids = ids
        self._stored = StoredOffsets(stores)
        self._reader, self._fetch, self._otherwise = reader, fetch, otherwise
        self._options = options or {}
        self._starts: list[Start] = []
        #: What the data consumer reads.
        self._read: set[TopicPartition] = set()
        #: Where the user wants to start, whatever is committed.
        self._sought: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._is_closed = False
        #: Fetched and not handed out: messages and error events, in their order.
        self.out = HandingOut()
        #: Next offset to read of each partition of which a message was handed out.
        self._positions: dict[TopicPartition, tuple[int, int]] = {}
        #: The partitions of a running `on_revoke`; None: it does not run.
        self.revoking: Partitions | None = None
        #: Those that were begun anew, with another topic of their name.
        self._anew: set[TopicPartition] = set()
        #: The unit of work to which messages belong; None: to none.
        self._unit: Unit | None = None
        #: Not held while the reader waits, nor ever by a program's main thread.
        self._lock = threading.RLock()
        #: To be raised by the call that finds it, since another one may have been interrupted.
        self.problem: Exception | None = None

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            for is_last, some in enumerate(self.out.note()):
                for each in some:
                    if each.place is not None:
                        self._positions[each.place] = each.position
                        self._stored.handed_out(each.place, each.position, bool(is_last))
                        if self._unit is not None:
                            self._unit.read(each.place, *each.position)
            unit = self._unit
            if unit is not None and unit.is_over():  # INV-155
                self._end_unit(unit, Outcome.UNKNOWN)
            yield

    @property
    def at_hand(self) -> Prepared | None:
        """What may be returned without a look at the reader, while that holds.  # INV-154"""
        unit = self._unit
        return self.out.prepared if unit is None or not unit.is_over() else None

    @property
    def is_waiting(self) -> bool:
        """Whether what is fed to the member may let it hand something out."""
        return bool(self._starts) or self.out.count(()) > 0

    @uninterrupted
    def positions(self) -> dict[TopicPartition, tuple[int, int]]:
        """Next offset to read, and the leader epoch before it, of all that was handed out."""
        with self._changing():
            return dict(self._positions)

    # ---- stored offsets: see `stored.py` ------------------------------------------------------

    @uninterrupted
    def call_begins(self) -> None:
        """What was handed out before is processed."""
        with self._changing():
            self._stored.call_begins()

    @uninterrupted
    def forget_last(self) -> None:
        """What was handed out last is not processed: store nothing of it."""
        with self._changing():
            self._stored.forget_last()

    @uninterrupted
    def store(self, rows: Sequence[api.CommittedOffset]) -> None:
        """Store these. Raises CoordError: closed, or not one of this consumer's partitions."""
        self.require_open()
        with self._changing():
            had = {*self.partitions(), *(self.revoking or ())}
            for row in rows:
                place = TopicPartition(row.topic, row.partition)
                if place not in had:
                    raise CoordError("This consumer does not have the partition.", f"{place}")
            self._stored.store(rows)

    @uninterrupted
    def uncommitted(
        self, among: Partitions | None = None, *, unanswered: bool = False
    ) -> tuple[api.CommittedOffset, ...]:
        """What is stored and not committed, of all partitions or some.

        Without those that are not begun: where the group stands is not known yet.

        Args:
            unanswered: also what a commit names that was not answered yet.
        """
        with self._changing():
            starting = {each for start in self._starts for each in start.partitions}
            rows = self._stored.uncommitted(among, unanswered)
            return tuple(r for r in rows if TopicPartition(r.topic, r.partition) not in starting)

    @uninterrupted
    def commit_asked(self, rows: Sequence[api.CommittedOffset]) -> None:
        """A commit of these is under way."""
        with self._changing():
            self._stored.asked(rows)

    @uninterrupted
    def commit_answered(
        self, rows: Sequence[api.CommittedOffset], failed: Sequence[api.FailedPartition] | None
    ) -> None:
        """It was answered. `failed`: the partitions that were refused; None: all."""
        refused = None
        if failed is not None:
            refused = {TopicPartition(each.topic, each.partition) for each in failed}
        with self._changing():
            self._stored.answered(rows, refused)

    @uninterrupted
    def committed_by_user(self, rows: Sequence[api.CommittedOffset]) -> None:
        """The program has committed these by a call."""
        with self._changing():
            self._stored.committed_by_user(rows)

    @uninterrupted
    def revoked(self, partitions: Partitions) -> tuple[api.CommittedOffset, ...]:
        """`on_revoke` has returned: what is stored of these and was not committed by it."""
        with self._changing():
            return tuple(self._stored.revoked(partitions))

    # ---- around the user's callbacks ----------------------------------------------------------

    def before_callback(self, callback: sg.Callback, partitions: Partitions) -> None:
        match callback:
            case sg.Callback.ASSIGNED:
                self.add(partitions)
            case sg.Callback.REVOKED:
                self.call_begins()  # `AsyncConsumer` runs callbacks before it polls this one
                self._stored.revoke_begins()
                self.revoking = partitions
            case sg.Callback.LOST:
                self.drop(partitions)
                self._stored.drop(partitions)

    def after_callback(self, callback: sg.Callback, partitions: Partitions) -> None:
        if callback is sg.Callback.REVOKED:
            self.revoking = None
            self.drop(partitions)
            self._stored.drop(partitions)

    # ---- partitions come and go ---------------------------------------------------------------

    @uninterrupted
    def add(self, partitions: Partitions) -> None:
        """Read these too, once their start positions are here."""
        with self._changing():
            self._note_moved(partitions)
            if partitions:
                self._fetch_start(partitions, {})

    def _fetch_start(
        self, partitions: Partitions, spans: Mapping[TopicPartition, tuple[int, int]]
    ) -> None:
        ids = self.ids.ask_later({each.topic for each in partitions})
        self._starts.append(Start(partitions, self._fetch(partitions), ids, spans))

    @uninterrupted
    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop these partitions, and messages that were fetched ahead from them."""
        with self._changing():
            self._drop(set(partitions))

    def _drop(self, gone: set[TopicPartition]) -> None:
        self._note_moved(gone)
        for start in self._starts:
            start.partitions = tuple(each for each in start.partitions if each not in gone)
        self._starts = [start for start in self._starts if start.partitions]
        self._forget(gone)
        paused = tuple(sorted(self._paused & self._read & gone))
        self._paused -= gone
        for each in gone:
            self._positions.pop(each, None)
            self._sought.pop(each, None)
        self._anew -= gone
        stops = tuple(sorted(self._read & gone))
        self._read -= gone
        if self._is_closed:
            return  # by the user's callback, which was asked to let go of these
        if paused:  # librdkafka keeps it so, also for the next assignment
            self._reader.resume(of.kafka_of(paused))
        if stops and self._read:
            self._reader.incremental_unassign(of.kafka_of(stops))
        elif stops:
            self._reader.unassign()

    def _forget(self, gone: set[TopicPartition]) -> None:
        """Hand out nothing of these that is at hand.

        What was met behind it is met again, where it is still so.
        """
        self.out.forget(gone)
        if isinstance(self.problem, TornTransaction | UndecidedTransaction):
            self.problem = None

    def let_go(self, partitions: Iterable[TopicPartition]) -> None:
        """As `drop`, by the user. Raises CoordError: it is closed."""
        self.require_open()
        self.drop(partitions)

    def require_open(self) -> None:
        """Raises CoordError: it is closed, and no callback of its closing runs any more."""
        if self._is_closed:
            raise CoordError("The consumer is closed.")

    @uninterrupted
    def start(self, may_work: bool) -> None:
        """Begin to read where start positions are here; the error of a fetch is a problem."""
        with self._changing():
            topics = sorted({each.topic for each in self._read})
            self.ids.look(topics)
            ready = [each for each in self._starts if each.is_ready(self.ids)]
            self.ids.take_in()
            if anew := self.ids.anew(topics):
                self._begin_anew(anew)
            for start in ready:
                error = start.answer.result().error
                if error is None:
                    self._begin(start.partitions, start.begin(self.ids))
                    self._starts.remove(start)
                elif self.problem is None:
                    self.problem = error
                    self._starts.remove(start)
                    if may_work:
                        self._fetch_start(start.partitions, start.spans)

    def _begin_anew(self, topics: Sequence[str]) -> None:
        """These were deleted and made anew: nothing that was read of them counts."""
        for topic in topics:
            self.ids.begin(topic, "")
            _log.warning(
                "%s was deleted and created again: its partitions begin by auto.offset.reset", topic
            )
        partitions = tuple(sorted(each for each in self._read if each.topic in topics))
        paused = self._paused & set(partitions)
        self._drop(set(partitions))
        self._stored.drop(partitions)
        self._paused |= paused
        self._anew.update(partitions)
        self._begin(partitions, {})

    def is_of_before(self, place: TopicPartition, offset: int) -> bool:
        """Whether it lies beyond what was read since the partition was begun anew."""
        return place in self._anew and offset > self.positions().get(place, (0, 0))[0]

    def _begin(self, partitions: Partitions, found: Mapping[TopicPartition, int]) -> None:
        begun = of.with_offsets(partitions, found, self._otherwise)
        for each, ours in zip(begun, partitions, strict=True):
            if ours in found and ours not in self._sought:
                self._stored.begun(ours, found[ours])
            each.offset = self._sought.pop(ours, each.offset)
        self._reader.incremental_assign(begun)
        self._read.update(partitions)
        paused = tuple(each for each in partitions if each in self._paused)
        if paused:
            self._reader.pause(of.kafka_of(paused))

    @uninterrupted
    def partitions(self) -> Partitions:
        """What is read, and what will be once its start position is here."""
        starting = {each for start in self._starts for each in start.partitions}
        return tuple(sorted(self._read | starting))

    # ---- messages -----------------------------------------------------------------------------

    @uninterrupted
    def turn(self, count: int, timeout_s: float, may_work: Callable[[], bool]) -> int:
        """Begin where it can begin, wait for a message, and take others that are here.

        Returns the number of messages that are kept. What has failed is a `problem`.
        """
        if self._starts or (self._read and self.ids.is_due):
            self.start(may_work())
        with self._changing():  # what was handed out is kept no more
            kept = self.out.count(self._paused)
        while self.problem is None and kept < max(count, AHEAD_MAX):
            try:
                message = self._reader.poll(timeout_s if kept < count else 0.0)
            except Exception as problem:
                if kept < count:
                    raise
                self.problem = problem  # behind what came before it
                break
            if message is None:
                break
            timeout_s = 0.0
            with self._changing():
                kept += self._keep(message)
        return kept

    def _keep(self, message: Message) -> bool:
        """Keep what came, if it is to be handed out; a right that is missing is a problem."""
        error = message.error()
        if denied := denial(error, reading(message.topic() or ""), self._options):
            self.problem = denied
            return False
        place, position = of.after(message) if error is None else (None, (-1, -1))
        if place is not None and place not in self._read:
            return False
        self.out.add(Ready(place, position, message))
        return place not in self._paused

    @uninterrupted
    def take(
        self, count: int, usable: Callable[[], Partitions], until_ms: int, changes: int
    ) -> Prepared:
        """Prepare error events, and messages that may be processed now: so many, or some more.

        Those that came while the fence was closed stay: the user was not notified of a loss yet. If
        none comes, reading goes on, and they must not be missing.

        Args:
            usable: asked only when it matters: it may latch a stop of the member's fence.
            until_ms, changes: until when, and for how many changes, its answer holds.
        """
        with self._changing():
            may_use = set(usable()) - self._paused if self.out.has_records else ()
            return self.out.prepare(count, lambda place: place in may_use, until_ms, changes)

    # ---- units of work ------------------------------------------------------------------------

    @uninterrupted
    def begin_unit(self, unit: Unit) -> None:
        """What is taken belongs to this unit. Raises CoordError: there is one."""
        with self._changing():
            if self._unit is not None:
                raise CoordError("A unit of work is open.", "", "End it first.")
            unit.note = self.positions
            self._unit = unit

    @uninterrupted
    def end_unit(self, unit: Unit, outcome: Outcome) -> None:
        """It belongs to none any more; go back to where the unit began, if it does not count."""
        with self._changing():
            if self._unit is unit:
                self._end_unit(unit, outcome)

    def _end_unit(self, unit: Unit, outcome: Outcome) -> None:
        self._unit = None
        if outcome is Outcome.COMMITTED or self._is_closed:
            return
        here = set(self.partitions())
        if outcome is Outcome.UNKNOWN:
            self._wait_for({each: span for each, span in unit.spans.items() if each in here})
            return
        for partition, offset in unit.beginnings.items():
            if partition in here:
                self.seek(KafkaTopicPartition(partition.topic, partition.partition, offset))

    def _wait_for(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Read these partitions only when the group's offsets tell whether the unit counts."""
        if not spans:
            return
        paused = self._paused & set(spans)
        self._drop(set(spans))
        self._paused |= paused
        self._fetch_start(tuple(sorted(spans)), spans)

    def _note_moved(self, partitions: Iterable[TopicPartition]) -> None:
        if self._unit is not None:
            self._unit.moved(partitions)

    @uninterrupted
    def seek(self, partition: KafkaTopicPartition) -> None:
        """Go on from another offset. Raises CoordError: not one of this consumer's partitions."""
        self.require_open()
        with self._changing():
            (ours,) = of.ours([partition])
            if ours in self._read:
                seek_to(self._reader, partition)
                self._forget({ours})
            elif any(ours in start.partitions for start in self._starts):
                self._sought[ours] = partition.offset
            else:
                raise CoordError("This consumer does not have the partition.", f"{ours}")
            # A commit must not name positions from before the seek.
            self._positions.pop(ours, None)
            self._stored.drop([ours])
            if partition.offset >= 0:
                self._positions[ours] = (partition.offset, -1)

    @uninterrupted
    def start_at(self, partitions: Sequence[KafkaTopicPartition], owned: Partitions) -> None:
        """Seek all that name an offset; begin anew with those that were dropped and are owned.

        Raises CoordError, and does nothing: some are not this consumer's.
        """
        self.require_open()
        ours = of.ours(partitions)
        had = set(self.partitions())
        strange = [each for each in ours if each not in had and each not in owned]
        if strange:
            raise CoordError(
                "What to read comes from the group, which has not assigned this.",
                ", ".join(f"{each.topic}-{each.partition}" for each in strange),
                "Subscribe, and set start offsets in on_assign.",
            )
        self.add(tuple(dict.fromkeys(each for each in ours if each not in had)))
        for each in partitions:
            if each.offset not in WHERE_THE_GROUP_STOPPED:
                self.seek(each)

    @uninterrupted
    def pause(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Fetch nothing of these until `resume`; also of those that are not read yet."""
        self.require_open()
        with self._changing():
            wanted, known = of.ours(partitions), set(self.partitions())
            self._paused.update(each for each in wanted if each in known)
            self._reader.pause(of.kafka_of(tuple(each for each in wanted if each in self._read)))

    @uninterrupted
    def resume(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        self.require_open()
        with self._changing():
            wanted = of.ours(partitions)
            self._paused.difference_update(wanted)
            self._reader.resume(of.kafka_of(tuple(each for each in wanted if each in self._read)))

    @uninterrupted
    def close(self) -> None:
        with self._changing():
            if not self._is_closed:
                self._is_closed = True
                self._reader.close()

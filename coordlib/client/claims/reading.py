"""Reads coordination partitions, and reports when they were read to their ends.

A client begins exactly, or late (design, section 5). Exactly: from a snapshot of the engine, or
from the log's first record. Late: with the newest 1,000,000 records, and at least with those of the
last 8 heartbeat intervals. A late reader waits before it acts; one that began exactly does not.

Records are read uncommitted, as the engine reads them: an open transaction of a stranger must stop
nobody. The ends are asked for over a connection of their own: on the reader's, the broker would
answer only after the fetch that it holds open. One question is for all partitions; one of them that
cannot be read to its end, as it has lost its leader since, holds up no other.
"""

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from coordlib.client.claims.events import log_cut
from coordlib.client.claims.transport import Coordination, LogView
from coordlib.client.kit.reading import (
    ASK_INTERVAL_MS,
    ASK_TIMEOUT_S,
    REFRESH_TIMEOUT_S,
    LogConsumer,
)
from coordlib.core.claims.fold import positions_of
from coordlib.core.claims.snapshots import Snapshot, UnreadableSnapshot, read_pages
from coordlib.core.claims.world import UNTRUSTED_TIME_MS, World
from coordlib.core.wire.topics import claims_prefix
from coordlib.errors import CannotReach, CoordError, NotAllowed, StartRefused
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import denial, reading, reason_of, refusing
from coordlib.kafka.logs import Bounds, Place
from coordlib.kafka.reading import newest_by_key
from coordlib.kafka.topics import look_up

_log = logging.getLogger("coordlib.client")

#: Records behind a snapshot, and from the log's start, that are read rather than left out.
BEHIND_SNAPSHOT_MAX: Final = 2_000_000
FROM_START_MAX: Final = 5_000_000
#: Records of the log that a late reader reads, and intervals of it that it reads at least. Who owns
#: what stands in these; a pause may be older, and a reader breaks one that it has not read.
LATE_MAX: Final = 1_000_000
LATE_INTERVALS: Final = 8
BEGIN_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Finds the beginning of each coordination partition that is read."""

    options: Mapping[str, Any]
    place: Coordination
    #: Of the engine's topics, without the claims' own part.
    prefix: str
    #: Rights whose lack was told; the same holds for every partition.
    _logged: set[str] = field(default_factory=set)

    def begin(self, admin: Admin, partition: int, now_ms: int) -> LogView:
        """A view that knows what a snapshot knows, or nothing yet.

        Raises:
            CannotReach: no broker answers.
            NotAllowed: the coordination topic may not be read.
            StartRefused: the topic has another number of partitions than before.
        """
        bounds = self.bounds(admin, partition)
        snapshot = self._snapshot_if_allowed(admin, partition)
        if snapshot is not None:
            follows = snapshot.offset + 1
            is_whole = bounds.start <= follows <= bounds.end
            if is_whole and bounds.end - follows <= BEHIND_SNAPSHOT_MAX:
                return LogView(self.restored(snapshot, partition), now_ms)
        if bounds.start == 0 and bounds.end <= FROM_START_MAX:
            return LogView(self._world(partition), now_ms)
        return self._late(admin, partition, bounds, snapshot, now_ms)

    def _snapshot_if_allowed(self, admin: Admin, partition: int) -> Snapshot | None:
        """Snapshots make a start quick, and nothing else: who may not read them does without."""
        try:
            return self.snapshot(admin, partition)
        except NotAllowed as problem:
            if problem.what not in self._logged:
                self._logged.add(problem.what)
                _log.warning(
                    "Claims are read from the beginning of the log, or from its newest part, and "
                    "not from the job's snapshots. %s %s",
                    problem.what,
                    problem.hint,
                )
            return None

    def _late(
        self,
        admin: Admin,
        partition: int,
        bounds: Bounds,
        snapshot: Snapshot | None,
        now_ms: int,
    ) -> LogView:
        positions = {}
        if snapshot is not None:
            positions = positions_of(self.restored(snapshot, partition))
        world = self._world(partition, is_late=True, positions=positions)
        view = LogView(world, now_ms)
        view.position = self._first_of_window(admin, partition, bounds)
        return view

    def _first_of_window(self, admin: Admin, partition: int, bounds: Bounds) -> int:
        within = bounds.end - LATE_MAX
        if within <= bounds.start:
            return bounds.start
        newest_stamp = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
        newest = self._ask(admin, partition, newest_stamp)
        if newest.timestamp is None or newest.timestamp < 0:
            return bounds.start
        since_ms = max(0, newest.timestamp - LATE_INTERVALS * self.place.interval_ms)
        since = OffsetSpec.for_timestamp(since_ms)
        found = self._ask(admin, partition, since)
        return max(bounds.start, min(within, int(found.offset))) if found.offset >= 0 else within

    def _ask(self, admin: Admin, partition: int, spec: OffsetSpec) -> Any:
        place = TopicPartition(self.place.topic, partition)
        try:
            asked = admin.list_offsets({place: spec}, request_timeout=BEGIN_TIMEOUT_S)
            return asked[place].result(BEGIN_TIMEOUT_S)
        except (KafkaException, TimeoutError) as problem:
            raise self._silent(problem) from problem

    def bounds(self, admin: Admin, partition: int) -> Bounds:
        """Of a coordination partition's log. Raises CannotReach, NotAllowed."""
        place = Place(self.place.topic, partition)
        try:
            denied = refusing(self.options, reading)
            found = log_bounds(admin, [place], BEGIN_TIMEOUT_S, on_denied=denied).get(place)
        except (KafkaException, TimeoutError) as problem:
            raise self._silent(problem) from problem
        if found is None:
            raise CannotReach(
                "A coordination partition cannot be read.",
                f"{place.topic}-{place.partition}",
                "Check that its leader is up, then try again.",
            )
        return found

    def _silent(self, problem: KafkaException | TimeoutError) -> CoordError:
        return denial(problem, reading(self.place.topic), self.options) or CannotReach(
            "The coordination topic does not answer.",
            f"{self.place.topic}: {reason_of(problem)}",
            "Check that the brokers run and that this client may read the topic.",
        )

    def snapshot(self, admin: Admin, partition: int) -> Snapshot | None:
        """The engine's newest one; None: there is none for this topic, or none can be read.

        Raises:
            NotAllowed: snapshots may not be read, whether there are any or not.
            StartRefused: as `begin`.
        """
        topic = f"{claims_prefix(self.prefix)}.snapshots"
        try:
            if not look_up(admin, [topic], self.options):
                return None
            found = read_pages(newest_by_key(self.options, topic, partition).values())
        except (CannotReach, KafkaException, UnreadableSnapshot) as problem:
            _log.warning(
                "%s-%d has no snapshot to begin with: %s", topic, partition, reason_of(problem)
            )
            return None
        if found is None or found.topic_id != self.place.topic_id:
            return None
        if found.partitions != self.place.partitions:
            raise StartRefused(
                f"The coordination topic has {self.place.partitions} partitions now, and had "
                f"{found.partitions}: claims would be looked for in other places.",
                self.place.topic,
                "Create another coordination topic, and name it to all clients and to the job: "
                "groups continue from the positions of Kafka's groups.",
            )
        return found

    def restored(self, snapshot: Snapshot, partition: int) -> World:
        """The world of a snapshot."""
        place = self.place
        return World.restore(snapshot.world, place.topic, partition, place.partitions)

    def _world(self, partition: int, **more: Any) -> World:
        return World(self.place.topic, partition, self.place.partitions, **more)


BATCH: Final = 2_000
_CONFIG: Final[dict[str, Any]] = {
    "isolation.level": "read_uncommitted",
    "enable.auto.offset.store": False,
    "fetch.wait.max.ms": 100,  # the end-of-partition event comes with an empty fetch
    "queued.min.messages": 100_000,  # a start may read millions
}


class LogRecord(NamedTuple):
    """A record of a coordination partition, as the fold takes it."""

    offset: int
    timestamp_ms: int
    value: bytes | None


class LogReader(LogConsumer):
    """One reader; `add` may be called from any thread, the rest from one."""

    def __init__(self, options: Mapping[str, Any], client: str, topic: str) -> None:
        super().__init__(options, client, _CONFIG)
        self._topic = topic
        #: Next offset to read of each partition; all before it was handed out.
        self._positions: dict[int, int] = {}
        self._asked_ms = 0
        self._answers: dict[int, Future[Any]] = {}
        #: The positions when the ends were asked for: what is read since may be behind the answer.
        self._asked_at: dict[int, int] = {}
        #: When the ends were asked for, and those that are not reached yet.
        self._goals: dict[int, tuple[int, int]] = {}
        #: Partitions that were read to an end: what comes from now on is new.
        self._reached: set[int] = set()
        self._has_warned = False

    def know(self) -> None:
        """Ask for the leaders, before the first partition is added: the library would look for
        them once a second. May wait for a moment; from any thread."""
        if self._positions:
            return
        try:
            self._consumer.list_topics(self._topic, timeout=REFRESH_TIMEOUT_S)
        except KafkaException as problem:  # the library goes on looking
            _log.info("No metadata of the coordination topic: %s", reason_of(problem))

    def add(self, partition: int, offset: int) -> None:
        """Read this partition too, from here on."""
        self._positions[partition] = offset
        self._consumer.incremental_assign([TopicPartition(self._topic, partition, offset)])
        self._asked_ms = 0  # its consumers wait for the end

    def drop(self, partition: int) -> None:
        """Read this partition no more."""
        self._positions.pop(partition, None)
        self._goals.pop(partition, None)
        self._answers.pop(partition, None)
        self._reached.discard(partition)
        self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])

    def ask(self, now_ms: int) -> None:
        """Ask for the ends from time to time, before the reading that is to reach them.

        Raises NotAllowed: the topic may not be read; CoordinationTopicChanged: its end is lost.
        """
        if self._answers:
            self._hear()
        elif self._positions and now_ms - self._asked_ms >= ASK_INTERVAL_MS:
            self._asked_ms, self._asked_at = now_ms, dict(self._positions)
            spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            places = {TopicPartition(self._topic, each): spec for each in list(self._positions)}
            asked = self.admin.list_offsets(
                places, REFRESH_TIMEOUT_S, request_timeout=ASK_TIMEOUT_S
            )
            self._answers = {place.partition: answer for place, answer in asked.items()}

    def read(self) -> list[tuple[int, LogRecord]]:
        """What has come, with its partition; waits a moment when nothing has.

        Raises CannotReach: records were deleted before they were read; NotAllowed;
        CoordinationTopicChanged: the log has lost its end.
        """
        messages = self._messages(BATCH)
        return [taken for message in messages if (taken := self._take(message)) is not None]

    def ended(self) -> Iterator[tuple[int, int]]:
        """Partitions that were read to their ends, and when those were asked for; once each."""
        for partition, (asked_ms, end) in list(self._goals.items()):
            if self._positions[partition] >= end:
                del self._goals[partition]
                self._reached.add(partition)
                yield partition, asked_ms

    def _hear(self) -> None:
        if not all(answer.done() for answer in self._answers.values()):
            return
        answers, self._answers = self._answers, {}
        problems = [answer.exception() for answer in answers.values()]
        for problem in problems:
            self._refuse(problem)
        for (partition, answer), problem in zip(answers.items(), problems, strict=True):
            if problem is None:
                self._aim(partition, int(answer.result().offset))
        if reasons := sorted({reason_of(each) for each in problems if each is not None}):
            _log.info("Ends of the coordination topic are not known: %s", ", ".join(reasons))
            self.admin.forget([self._topic])

    def _aim(self, partition: int, end: int) -> None:
        """An older end that is not reached yet stays: who reads a long log would reach no newer
        one. One that the log does not have any more gives way.

        Raises CoordinationTopicChanged: what was read is not there any more.
        """
        known = self._asked_at.get(partition, 0)
        if end < known:
            raise log_cut(self._topic, partition, known - 1, f"the next one is {end}")
        goal = self._goals.get(partition)
        if goal is None or end <= goal[1]:
            self._goals[partition] = (self._asked_ms, end)

    def _refuse(self, problem: BaseException | KafkaError | None) -> None:
        """Raises NotAllowed if that is the reason: nobody here can fix it."""
        if denied := denial(problem, reading(self._topic), self._options):
            raise denied

    def _take(self, message: Message) -> tuple[int, LogRecord] | None:
        error, offset, partition = message.error(), message.offset(), message.partition()
        if error is not None:
            self._take_error(error, partition, offset)
            return None
        if offset is None or partition is None or partition not in self._positions:
            return None  # dropped
        self._positions[partition] = offset + 1
        kind, time_ms = message.timestamp()
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            return partition, LogRecord(offset, time_ms, message.value())
        if partition in self._reached:
            self._warn_of_time()
        return partition, LogRecord(offset, UNTRUSTED_TIME_MS, message.value())

    def _warn_of_time(self) -> None:
        """A start refuses such a topic; this one was altered since, as by a tool that sets topics
        back to what it knows of them."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s has records without the broker's timestamp: its clock does not move, and "
                "claims of dead consumers do not end. Set message.timestamp.type=LogAppendTime.",
                self._topic,
            )

    def _take_error(self, error: KafkaError, partition: int | None, offset: int | None) -> None:
        self._refuse(error)  # which may be of no partition
        if partition is None or partition not in self._positions:
            return
        if error.code() == KafkaError._PARTITION_EOF and offset is not None:
            self._positions[partition] = max(self._positions[partition], offset)
        elif error.code() == KafkaError._LOG_TRUNCATION:  # by the leader's epoch (KIP-320)
            known = self._positions[partition] - 1
            raise log_cut(self._topic, partition, known, "another record is there")
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise CannotReach(
                f"Claims were deleted before they were read: {error.str()}",
                f"{self._topic}, partition {partition}",
                "Close this client and open it anew: it begins with what is there. Let the topic "
                "keep its records for longer.",
            )
        else:
            _log.warning("Reading the coordination topic: %s", error.str())

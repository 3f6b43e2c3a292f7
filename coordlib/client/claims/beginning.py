"""Where a client begins to read a coordination partition: exactly, or late. Source: section 5.

Exactly: from a snapshot of the engine, or from the log's first record. Late: with the newest
1,000,000 records, and at least with those of the last 8 heartbeat intervals. A late reader waits
before it acts; one that began exactly does not.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from coordlib.client.claims.transport import Coordination
from coordlib.client.claims.view import LogView
from coordlib.core.claims.pages import Snapshot, read_pages
from coordlib.core.claims.restore import positions_of
from coordlib.core.claims.snapshot import UnreadableSnapshot
from coordlib.core.claims.world import World
from coordlib.core.wire.own_topics import claims_prefix
from coordlib.errors import CannotReach, CoordError, NotAllowed, StartRefused
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import reason_of
from coordlib.kafka.compacted import newest_by_key
from coordlib.kafka.denied import denial, reading, refusing
from coordlib.kafka.places import Bounds, Place
from coordlib.kafka.topics import look_up

_log = logging.getLogger("coordlib.client")

#: Records behind a snapshot, and from the log's start, that are read rather than left out.
BEHIND_SNAPSHOT_MAX: Final = 2_000_000
FROM_START_MAX: Final = 5_000_000
#: Records of the log that a late reader reads, and intervals of it that it reads at least. Who owns
#: what stands in these; a pause may be older, and a reader breaks one that it has not read.
LATE_MAX: Final = 1_000_000
LATE_INTERVALS: Final = 8
ASK_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Finds the beginning of each coordination partition that is read."""

    options: Mapping[str, Any]
    place: Coordination
    #: Of the engine's topics, without the claims' own part.
    prefix: str
    #: Rights whose lack was told; the same holds for every partition.
    _told: set[str] = field(default_factory=set)

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
            if problem.what not in self._told:
                self._told.add(problem.what)
                _log.warning(
                    "Claims are read from the beginning of the log, or from its newest part, and "
                    "not from the job's snapshots. %s %s",
                    problem.what,
                    problem.mend,
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
            asked = admin.list_offsets({place: spec}, request_timeout=ASK_TIMEOUT_S)
            return asked[place].result(ASK_TIMEOUT_S)
        except (KafkaException, TimeoutError) as problem:
            raise self._silent(problem) from problem

    def bounds(self, admin: Admin, partition: int) -> Bounds:
        """Of a coordination partition's log. Raises CannotReach, NotAllowed."""
        place = Place(self.place.topic, partition)
        try:
            denied = refusing(self.options, reading)
            found = log_bounds(admin, [place], ASK_TIMEOUT_S, on_denied=denied).get(place)
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
                "groups go on from the positions that Kafka's groups have.",
            )
        return found

    def restored(self, snapshot: Snapshot, partition: int) -> World:
        """The world of a snapshot."""
        place = self.place
        return World.restore(snapshot.world, place.topic, partition, place.partitions)

    def _world(self, partition: int, **more: Any) -> World:
        return World(self.place.topic, partition, self.place.partitions, **more)

"""The member of one query of `format("coord")`, in the planner's process.

    latestOffset(start)     the batch that ends at `start` is through: commit it, release what was
                            demanded of it, plan the next batch
    a demand                waits for the batch in flight if that reads the partition; else the
                            partition is released at once
    lost                    nothing more is planned of it, and nothing committed
    SIGTERM, or the JVM     the member leaves the group, and the process ends
    has ended

Spark ends this process with SIGTERM when a query stops, and does not call `stop`. The member has a
thread of its own, in which its callbacks run; `plan` runs in the main thread.

A batch is planned from its own offset alone, which names ranges, group and query: it runs again the
same, whoever owns its partitions by then. Commits carry `coord-spark/1 QUERY N` as metadata: N is
the number of the newest batch whose records lie below the offset. So a query that starts from its
checkpoint knows whether its last batch was committed to the group.

Keeps INV-147, INV-148.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import structlog

from coordlib.client.groups.member import AssignedMember
from coordlib.client.groups.reading import Start, TopicIds
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.client.kit.transport import Transport
from coordlib.client.spark.source_commits import SourceCommits
from coordlib.client.spark.source_offsets import METADATA, Offset, PlannedRange, share
from coordlib.client.spark.source_options import SourceOptions
from coordlib.errors import CannotReach, CoordError
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import readable_bounds
from coordlib.kafka.clients import open_admin
from coordlib.kafka.logs import Bounds, Place

_log = structlog.get_logger()
#: Seconds between two looks for new records while there are none.
LOOK_S: Final = 0.05
_POLL_S: Final = 0.1
_LEAVE_S: Final = 3.0
_ASK_S: Final = 5.0
_FIRST_S: Final = 2.0
#: Seconds after which a query that was given no partitions says so.
_NOTHING_S: Final = 10.0


_Asked = tuple[Start, dict[TopicPartition, int]]


class SourceMember:
    """See the module."""

    def __init__(
        self,
        options: SourceOptions,
        transport: Transport | None = None,
        admin: Admin | None = None,
    ) -> None:
        self._options = options
        self._changed = threading.Condition()
        self._member = AssignedMember(
            options.group,
            options.coordinator,
            transport=transport,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
            prefix=options.prefix,
            timing=options.timing,
            strategy=options.strategy,
            capacity=options.capacity,
        )
        self._ids = TopicIds.of(self._member)
        self._admin = admin or open_admin(options.data)
        #: The partitions that may be planned, with their fences.
        self._owned: dict[TopicPartition, int] = {}
        #: The next offset to plan of those of them that were begun.
        self._positions: dict[TopicPartition, int] = {}
        #: Those whose committed offsets were asked for, with the fences of that time.
        self._starts: list[_Asked] = []
        #: The batch that was planned last, until it is known to be through.
        self._in_flight: Offset | None = None
        #: Those that were asked back and not released yet: nothing more is planned of them.
        self._leaving: set[TopicPartition] = set()
        self._commits = SourceCommits(self._member, self._ids, self._owned.get)
        self._ends: dict[TopicPartition, int] = {}
        #: With Trigger.AvailableNow the end of each partition when it was first looked at.
        self._until: dict[TopicPartition, int] | None = None
        self._looked_s = self._called_s = 0.0
        self._planned_s = time.monotonic()
        self._warns_of_nothing_s = self._planned_s + _NOTHING_S
        self._failure: Exception | None = None
        self._is_stopping = False
        self._has_left = threading.Event()
        self._ends_process = False
        self._was_assigned = self._has_warned = False
        self._parent = os.getppid()
        self._thread = threading.Thread(target=self._work, name="coord-source", daemon=True)

    def start(self) -> None:
        """Join the group."""
        self._member.subscribe(self._options.topics, self._options.pattern)
        self._thread.start()

    def close(self) -> None:
        """Leave the group; waits a moment for it."""
        self._is_stopping = True
        self._has_left.wait(_LEAVE_S + 1)

    def end_process(self, *_: object) -> None:
        """The handler of SIGTERM: leave the group, then end. It takes no lock."""
        self._ends_process = self._is_stopping = True
        if self._has_left.is_set():
            os._exit(0)

    # ---- the main thread ------------------------------------------------------------------------

    def plan(self, start: Offset, rows_max: int | None) -> Offset:
        """The end of the next batch; `start` itself: there is nothing to read.

        Raises:
            CoordError: the member was refused for good, or records are gone.
        """
        self._through()
        self._warn()
        until_s = time.monotonic() + self._patience_s(start)
        while True:
            self._begin(start)
            bounds = self._look()
            with self._changed:
                self._raise_failure()
                if ranges := self._ranges(bounds or {}, rows_max):
                    return self._planned(start, ranges)
                is_due = time.monotonic() >= until_s
                if self._until is None:
                    if is_due or self._positions:
                        return start
                elif bounds is not None and self._has_read_all(bounds, is_due):
                    return start
                elif is_due:
                    self._give_up()

    def _planned(self, start: Offset, ranges: Mapping[TopicPartition, PlannedRange]) -> Offset:
        topics = {place.topic for place in ranges}
        ids = {topic: found for topic in sorted(topics) if (found := self._ids.begun(topic))}
        batch = replace(start, n=start.n + 1, read=ranges, ids=ids)
        for place, each in ranges.items():
            self._positions[place] = each.end
        self._in_flight, self._planned_s = batch, time.monotonic()
        return batch

    def _patience_s(self, start: Offset) -> float:
        """How long a call waits where there is nothing to read."""
        if self._until is not None:
            return self._options.timing.rebalance_timeout_ms / 1000
        # The first batch of a query would be an empty one.
        return _FIRST_S if start.n == 0 else 0.0

    def _warn(self) -> None:
        """Warn once of triggers that lie far apart, and once of a query that owns nothing."""
        now_s, before_s = time.monotonic(), self._called_s
        self._called_s = now_s
        half_s = self._options.timing.rebalance_timeout_ms / 2000
        if before_s and now_s - before_s > half_s and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "batches are further apart than half of max.poll.interval.ms: a demand that waits "
                "for the end of one may cost this member its partitions; choose a shorter trigger "
                "interval, or a larger max.poll.interval.ms",
                apart_s=round(now_s - before_s, 1),
            )
        if not self._was_assigned and now_s > self._warns_of_nothing_s:
            self._warns_of_nothing_s = float("inf")
            _log.warning(
                "the query waits for partitions: there may be no such topic, other members may own "
                "all of them, or the coordinator may be away",
                group=self._options.group,
                topics=self._options.pattern or self._options.topics,
            )

    def newest_ends(self) -> dict[str, Any] | None:
        """By topic and partition, at the newest look."""
        found: dict[str, dict[str, int]] = {}
        for place, end in sorted(self._ends.items()):
            found.setdefault(place.topic, {})[str(place.partition)] = end
        return found or None

    def read_only_until_now(self) -> None:
        """Trigger.AvailableNow: plan nothing beyond the end that is seen first of a partition."""
        self._until = {}

    # ---- Trigger.AvailableNow; the lock is held -------------------------------------------------

    def _has_read_all(self, bounds: Mapping[TopicPartition, Bounds], is_due: bool) -> bool:
        """Whether nothing that it owns is behind the noted ends, and all of it is committed."""
        self._commits.write()
        if self._starts or not self._member.may_work():
            return False
        if not self._was_assigned:
            if is_due and self._member.member_id:
                _log.warning("the group has left this member no partitions until now")
                return True
            return False
        until = self._until or {}
        return self._commits.are_settled and all(
            place in bounds and self._positions.get(place, -1) >= until.get(place, 0)
            for place in self._owned
        )

    def _give_up(self) -> None:
        what = "The coordinator does not answer"
        what += " the commits of this query." if self._was_assigned else ": no partitions came."
        where = f"group {self._options.group}"
        raise CannotReach(what, where, "Look whether its job runs: coord status.")

    # ---- steps of `plan` ------------------------------------------------------------------------

    def _through(self) -> None:
        """The batch in flight is through: commit its ends, but not of partitions lost meanwhile."""
        with self._changed:
            batch, self._in_flight = self._in_flight, None
            if batch is not None:
                ends = {
                    place: each.end
                    for place, each in batch.read.items()
                    if self._owned.get(place) == each.fence
                }
                self._commits.add(ends, batch.metadata)
            self._commits.write()
            self._changed.notify_all()  # a demand waits for it

    def _begin(self, last: Offset) -> None:
        """Begin the partitions whose committed offsets have come."""
        with self._changed:
            self._begin_those_made_anew()
            ready: list[_Asked] = []
            waiting: list[_Asked] = []
            for each in self._starts:
                (ready if each[0].is_ready(self._ids) else waiting).append(each)
            self._starts = waiting
            if ready:
                self._ids.take_in()
            unsettled = [pair for each in ready for pair in self._begin_at(*each, last).items()]
        if unsettled:
            self._settle(dict(unsettled), last)

    def _begin_those_made_anew(self) -> None:
        """Topics that were deleted and created again are read from their start."""
        topics = {place.topic for place in self._positions}
        self._ids.look(topics)
        if anew := self._ids.refused(topics):
            _log.warning("topics were created again", topics=sorted(anew))
            places = [place for place in self._positions if place.topic in anew]
            for place in places:
                del self._positions[place]
                (self._until or {}).pop(place, None)
            self._ask(places)

    def _begin_at(
        self, start: Start, fences: Mapping[TopicPartition, int], last: Offset
    ) -> dict[TopicPartition, int | None]:
        """Begin at committed offsets; the partitions without one, and where each is to begin: None
        where the log tells."""
        answer = start.answer.result()
        owned = [p for p in start.partitions if self._owned.get(p) == fences.get(p, -1)]
        if answer.error is not None:
            _log.warning("committed offsets are not known", error=str(answer.error))
            self._ask(owned)
            return {}
        rows = {TopicPartition(row.topic, row.partition): row for row in answer.offsets}
        found = start.begin(self._ids)
        unsettled: dict[TopicPartition, int | None] = {}
        for place in owned:
            at = found.get(place, -1)
            read = last.range_of(place, self._ids.begun(place.topic))
            text = rows[place].metadata if place in rows else ""
            if at < 0:
                # Committed offsets expire, the checkpoint does not.
                unsettled[place] = None if read is None else read.end
                continue
            if read is not None and last.was_committed_before(text):
                # This query ended between the end of its last batch and the commit.
                at, text = read.end, ""
            self._positions[place] = at
            if not text.startswith(f"{METADATA} {last.query} "):
                self._commits.add({place: at}, last.metadata)
        self._commits.write()
        return unsettled

    def _settle(self, places: Mapping[TopicPartition, int | None], last: Offset) -> None:
        """Commit where partitions without a committed offset begin, and ask again.

        So the next owner begins there, too, and nothing that is written meanwhile is missed. Only a
        new query begins at the end: a query that was here before would miss records.
        """
        try:
            bounds = self._bounds(places)
        except CannotReach as problem:
            _log.warning("the query waits", error=str(problem))
            bounds = {}
        is_at_end = self._options.otherwise == "latest" and last.n == 0
        ends = {p: each.end if is_at_end else each.start for p, each in bounds.items()}
        ends |= {place: at for place, at in places.items() if at is not None and place in bounds}
        with self._changed:
            self._commits.add(ends, last.metadata)
            self._commits.write()
            self._ask(place for place in places if place in self._owned)

    def _look(self) -> dict[TopicPartition, Bounds] | None:
        """The bounds of the owned partitions; None: the brokers do not answer.

        Spark asks again at once where there was nothing, so this looks now and then only.
        """
        with self._changed:
            left_s = self._looked_s + LOOK_S - time.monotonic()
            if left_s > 0:
                self._changed.wait(left_s)
            wanted = [each for each in self._positions if each in self._owned]
        self._looked_s = time.monotonic()
        try:
            return self._bounds(wanted) if wanted else {}
        except CannotReach as problem:
            _log.warning("the query waits", error=str(problem))
            return None

    def _ranges(
        self, bounds: Mapping[TopicPartition, Bounds], rows_max: int | None
    ) -> dict[TopicPartition, PlannedRange]:
        """What the next batch reads of the partitions that may be planned at this moment."""
        if not self._member.may_work():
            return {}
        there: dict[TopicPartition, tuple[int, int]] = {}
        for place, each in bounds.items():
            self._ends[place] = each.end
            if place in self._leaving or place not in self._owned:
                continue
            position = self._positions.get(place)
            at = None if position is None else self._checked(place, position, each)
            if at is not None:
                end = each.end if self._until is None else self._until.setdefault(place, each.end)
                if at < end:
                    there[place] = at, end
        total = sum(end - at for at, end in there.values())
        if (
            total < self._options.rows_min
            and self._until is None
            and (time.monotonic() - self._planned_s < self._options.delay_max_ms / 1000)
        ):
            return {}
        ends = share(there, total if rows_max is None else rows_max)
        return {
            place: PlannedRange(there[place][0], end, self._owned[place])
            for place, end in ends.items()
        }

    def _checked(self, place: TopicPartition, at: int, bounds: Bounds) -> int | None:
        """Where to read on; None: the topic is another one, and is begun anew.

        Raises CoordError: records are gone, and the query is strict.
        """
        if bounds.start <= at <= bounds.end:
            return at
        if self._ids.made_anew({place.topic}):
            return None
        where = f"{place.topic}-{place.partition}: {at}, the log has {bounds.start} to {bounds.end}"
        if self._options.is_strict:
            hint = "Commit where the group is to go on, or set failOnDataLoss to false."
            raise CoordError("Records are gone before they were read.", where, hint)
        _log.warning("records are gone before they were read", where=where)
        return bounds.start

    def _bounds(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Raises CannotReach: the brokers do not answer."""
        data = self._options.data
        is_committed = data.get("isolation.level") == "read_committed"
        asked = [Place(*each) for each in sorted(places)]
        found = readable_bounds(self._admin, data, asked, _ASK_S, is_committed=is_committed)
        return {TopicPartition(*at): each for at, each in found.items()}

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # ---- the member's thread --------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while not self._is_over():
                self._member.poll(_POLL_S)
        except Exception as problem:  # noqa: BLE001  # `plan` raises it
            self._failure = problem
        finally:
            self._is_stopping = True
            ends_process = self._ends_process or os.getppid() != self._parent
            if ends_process:  # also where brokers do not answer
                ending = threading.Timer(_LEAVE_S + 1, os._exit, (0,))
                ending.daemon = True
                ending.start()
            with contextlib.suppress(Exception):
                self._member.close(_LEAVE_S)
            self._has_left.set()
            if ends_process or self._ends_process:
                os._exit(0)

    def _is_over(self) -> bool:
        return self._is_stopping or os.getppid() != self._parent

    def _assigned(self, partitions: Partitions) -> None:
        with self._changed:
            fences = {each: self._member.fence_of(*each) for each in partitions}
            self._owned.update({each: at for each, at in fences.items() if at is not None})
            self._was_assigned = self._was_assigned or bool(partitions)
            self._ask(partitions)
            self._changed.notify_all()

    def _ask(self, partitions: Iterable[TopicPartition]) -> None:
        some = tuple(partitions)
        if some:
            ids = self._ids.ask_later({each.topic for each in some})
            fences = {each: self._owned[each] for each in some if each in self._owned}
            self._starts.append((Start(some, self._member.committed_async(some), ids), fences))

    def _revoked(self, partitions: Partitions) -> None:
        """Wait for the batch that reads one of these; its commit goes with the release."""
        with self._changed:
            self._leaving.update(partitions)
            while self._reads(partitions) and not self._is_over() and self._member.may_work():
                self._changed.wait(_POLL_S)
            rows = self._commits.take(partitions)
            self._drop(partitions)
        if rows:
            self._member.commit_async(rows)

    def _reads(self, partitions: Partitions) -> bool:
        return self._in_flight is not None and not self._in_flight.read.keys().isdisjoint(
            partitions
        )

    def _lost(self, partitions: Partitions) -> None:
        with self._changed:
            self._drop(partitions)
            self._was_assigned = False

    def _drop(self, partitions: Partitions) -> None:
        for place in partitions:
            self._owned.pop(place, None)
            self._positions.pop(place, None)
            self._leaving.discard(place)

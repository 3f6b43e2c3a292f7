"""A shard: one partition of `coord.requests` and the groups that hash to it.

    fold(blob, records) -> (blob, outputs, status)

is a pure function: records are judged in offset order, time is the clipped log clock, deadlines
fire in order before a record is judged, and nothing else has any influence. The same log gives
the same outputs for any cut into batches; only what is written once per batch (the groups' saved
states and Progress) depends on the cut, and after compaction not even that.  # INV-02

Heartbeats are the many; a healthy one changes one number and decodes no group.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import msgspec

from coordlib.coordinators.groups import topics
from coordlib.coordinators.groups.throttle import NewGroups
from coordlib.coordinators.shard import answered, batch_end, kinds, quarantine, rejection
from coordlib.coordinators.shard import clock as deadlines
from coordlib.coordinators.shard.answered import Asked, counted_bytes
from coordlib.coordinators.shard.blob import (
    STATE_VERSION,
    UNTRUSTED_TIME_MS,
    Fold,
    InputRecord,
    ShardSettings,
    Status,
    UnknownStateVersion,
    decode_blob,
    encode_blob,
    status_of,
)
from coordlib.coordinators.shard.control import ControlRecords
from coordlib.coordinators.shard.kind import Machine
from coordlib.coordinators.shard.outbox import size_of
from coordlib.coordinators.shard.outcome import Decide, Outcome, take
from coordlib.coordinators.shard.restore import restore
from coordlib.coordinators.shard.row import Row
from coordlib.coordinators.shard.rows import Groups
from coordlib.coordinators.shard.step import Surroundings
from coordlib.coordinators.shard.table import OffsetTable
from coordlib.coordinators.shard.transition import COMMITS, REQUESTS, At
from coordlib.effects.routing import Output
from coordlib.records import codec, stored
from coordlib.records import requests as rq

__all__ = [
    "STATE_VERSION",
    "UNTRUSTED_TIME_MS",
    "Fold",
    "InputRecord",
    "Shard",
    "ShardSettings",
    "Status",
    "UnknownStateVersion",
    "fold",
    "restore",
]


def fold(blob: bytes | None, records: Iterable[InputRecord], settings: ShardSettings) -> Fold:
    """Judge a batch: requests in offset order, then positions of those who are no members."""
    shard = Shard(blob, settings)
    for record in sorted(records, key=lambda r: (r.topic != REQUESTS, r.offset)):
        shard.judge(record)
    outputs = shard.close()
    return Fold(shard.encode(), outputs, shard.status())


class Shard(Groups):
    """A shard while a batch is judged. Owned by one fold; never shared."""

    def __init__(self, blob: bytes | None, settings: ShardSettings) -> None:
        state = decode_blob(blob)
        super().__init__(state, settings)
        #: Timestamp of the newest request, also when time went back.
        self.previous_ms = state.previous_ms
        #: Newest judged record of each input topic.  # INV-04
        self.offset = state.offset
        self.commits_offset = state.commits_offset
        self.control = ControlRecords(state.control, settings)
        per_second = settings.group.new_groups_per_second_max
        #: By input topic, and the time on which it counts.
        self._new = {
            REQUESTS: NewGroups(state.free_us, per_second),
            COMMITS: NewGroups(state.offsets_free_us, per_second),
        }
        self._first_offset = state.offset
        #: The record that was judged last; of this batch, once there is one.
        self._newest = InputRecord(REQUESTS, state.offset, state.previous_ms, None)
        #: The cluster's topics by partition count, as far as the log has told.
        self.topics = state.topics

    @property
    def outputs(self) -> list[Output]:
        """What the batch has to say so far."""
        return self._outbox.outputs

    # -- one record ------------------------------------------------------------------------

    def judge(self, record: InputRecord) -> None:
        """Apply one record; older ones than the newest of their topic do nothing."""
        if record.topic == COMMITS:
            self._judge_position(record)
            return
        if record.offset <= self.offset:
            return
        self._tell_time(record)
        request: rq.AnyRequest | codec.Refusal | None = rejection.read(record)
        if type(request) is rq.Heartbeat:
            cell = self.rows.get(request.group)
            if cell is not None and cell.accepts_quietly(request, self.clock_ms):
                return
        at = self._at(record, REQUESTS)
        if isinstance(request, rq.Control):
            request = self.control.judge(request, record)
        if isinstance(request, rq.Tick):
            self._cover(min(request.published, record.offset - 1))
        elif isinstance(request, rq.TopicMetadata):
            self._learn(at, request)
        elif isinstance(request, codec.Refusal):
            self._reject(at, request, record.value)
        elif request is not None:
            self._judge_request(at, request, record.value)

    def _judge_position(self, record: InputRecord) -> None:
        if record.offset <= self.commits_offset:
            return
        self.commits_offset = record.offset
        self._newest = record
        self._outbox.begin_record()
        at = self._at(record, COMMITS)
        request = rejection.read(record)
        if isinstance(request, codec.Refusal):
            self._reject(at, request, record.value)
        elif not (isinstance(request, rq.OffsetCommit) and request.generation == -1):
            self._reject(at, rejection.misplaced(request), record.value, type(request))
        else:
            self._judge_request(at, request, record.value)

    def _tell_time(self, record: InputRecord) -> None:
        """Rules 1 and 2: move the clock, then do what is due, before the record is judged."""
        timestamp_ms = self._trusted_time(record)
        if self.offset < 0:
            self.clock_ms = timestamp_ms
        else:
            self.clock_ms = deadlines.advance(
                self.clock_ms, self.previous_ms, timestamp_ms, self._agenda.cap_ms
            )
        self.previous_ms = timestamp_ms
        self.offset = record.offset
        self._newest = record
        self._outbox.begin_record()
        if not self._agenda.is_quiet(self.clock_ms):
            at = self._at(record, REQUESTS)
            self._fire_due(at)
            self._expire(at)

    def _trusted_time(self, record: InputRecord) -> int:
        """A record without the broker's time stands still at the time before it."""
        is_trusted = record.timestamp_ms != UNTRUSTED_TIME_MS
        return record.timestamp_ms if is_trusted else self.previous_ms

    def _at(self, record: InputRecord, topic: str) -> At:
        return self.settings.at(topic, record.offset, self._trusted_time(record), self.clock_ms)

    def _here(self) -> At:
        return self._at(self._newest, self._newest.topic)

    def _judge_request(self, at: At, request: rq.Request, value: bytes | None) -> None:
        cell = self.rows.get(request.group)
        fault = rejection.misdirected(request, self.settings, cell is not None)
        if fault is not None:
            self._reject(at, fault, value, type(request))
        elif isinstance(request, rq.ReleaseQuarantine):
            self._try(at, request, lambda: self._release(at, request, cell))
        elif cell is not None and cell.group is not None and cell.group.is_quarantined:
            self._put(at, quarantine.unavailable(request, at))
        else:
            self._try(at, request, lambda: self._handle(at, request, cell, len(value or b"")))

    def _try(self, at: At, request: rq.Request, judge: Callable[[], None]) -> None:
        """Judge it; if that breaks, its group is set aside and all others go on.  # INV-42"""
        try:
            judge()
        except Exception as problem:  # noqa: BLE001
            self._quarantine(at, request.group, problem, kinds.only_kind(type(request)))
            self._put(at, quarantine.unavailable(request, at))

    def _handle(self, at: At, request: rq.Request, cell: Row | None, request_bytes: int) -> None:
        """Let the group's kind judge it; a group without members may become of another one."""
        machine = kinds.machine_for(type(request), cell.machine if cell else None)
        handler = machine.HANDLERS[type(request)]
        if cell is not None and machine is not cell.machine and not cell.group.is_empty:
            self._put(at, *kinds.refused(request, at, cell.group, cell.machine.KIND))
        else:
            asked = Asked(request, request_bytes)
            kind = kinds.only_kind(type(request)) if cell is None else None
            self._step(at, request.group, lambda step: handler(step, request), machine, kind, asked)

    def _reject(
        self, at: At, refused: codec.Refusal, value: bytes | None, request: type[Any] | None = None
    ) -> None:
        cell = self.rows.get(refused.group)
        kind = cell.stored.kind if cell else kinds.only_kind(request)
        self._put(at, *rejection.effects_of(at, refused, kind, value))

    # -- one group -------------------------------------------------------------------------

    def _step(
        self,
        at: At,
        name: str,
        decide: Decide,
        machine: Machine,
        kind: str | None = None,
        asked: Asked | None = None,
    ) -> None:
        """Let a group judge something; keep the outcome only if it is sound.  # INV-44"""
        cell = self.rows.get(name)
        done = take(decide, machine, name, cell, at, self._surroundings(at, cell), kind)
        if self.settings.checks_invariants and done.group and done.kind == machine.KIND:
            machine.check(done.group)
        effects = done.effects
        if cell is not None and done.group is not None and done.kind != cell.stored.kind:
            effects = [*effects, kinds.changed(cell.group, at, cell.stored.kind, machine.KIND)]
        outputs = self._outbox.ready(effects, at)
        counted = counted_bytes(size_of(outputs), asked)
        if asked and counted and not done.is_reaction and self._must_wait(asked, counted, cell):
            self._outbox.undo()
            self._step(at, name, partial(answered.put_off, asked.request), machine, kind)
            return
        try:
            self._keep(at, name, cell, done)
        except Exception:
            self._outbox.undo()
            raise
        self._outbox.say(outputs)
        if counted:
            self._count(at, name, counted)

    def _keep(self, at: At, name: str, cell: Row | None, done: Outcome) -> None:
        """Store what a step has come to, all of it or nothing."""
        if done.is_deleted and cell is not None:
            self._forget(cell)
        if done.group is None or done.kind is None or not done.is_change:
            return  # refused, or only asked
        if cell is None:
            self._new[at.topic].book(_time_of(at))
            cell = Row.empty(name, done.kind)
        self._settle(cell, done.group, done.touched, done.commits, done.kind)
        self.rows[name] = cell

    def _surroundings(self, at: At, cell: Row | None) -> Surroundings:
        settings = self.settings
        return Surroundings(
            config=settings.group,
            load_offsets=cell.load_offsets if cell else OffsetTable,
            heard=cell.heard if cell else {},
            may_create=len(self.rows) < settings.group.groups_per_shard_max,
            is_throttled=cell is None and self._new[at.topic].must_wait(_time_of(at)),
            room_bytes=settings.group.shard_bytes_max - self._agenda.size_bytes,
            topics=self.topics,
            strategies=settings.strategies,
        )

    # -- topics ----------------------------------------------------------------------------

    def _learn(self, at: At, metadata: rq.TopicMetadata) -> None:
        """Other topics, or more partitions: groups that want them judge the change."""
        self.topics, changed = topics.learn(self.topics, metadata)
        for name, problem in topics.concerned(self.rows, changed) if changed else ():
            if problem is None:
                self._tell_topics(at, name, changed)
            else:
                self._quarantine(at, name, problem)

    def _tell_topics(self, at: At, name: str, changed: Collection[str]) -> None:
        cell = self.rows[name]
        judge = cell.machine.topics_changed
        if judge is None or cell.group is None or cell.group.is_quarantined:
            return
        try:
            self._step(at, name, partial(topics.tell, judge, changed), cell.machine)
        except Exception as problem:  # noqa: BLE001  INV-42
            self._quarantine(at, name, problem)

    # -- quarantine ------------------------------------------------------------------------

    def _quarantine(self, at: At, name: str, problem: Exception, kind: str | None = None) -> None:
        """Keep the group as it was before the step, and judge nothing of it any more."""
        cell = self.rows.get(name)
        group = cell.group if cell else None
        if cell is not None and group is not None:
            self._settle(cell, msgspec.structs.replace(group, is_quarantined=True), [])
        kind = cell.stored.kind if cell is not None else kind
        self._put(at, quarantine.recorded(name, kind, group, at, problem))

    def _release(self, at: At, request: rq.ReleaseQuarantine, cell: Row | None) -> None:
        group = cell.group if cell else None
        machine = cell.machine if cell else None
        refused = quarantine.refused_release(machine, group)
        if not refused and cell is not None and group is not None:
            freed = quarantine.freed(cell.machine, group, self.published, self.clock_ms)
            self._settle(cell, freed, list(group.members))
        self._put(at, *quarantine.effects_of_release(request, at, machine, group, refused))
        if not refused:  # topics may have come and gone meanwhile
            self._tell_topics(at, request.group, ())

    # -- the end of a batch ----------------------------------------------------------------

    def close(self) -> list[Output]:
        """What is written once per batch: saved states of changed groups, and Progress."""
        for name in sorted(self.rows.keys() | self._deleted):
            cell = self.rows.get(name)
            try:
                self._outbox.put_at_end(batch_end.saved(name, cell))
            except Exception as problem:
                if cell is None:
                    raise
                self._set_aside(cell, problem)  # INV-67: a defect, and all others must go on
        if self.offset > self._first_offset:
            place = (self.settings.shard, self.offset, self.previous_ms)
            self._outbox.put_at_end(batch_end.progress(*place, self.rows))
        return self.outputs

    def encode(self) -> bytes:
        """The blob."""
        return encode_blob(
            self._position,
            self._retention_ms,
            self.rows,
            self.topics,
            self._refusals,
            self._new[REQUESTS].free_us,
            self._new[COMMITS].free_us,
        )

    def status(self) -> Status:
        return status_of(
            self.settings.shard, self._position, self._agenda.cap_ms, self.rows.values()
        )

    @property
    def _position(self) -> stored.ShardPosition:
        return stored.ShardPosition(
            clock_ms=self.clock_ms,
            previous_ms=self.previous_ms,
            offset=self.offset,
            commits_offset=self.commits_offset,
            published=self.published,
            answered=self._answered.rows,
            control=self.control.newest,
        )


def _time_of(at: At) -> int:
    """The time on which new groups count that came by this topic (throttle.py)."""
    return at.clock_ms if at.topic == REQUESTS else at.time_ms

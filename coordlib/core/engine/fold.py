"""A shard: one partition of `coord.requests` and the entities that hash to it.

    fold(blob, records, settings, registry) -> (blob, outputs, status)

is a pure function: the records of an input are judged in offset order, time is the clipped log
clock, deadlines fire in order before a record is judged, and nothing else has any influence. The
same requests give the same outputs for any cut into batches; only what is written once per batch
(the saved heads and Progress) depends on the cut, and after compaction not even that.  # INV-02

Heartbeats are the many; a healthy one changes one number and decodes no head.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from coordlib.core.engine import outputs as answered
from coordlib.core.engine import refusals
from coordlib.core.engine import time as deadlines
from coordlib.core.engine.effects import REQUESTS, At, Key, Output, coordinate, route
from coordlib.core.engine.entities import DriverRecords
from coordlib.core.engine.outputs import Asked, counted_bytes, size_of
from coordlib.core.engine.protocol import Registry, api_versions
from coordlib.core.engine.refusals import ControlRecords
from coordlib.core.engine.rows import Row, StoredRow
from coordlib.core.engine.state import (
    STATE_VERSION,
    UNTRUSTED_TIME_MS,
    Fold,
    InputRecord,
    Loaded,
    ShardSettings,
    Status,
    UnknownStateVersion,
    decode_blob,
    encode_blob,
    status_of,
)
from coordlib.core.engine.step import Decide, Held, Kind, Outcome, take
from coordlib.core.wire import api as rq
from coordlib.core.wire import codec, stored
from coordlib.errors import ErrorCode

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
    "judged",
]


def fold(
    blob: bytes | None,
    records: Iterable[InputRecord],
    settings: ShardSettings,
    registry: Registry,
) -> Fold:
    """Judge a batch."""
    shard = judged(blob, records, settings, registry)
    return Fold(shard.encode(), shard.outputs, shard.status())


def judged(
    begin: bytes | Loaded | None,
    records: Iterable[InputRecord],
    settings: ShardSettings,
    registry: Registry,
) -> "Shard":
    """The shard after a batch: one input after the other, requests first, each in offset order."""
    shard = Shard(begin, settings, registry)
    order = {letter: place for place, letter in enumerate(registry.inputs)}
    for record in sorted(records, key=lambda each: (order[each.topic], each.offset)):
        shard.judge(record)
    shard.close()
    return shard


class Shard(DriverRecords):
    """A shard while a batch is judged. Owned by one fold; never shared."""

    def __init__(
        self, begin: bytes | Loaded | None, settings: ShardSettings, registry: Registry
    ) -> None:
        if not isinstance(begin, Loaded):
            begin = Loaded(decode_blob(begin, registry))
        state, rows, noted = begin
        super().__init__(state, settings, registry, rows, noted)
        #: Timestamp of the newest request, also when time went back.
        self.previous_ms = state.previous_ms
        #: Newest judged record of each input beside the requests, by its letter.  # INV-04
        self._beside = {letter: state.offsets.get(letter, -1) for letter in registry.inputs}
        #: That of the requests.
        self.offset = self._beside.pop(REQUESTS)
        self.control = ControlRecords(state.control, settings)
        self._request_of = registry.reader.read
        self._first_offset = self.offset
        #: The record that was judged last; of this batch, once there is one.
        self._newest = InputRecord(REQUESTS, self.offset, state.previous_ms, None)

    @property
    def outputs(self) -> list[Output]:
        """What the batch has to say so far."""
        return self._outbox.outputs

    # -- one record ------------------------------------------------------------------------

    def judge(self, record: InputRecord) -> None:
        """Apply one record; older ones than the newest of their topic do nothing."""
        if record.topic != REQUESTS:
            self._judge_beside(record)
            return
        if record.offset <= self.offset:
            return
        self._tell_time(record)
        request: Any = self._read(record)
        if type(request) is rq.Heartbeat:
            row = self.rows.get(request.entity)
            if row is not None and row.accepts_quietly(request, self.clock_ms):
                return
        at = self._at(record, REQUESTS)
        if isinstance(request, rq.Control):
            request = self.control.judge(request, record)
        if isinstance(request, rq.Control):
            self._obey(at, request)
        elif isinstance(request, codec.Refusal):
            self._reject(at, request, record.value)
        elif request is not None:
            self._judge_request(at, request, record.value)

    def _read(self, record: InputRecord) -> Any:
        """The request or control record that it has, or a codec.Refusal."""
        if record.timestamp_ms == UNTRUSTED_TIME_MS:
            return refusals.without_time()
        request = self._request_of(record.value)
        if self.settings.set_aside:
            here = coordinate(record.topic, self.settings.shard, record.offset)
            return refusals.unless_set_aside(request, self.settings.set_aside.get(here))
        return request

    def _judge_beside(self, record: InputRecord) -> None:
        """A record of an input that a family has brought."""
        if record.offset <= self._beside[record.topic]:
            return
        self._beside[record.topic] = record.offset
        self._newest = record
        at, request = self._at(record, record.topic), self._read(record)
        if isinstance(request, codec.Refusal):
            self._reject(at, request, record.value)
        elif why := self._why_not_beside(record.topic, request):
            refused = refusals.reject(request, ErrorCode.INVALID_REQUEST, why)
            self._reject(at, refused, record.value, type(request))
        else:
            self._judge_request(at, request, record.value)

    def _why_not_beside(self, letter: str, request: rq.Request | rq.Control) -> str | None:
        """Why it must not stand in this input; None: it may.

        No record of the job may, and no request but commits that may have to wait: what it said is
        counted by offsets of the requests alone (answered.py). Commits do not wait here.
        """
        belongs = self.registry.inputs[letter]
        try:
            why = belongs.fault(request)
        except Exception as problem:  # noqa: BLE001  INV-42: a defect, and the log must go on
            return f"It could not be judged: {type(problem).__name__}."
        if why is None and (isinstance(request, rq.Control) or not request.WAITS.is_free_beside):
            return f"Write it to the requests: it does not belong into {belongs.topic}."
        return why

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
        if not self._agenda.is_quiet(self.clock_ms):
            at = self._at(record, REQUESTS)
            self._fire_due(at)
            self._look(at)

    def _trusted_time(self, record: InputRecord) -> int:
        """A record without the broker's time stands still at the time before it."""
        return self.previous_ms if record.timestamp_ms == UNTRUSTED_TIME_MS else record.timestamp_ms

    def _at(self, record: InputRecord, topic: str) -> At:
        return self.settings.at(topic, record.offset, self._trusted_time(record), self.clock_ms)

    def _here(self) -> At:
        return self._at(self._newest, self._newest.topic)

    def _judge_request(self, at: At, request: rq.Request, value: bytes | None) -> None:
        key = request.entity
        row = self.rows.get(key)
        fault = None  # what is here belongs here: it was made by a request that was not misdirected
        if row is None or (request.reply or 0) >= self.settings.reply_partitions:
            fault = refusals.misdirected(request, self.settings, self.registry, row is not None)
        if fault is not None:
            self._reject(at, fault, value, type(request))
        elif isinstance(request, rq.ApiVersions):
            self._put(at, api_versions(at, request, self.registry, self.families.values()))
        elif isinstance(request, rq.ReleaseQuarantine):
            self._try(at, request, lambda: self._release(at, request, row))
        elif row is not None and row.is_quarantined:
            self._put(at, refusals.unavailable(request, at))
        else:
            self._try(at, request, lambda: self._handle(at, key, request, row, len(value or b"")))

    def _try(self, at: At, request: rq.Request, judge: Callable[[], None]) -> None:
        """Judge it; if that breaks, its entity is set aside and all others go on.  # INV-42"""
        try:
            judge()
        except Exception as problem:  # noqa: BLE001
            key = request.entity
            self._quarantine(at, key, problem, self.registry.only_kind(key[0], type(request)))
            self._put(at, refusals.unavailable(request, at))

    def _handle(
        self, at: At, key: Key, request: rq.Request, row: Row | None, request_bytes: int
    ) -> None:
        """An empty entity takes the kind of the next request that needs one."""
        what = type(request)
        if row is not None and what in row.kind.handlers:
            kind: Kind | None = row.kind
        else:
            kind = self.registry.first_kind(key[0], what)
        if kind is None:
            self._reject_unknown(at, request, row)
        elif row is not None and not row.takes(kind):
            self._put(at, *refusals.inapplicable(request, at, row.kind, row.value, kind))
        else:
            asked, handler = Asked(request, request_bytes), kind.handlers[what]
            named = self.registry.only_kind(key[0], what) if row is None else None
            self._step(at, key, lambda step: handler(step, request), kind, named, asked)

    def _reject_unknown(self, at: At, request: rq.Request, row: Row | None) -> None:
        """No kind of this space judges such requests."""
        if row is not None:
            self._put(at, *refusals.inapplicable(request, at, row.kind, row.value, None))
            return
        why = f"{type(request).__name__} does not apply to the space {request.entity[0]}."
        self._reject(at, refusals.reject(request, ErrorCode.INVALID_REQUEST, why), None)

    def _reject(
        self, at: At, refused: codec.Refusal, value: bytes | None, request: type[Any] | None = None
    ) -> None:
        row = self.rows.get((refused.space, refused.group))
        kind = row.stored.kind if row else self.registry.only_kind(refused.space, request)
        self._put(at, *refusals.effects_of_refusal(at, refused, kind, value))

    # -- one entity ------------------------------------------------------------------------

    def _step(
        self,
        at: At,
        key: Key,
        decide: Decide,
        kind: Kind,
        named: str | None = None,
        asked: Asked | None = None,
    ) -> None:
        """Let an entity judge something; keep the outcome only if it is sound.  # INV-44

        `named`: the kind that history names if no entity is made.
        """
        row = self.rows.get(key)
        if row is not None:
            self.touched.add(key)
        around = self._around(at, key, row, asked)
        held = Held(row.value, row.kind) if row else Held()
        done = take(decide, kind, key[1], held, at, around, named)
        if self.settings.checks_invariants and done.is_judged_by(kind):
            kind.check(done.value)
        effects = done.effects
        if row is not None and done.value is not None and done.kind is not row.kind:
            effects = [*effects, refusals.kind_changed(row, at, kind)]
        outputs = self._outbox.ready(effects, at)
        counted = counted_bytes(size_of(outputs), asked)
        is_free = done.is_reaction or not counted
        if asked and not is_free and self._must_wait(at, asked, row, counted):
            self._outbox.undo()
            self._step(at, key, partial(answered.put_off, asked.request), kind, named)
            return
        try:
            self._keep(at, key, row, done)
        except Exception:
            self._outbox.undo()
            raise
        if done.sends:
            self.channels.send(done.sends)
        self.outputs.extend(outputs)
        if counted:
            self._count(at, key, counted)

    def _keep(self, at: At, key: Key, row: Row | None, done: Outcome) -> None:
        """Store what a step has come to, all of it or nothing."""
        if done.is_deleted and row is not None:
            self._forget(row)
        if done.value is None or done.kind is None or not done.is_change:
            return  # refused, or only asked
        if row is not None:
            self._settle(row, done.value, done.touched, done.puts, done.kind)
            return
        row = Row(StoredRow(key[1], done.kind.NAME), done.kind)
        self._settle(row, done.value, done.touched, done.puts, done.kind)
        self.families[key[0]].created(at)
        self._count_of[key[0]] += 1
        self.rows[key] = row

    # -- quarantine ------------------------------------------------------------------------

    def _quarantine(self, at: At, key: Key, problem: Exception, kind: str | None = None) -> None:
        """Keep the entity as it was before the step, and judge nothing of it any more."""
        row, generation = self.rows.get(key), -1
        if row is not None and row.value is not None:
            generation = row.kind.generation(row.value)
            self._settle(row, msgspec.structs.replace(row.value, is_quarantined=True), [])
        kind = row.stored.kind if row is not None else kind
        self._put(at, refusals.quarantined(key, kind, generation, at, problem))

    def _release(self, at: At, request: rq.ReleaseQuarantine, row: Row | None) -> None:
        refused = refusals.refused_release(row)
        told = refusals.effects_of_release(request, at, row, refused)
        if not refused and row is not None:
            freed = refusals.freed(row.kind, row.value, self.published, self.clock_ms)
            self._settle(row, freed, list(row.kind.sessions(row.value)))
        self._put(at, *told)
        if not refused and row is not None:  # what the family learns has gone on meanwhile
            self._let(at, request.entity, row.kind.released)

    # -- the end of a batch ----------------------------------------------------------------

    def close(self) -> list[Output]:
        """What is written once per batch: saved heads that changed, and Progress."""
        for key in sorted(self.touched):
            row, family = self.rows.get(key), self.registry.families[key[0]]
            if row is None and key not in self._deleted:  # it was not made in the end
                continue
            try:
                self._outbox.put_head(family, key[1], row)
            except Exception as problem:
                if row is None:
                    raise
                self._set_aside(row, problem)  # INV-67: a defect, and all others must go on
        saved = self._channels.saved() if self._channels else ()
        self.outputs.extend(route(each, self.settings.shard) for each in saved)
        if self.offset > self._first_offset:
            self._outbox.put_progress(self.offset, self.previous_ms, self._agenda.replies)
        return self.outputs

    def encode(self, has_rows: bool = True) -> bytes:
        """The blob; without rows, if they are stored elsewhere."""
        used, rows, known = self._channels, self.rows if has_rows else {}, self.families
        channels = self._stored_channels if used is None else used.stored()
        families = {
            space: known[space].state() for space in self.registry.stateful if space in known
        }
        return encode_blob(self._position, rows, families, self._refusals, channels)

    def status(self) -> Status:
        owed = self._answered.owed
        told = status_of(self.settings.shard, self._position, self._agenda, owed)
        if self._channels is None and self._stored_channels is None:
            return told
        return msgspec.structs.replace(told, heard=self.channels.heard)

    @property
    def _position(self) -> stored.ShardPosition:
        return stored.ShardPosition(
            clock_ms=self.clock_ms,
            previous_ms=self.previous_ms,
            offsets={REQUESTS: self.offset, **self._beside},
            published=self.published,
            answered=self._answered.rows,
            control=self.control.newest,
        )

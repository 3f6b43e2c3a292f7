"""A shard: one partition of `coord.requests` and the groups that hash to it.

    fold(blob, records) -> (blob, outputs, status)

is a pure function: records are judged in offset order, time is the clipped log clock, deadlines
fire in order before a record is judged, and nothing else has any influence. The same log gives
the same outputs for any cut into batches; only what is written once per batch (the groups' saved
states and Progress) depends on the cut, and after compaction not even that.  # INV-02

Heartbeats are the many; a healthy one changes one number and decodes no group.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final

import msgspec

from coordlib import limits
from coordlib.config import ClassicConfig
from coordlib.coordinators import deadlines
from coordlib.coordinators.cell import Cell, StoredCell
from coordlib.coordinators.classic import machine as classic
from coordlib.coordinators.classic.draft import Draft
from coordlib.coordinators.classic.group import BrokenInvariant, Group
from coordlib.coordinators.deadlines import NEVER
from coordlib.coordinators.registry import MACHINE_OF
from coordlib.coordinators.transition import COMMITS, REQUESTS, At, envelope, refusal, reply_of
from coordlib.effects import effect as fx
from coordlib.effects.routing import Output, route
from coordlib.errors import ErrorCode
from coordlib.records import codec, stored
from coordlib.records import requests as rq
from coordlib.records import responses as rs
from coordlib.records.partitioner import reply_partition_of, shard_of

STATE_VERSION: Final = 1


class InputRecord(msgspec.Struct, frozen=True, array_like=True):
    """One record of `coord.requests` ("r") or `coord.offsets` ("o")."""

    topic: str
    offset: int
    #: The broker's append time.
    timestamp_ms: int
    value: bytes | None


class ShardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a shard must know and cannot learn from its records."""

    shard: int
    shards: int
    reply_partitions: int
    incarnation: str
    group: ClassicConfig = ClassicConfig()
    #: Check every group after every step (tests, simulation), not only its transitions.
    checks_invariants: bool = False


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver must know of a shard, to write ticks and the progress marker."""

    shard: int
    position: stored.ShardPosition
    #: Rule 1's CAP, now.
    cap_ms: int
    #: Whether anything waits for time to pass.
    has_deadline: bool
    #: Highest record whose outputs somebody must react to; -1: none. The driver owes a tick.
    owed: int


class StoredShard(msgspec.Struct, array_like=True):
    """The blob. Its version is the first element, so that later code can read it."""

    version: int
    clock_ms: int
    previous_ms: int
    offset: int
    commits_offset: int
    published: int
    cells: list[StoredCell]


class Fold(msgspec.Struct, frozen=True):
    """The outcome of a batch."""

    blob: bytes
    outputs: list[Output]
    status: Status


_decode_blob: Final = msgspec.msgpack.Decoder(StoredShard).decode
_encode_blob: Final = msgspec.msgpack.Encoder().encode


class UnknownStateVersion(ValueError):
    """The blob was written by newer code."""


def fold(blob: bytes | None, records: Iterable[InputRecord], settings: ShardSettings) -> Fold:
    """Judge a batch: requests in offset order, then positions of those who are no members."""
    shard = Shard(blob, settings)
    for record in sorted(records, key=lambda r: (r.topic != REQUESTS, r.offset)):
        shard.judge(record)
    outputs = shard.close()
    return Fold(shard.encode(), outputs, shard.status())


class Shard:
    """A shard while a batch is judged. Owned by one fold; never shared."""

    def __init__(self, blob: bytes | None, settings: ShardSettings) -> None:
        self.settings = settings
        self.outputs: list[Output] = []
        state = _decode_blob(blob) if blob else StoredShard(STATE_VERSION, 0, 0, -1, -1, -1, [])
        if state.version != STATE_VERSION:
            raise UnknownStateVersion(f"state version {state.version}, known {STATE_VERSION}")
        #: The clipped log clock.  # INV-06
        self.clock_ms = state.clock_ms
        #: Timestamp of the newest request, also when time went back.
        self.previous_ms = state.previous_ms
        #: Newest judged record of each input topic.  # INV-04
        self.offset = state.offset
        self.commits_offset = state.commits_offset
        #: Newest record whose outputs can be read, by the newest tick.
        self.published = state.published
        self._first_offset = state.offset
        self._ordinal = 0
        self.cells = {row.name: Cell(row) for row in state.cells}
        #: How many groups have which shortest timeout; gives CAP.
        self._timeouts = Counter(r.timeout_ms for r in state.cells if r.timeout_ms)
        self._cap_ms = self._find_cap()
        #: (not later than the earliest deadline, group); rows may be stale, the cell knows.
        self._due = [(r.next_due_ms, r.name) for r in state.cells if r.next_due_ms < NEVER]
        heapify(self._due)
        #: Groups that wait for a covering tick.
        self._uncovered = {r.name for r in state.cells if r.uncovered_min >= 0}

    # -- one record ------------------------------------------------------------------------

    def judge(self, record: InputRecord) -> None:
        """Apply one record; older ones than the newest of their topic do nothing."""
        if record.topic == COMMITS:
            self._judge_position(record)
            return
        if record.offset <= self.offset:
            return
        self._tell_time(record)
        request = codec.decode_request(record.value)
        if type(request) is rq.Heartbeat and self._accepts_quietly(request):
            return
        at = self._at(record, REQUESTS)
        if isinstance(request, rq.Tick):
            self._cover(min(request.published, record.offset - 1))
        elif isinstance(request, codec.Refusal):
            self._reject(at, request, record.value)
        else:
            self._judge_request(at, request, record.value)

    def _judge_position(self, record: InputRecord) -> None:
        if record.offset <= self.commits_offset:
            return
        self.commits_offset = record.offset
        self._ordinal = 0
        at = self._at(record, COMMITS)
        request = codec.decode_request(record.value)
        if isinstance(request, codec.Refusal):
            self._reject(at, request, record.value)
        elif not (isinstance(request, rq.OffsetCommit) and request.generation == -1):
            refused = codec.Refusal(
                error=ErrorCode.INVALID_REQUEST,
                message="Only OffsetCommit with generation -1 belongs into this topic.",
                id=getattr(request, "id", None),
                client=getattr(request, "client", ""),
                group=getattr(request, "group", ""),
                reply=getattr(request, "reply", None),
            )
            self._reject(at, refused, record.value)
        else:
            self._judge_request(at, request, record.value)

    def _tell_time(self, record: InputRecord) -> None:
        """Rules 1 and 2: move the clock, then do what is due, before the record is judged."""
        if self.offset < 0:
            self.clock_ms = record.timestamp_ms
        else:
            self.clock_ms = deadlines.advance(
                self.clock_ms, self.previous_ms, record.timestamp_ms, self._cap_ms
            )
        self.previous_ms = record.timestamp_ms
        self.offset = record.offset
        self._ordinal = 0
        if self._due and self._due[0][0] <= self.clock_ms:
            self._fire_due(self._at(record, REQUESTS))

    def _at(self, record: InputRecord, topic: str) -> At:
        settings = self.settings
        return At(
            settings.shard,
            topic,
            record.offset,
            record.timestamp_ms,
            self.clock_ms,
            settings.incarnation,
            settings.reply_partitions,
        )

    def _accepts_quietly(self, request: rq.Heartbeat) -> bool:
        """A healthy heartbeat: remember when, and nothing else."""
        cell = self.cells.get(request.group)
        if cell is None or cell.stored.quiet_generation != request.generation:
            return False
        heard = cell.heard
        if request.generation < 0 or request.instance is not None or request.member not in heard:
            return False
        heard[request.member] = self.clock_ms
        return True

    def _judge_request(self, at: At, request: rq.Request, value: bytes | None) -> None:
        fault = self._misdirected(request)
        if fault is not None:
            self._reject(at, fault, value)
            return
        cell = self.cells.get(request.group)
        if isinstance(request, rq.ReleaseQuarantine):
            self._release(at, request, cell)
            return
        machine = MACHINE_OF[type(request)]
        if cell is not None and cell.group is not None and cell.group.is_quarantined:
            answer = machine.ANSWERS[type(request)]
            refused = refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._put(
                fx.Respond(reply_of(request, at), answer(**envelope(request, at), **refused)), at
            )
            return
        try:
            self._step(at, request.group, partial(machine.HANDLERS[type(request)], request=request))
        except Exception as problem:  # noqa: BLE001  INV-42: one group's defect must not stop all
            self._quarantine(at, request.group, problem)
            answer = machine.ANSWERS[type(request)]
            refused = refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._put(
                fx.Respond(reply_of(request, at), answer(**envelope(request, at), **refused)), at
            )

    def _misdirected(self, request: rq.Request) -> codec.Refusal | None:
        settings = self.settings
        error, message = ErrorCode.NONE, ""
        if type(request) not in MACHINE_OF and not isinstance(request, rq.ReleaseQuarantine):
            error = ErrorCode.UNSUPPORTED_VERSION
            message = f"{type(request).__name__} is not built yet."
        elif not request.group:
            error, message = ErrorCode.INVALID_GROUP_ID, "group is empty."
        elif request.reply is not None and request.reply >= settings.reply_partitions:
            error = ErrorCode.INVALID_REQUEST
            message = f"reply must be below {settings.reply_partitions}."
        elif request.group not in self.cells:
            home = shard_of(request.group, settings.shards)
            if home != settings.shard:  # INV-05
                error = ErrorCode.WRONG_SHARD
                message = f"This group belongs into partition {home} of {settings.shards}."
        if error is ErrorCode.NONE:
            return None
        return codec.Refusal(
            error=error,
            message=message,
            id=request.id,
            client=request.client,
            group=request.group,
            reply=request.reply,
        )

    def _reject(self, at: At, refused: codec.Refusal, value: bytes | None) -> None:
        """One answer if anybody can be told, one event always, and nothing changes.  # INV-41"""
        if refused.id is not None:
            reply = refused.reply
            if reply is None or reply >= at.reply_partitions:
                reply = reply_partition_of(refused.client, at.reply_partitions)
            answer = rs.Rejected(
                id=refused.id,
                client=refused.client,
                group=refused.group,
                cause=at.coordinate,
                error=refused.error.name,
                message=refused.message,
            )
            self._put(fx.Respond(reply, answer), at)
        kept = (value or b"")[: limits.REJECTED_BYTES_KEPT]
        self._put(
            fx.Record(
                type=stored.EVENT_REQUEST_REJECTED,
                group=refused.group,
                cause=at.coordinate,
                reason=refused.message,
                detail={"error": refused.error.name, "client": refused.client, "bytes": kept},
            ),
            at,
        )

    # -- one group -------------------------------------------------------------------------

    def _step(self, at: At, name: str, decide: Callable[[Draft], None]) -> None:
        """Let a group judge something; keep the outcome only if it is sound.  # INV-44"""
        cell = self.cells.get(name)
        draft = Draft(
            name,
            cell.group if cell else None,
            at,
            self.settings.group,
            cell.load_offsets if cell else dict,
            len(self.cells) < self.settings.group.groups_per_shard_max,
        )
        decide(draft)
        if self.settings.checks_invariants and draft.group is not None:
            classic.check(draft.group)
        outputs = self._encode_effects(draft.effects, at)
        self.outputs += outputs
        if draft.group is None:
            return
        if cell is None:
            cell = self.cells[name] = Cell.empty(name, classic.KIND)
        for effect in draft.effects:
            if isinstance(effect, fx.Commit):
                cell.apply_commit(effect.topic, effect.partition, effect.value)
        self._settle(cell, draft.group, draft.touched)

    def _settle(self, cell: Cell, group: Group, touched: list[str]) -> None:
        """Take over a group's new state, and what the shard knows about it by heart."""
        row = cell.stored
        timeout_ms = row.timeout_ms
        cell.set_group(group, self.clock_ms, touched)
        if row.timeout_ms != timeout_ms:
            self._timeouts[timeout_ms] -= 1
            self._timeouts[row.timeout_ms] += 1
            self._cap_ms = self._find_cap()
        if row.next_due_ms < NEVER:
            heappush(self._due, (row.next_due_ms, row.name))
        if row.uncovered_min >= 0:
            self._uncovered.add(row.name)
        else:
            self._uncovered.discard(row.name)

    def _find_cap(self) -> int:
        """Rule 1: a fifth of the shortest timeout of any live member."""
        shortest = min((ms for ms, count in self._timeouts.items() if ms and count), default=0)
        return shortest // 5 if shortest else limits.CLOCK_CAP_IDLE_MS

    def _encode_effects(self, effects: list[fx.Effect], at: At) -> list[Output]:
        before = self._ordinal
        try:
            return [route(self._complete(effect, at), at.shard) for effect in effects]
        except BaseException:
            self._ordinal = before
            raise

    def _complete(self, effect: fx.Effect, at: At) -> fx.Effect:
        """Give a history line its id and time."""
        if not isinstance(effect, fx.Record):
            return effect
        event = stored.Event(
            event_id=f"{at.incarnation}-{at.coordinate}-{self._ordinal}",
            time_ms=at.time_ms,
            type=effect.type,
            group=effect.group,
            generation=effect.generation,
            member=effect.member,
            cause=effect.cause,
            reason=effect.reason,
            detail=effect.detail,
        )
        self._ordinal += 1
        return fx.Event(event)

    def _put(self, effect: fx.Effect, at: At) -> None:
        self.outputs += self._encode_effects([effect], at)

    # -- time ------------------------------------------------------------------------------

    def _fire_due(self, at: At) -> None:
        """Rule 2: every deadline that is due, in order of time, then group, kind, member."""
        while self._due and self._due[0][0] <= self.clock_ms:
            bound_ms, name = heappop(self._due)
            cell = self.cells.get(name)
            if cell is None or cell.stored.next_due_ms != bound_ms or cell.group is None:
                continue
            due = classic.next_due(cell.group, cell.heard)
            if due.due_ms != bound_ms:
                # Heartbeats have pushed it later since the bound was set.
                cell.stored.next_due_ms = due.due_ms
                if due.due_ms < NEVER:
                    heappush(self._due, (due.due_ms, name))
                continue
            try:
                self._step(at, name, partial(classic.fire, due=due))
            except Exception as problem:  # noqa: BLE001  INV-42
                self._quarantine(at, name, problem)

    def _cover(self, published: int) -> None:
        """Rule 3: what waited to be heard of starts now."""
        if published <= self.published:
            return
        self.published = published
        for name in sorted(self._uncovered):
            cell = self.cells[name]
            if not 0 <= cell.stored.uncovered_min <= published or cell.group is None:
                continue
            group, heard_now = classic.cover(cell.group, published, self.clock_ms)
            self._settle(cell, group, heard_now)

    # -- quarantine ------------------------------------------------------------------------

    def _quarantine(self, at: At, name: str, problem: Exception) -> None:
        """Keep the group as it was before the step, and judge nothing of it any more."""
        cell = self.cells.get(name)
        group = cell.group if cell else None
        if cell is not None and group is not None:
            self._settle(cell, msgspec.structs.replace(group, is_quarantined=True), [])
        self._put(
            fx.Record(
                type=stored.EVENT_GROUP_QUARANTINED,
                group=name,
                generation=group.generation if group else -1,
                cause=at.coordinate,
                reason=type(problem).__name__,
                detail={"exception": codec.printable(str(problem))},
            ),
            at,
        )

    def _release(self, at: At, request: rq.ReleaseQuarantine, cell: Cell | None) -> None:
        group = cell.group if cell else None
        error: dict[str, Any] = {}
        if cell is None or group is None:
            error = refusal(ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_quarantined:
            error = refusal(ErrorCode.INVALID_REQUEST, "This group is not quarantined.")
        else:
            try:
                classic.check(group)
            except BrokenInvariant as broken:
                error = refusal(ErrorCode.INVALID_REQUEST, f"Its state is unsound: {broken}")
        if not error and cell is not None and group is not None:
            freed = msgspec.structs.replace(group, is_quarantined=False)
            self._settle(cell, classic.restart(freed, self.clock_ms), list(group.members))
            self._put(
                fx.Record(
                    type=stored.EVENT_GROUP_RELEASED,
                    group=request.group,
                    generation=group.generation,
                    cause=at.coordinate,
                    reason=f"released by {request.client}",
                ),
                at,
            )
        response = rs.ReleaseQuarantineResponse(**envelope(request, at), **error)
        self._put(fx.Respond(reply_of(request, at), response), at)

    # -- the end of a batch ----------------------------------------------------------------

    def close(self) -> list[Output]:
        """What is written once per batch: saved states of changed groups, and Progress."""
        shard = self.settings.shard
        for name in sorted(self.cells):
            cell = self.cells[name]
            if cell.changed and cell.group is not None:
                saved = classic.encode_saved(cell.group)
                self.outputs.append(route(fx.SaveGroup(name, saved), shard))
        if self.offset > self._first_offset:
            progress = rs.Progress(shard=shard, offset=self.offset, time_ms=self.previous_ms)
            replies = {reply for cell in self.cells.values() for reply in cell.stored.replies}
            self.outputs += [route(fx.Notify(r, progress), shard) for r in sorted(replies)]
        return self.outputs

    def encode(self) -> bytes:
        """The blob: canonical, so that equal states are equal bytes.  # INV-03"""
        return _encode_blob(
            StoredShard(
                STATE_VERSION,
                self.clock_ms,
                self.previous_ms,
                self.offset,
                self.commits_offset,
                self.published,
                [self.cells[name].encoded() for name in sorted(self.cells)],
            )
        )

    def status(self) -> Status:
        rows = [cell.stored for cell in self.cells.values()]
        owed = max((row.uncovered_max for row in rows), default=-1)
        return Status(
            shard=self.settings.shard,
            position=stored.ShardPosition(
                clock_ms=self.clock_ms,
                previous_ms=self.previous_ms,
                offset=self.offset,
                commits_offset=self.commits_offset,
                published=self.published,
            ),
            cap_ms=self._cap_ms,
            has_deadline=owed >= 0 or any(row.next_due_ms < NEVER for row in rows),
            owed=owed,
        )

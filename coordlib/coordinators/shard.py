"""A shard: one partition of `coord.requests` and the groups that hash to it.

    fold(blob, records) -> (blob, outputs, status)

is a pure function: records are judged in offset order, time is the clipped log clock, deadlines
fire in order before a record is judged, and nothing else has any influence. The same log gives
the same outputs for any cut into batches; only what is written once per batch (the groups' saved
states and Progress) depends on the cut, and after compaction not even that.  # INV-02

Heartbeats are the many; a healthy one changes one number and decodes no group.
"""

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from coordlib.coordinators import deadlines, quarantine, rejection
from coordlib.coordinators.agenda import Agenda
from coordlib.coordinators.cell import Cell
from coordlib.coordinators.classic import machine as classic
from coordlib.coordinators.classic.draft import Draft
from coordlib.coordinators.classic.group import Group
from coordlib.coordinators.deadlines import NEVER
from coordlib.coordinators.offset_table import OffsetTable
from coordlib.coordinators.registry import MACHINE_OF
from coordlib.coordinators.restore import restore
from coordlib.coordinators.shard_state import (
    STATE_VERSION,
    UNTRUSTED_TIME_MS,
    Fold,
    InputRecord,
    ShardSettings,
    Status,
    StoredShard,
    UnknownStateVersion,
    decode_blob,
    encode_blob,
)
from coordlib.coordinators.transition import COMMITS, REQUESTS, At, event_of
from coordlib.effects import effect as fx
from coordlib.effects.routing import Output, route
from coordlib.errors import ErrorCode
from coordlib.records import codec, stored
from coordlib.records import requests as rq
from coordlib.records import responses as rs

__all__ = [
    "STATE_VERSION",
    "UNTRUSTED_TIME_MS",
    "Fold",
    "InputRecord",
    "Shard",
    "ShardSettings",
    "Status",
    "StoredShard",
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


class Shard:
    """A shard while a batch is judged. Owned by one fold; never shared."""

    def __init__(self, blob: bytes | None, settings: ShardSettings) -> None:
        self.settings = settings
        self.outputs: list[Output] = []
        state = decode_blob(blob)
        #: The clipped log clock.  # INV-06
        self.clock_ms = state.clock_ms
        #: Timestamp of the newest request, also when time went back.
        self.previous_ms = state.previous_ms
        #: Newest judged record of each input topic.  # INV-04
        self.offset = state.offset
        self.commits_offset = state.commits_offset
        #: Newest record whose outputs can be read, by the newest tick.
        self.published = state.published
        self._retention_ms = settings.group.offsets_retention_ms
        if state.retention_ms != self._retention_ms:
            for row in state.cells:
                row.expires_ms = 0  # looked at once
        self._first_offset, self._refusals = state.offset, state.refusals
        self._ordinal = 0
        self.cells = {row.name: Cell(row) for row in state.cells}
        #: Groups that were deleted in this batch; some may be there again.
        self._deleted: set[str] = set()
        self._agenda = Agenda(state.cells, settings.group.offsets_retention_check_interval_ms)

    # -- one record ------------------------------------------------------------------------

    def judge(self, record: InputRecord) -> None:
        """Apply one record; older ones than the newest of their topic do nothing."""
        if record.topic == COMMITS:
            self._judge_position(record)
            return
        if record.offset <= self.offset:
            return
        self._tell_time(record)
        if record.timestamp_ms == UNTRUSTED_TIME_MS:
            self._reject(self._at(record, REQUESTS), rejection.without_time(), record.value)
            return
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
        request: rq.AnyRequest | codec.Refusal = rejection.without_time()
        if record.timestamp_ms != UNTRUSTED_TIME_MS:
            request = codec.decode_request(record.value)
        if isinstance(request, codec.Refusal):
            self._reject(at, request, record.value)
        elif not (isinstance(request, rq.OffsetCommit) and request.generation == -1):
            why = "Write it to the requests: only OffsetCommit with generation -1 belongs here."
            refused = rejection.refuse(request, ErrorCode.INVALID_REQUEST, why)
            self._reject(at, refused, record.value)
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
        self._ordinal = 0
        if not self._agenda.is_quiet(self.clock_ms):
            at = self._at(record, REQUESTS)
            self._fire_due(at)
            self._expire(at)

    def _trusted_time(self, record: InputRecord) -> int:
        """A record without the broker's time stands still at the time before it."""
        is_trusted = record.timestamp_ms != UNTRUSTED_TIME_MS
        return record.timestamp_ms if is_trusted else self.previous_ms

    def _at(self, record: InputRecord, topic: str) -> At:
        how, times = self.settings, (self._trusted_time(record), self.clock_ms)
        place = (how.shard, how.shards, topic, record.offset)
        return At(*place, *times, how.incarnation, how.reply_partitions)

    def _accepts_quietly(self, request: rq.Heartbeat) -> bool:
        """A healthy heartbeat: remember when, and nothing else."""
        cell = self.cells.get(request.group)
        if cell is None or cell.stored.quiet_generation != request.generation:
            return False
        heard = cell.heard
        if request.generation < 0 or request.member not in heard:
            return False
        instance = request.instance
        if instance is not None and cell.stored.instances.get(instance) != request.member:
            return False
        heard[request.member] = self.clock_ms
        return True

    def _judge_request(self, at: At, request: rq.Request, value: bytes | None) -> None:
        cell = self.cells.get(request.group)
        fault = rejection.misdirected(request, self.settings, cell is not None)
        if fault is not None:
            self._reject(at, fault, value)
        elif isinstance(request, rq.ReleaseQuarantine):
            self._release(at, request, cell)
        elif cell is not None and cell.group is not None and cell.group.is_quarantined:
            self._put(at, quarantine.unavailable(request, at))
        else:
            handler = MACHINE_OF[type(request)].HANDLERS[type(request)]
            try:
                self._step(at, request.group, partial(handler, request=request))
            except Exception as problem:  # noqa: BLE001  INV-42: others must go on
                self._quarantine(at, request.group, problem)
                self._put(at, quarantine.unavailable(request, at))

    def _reject(self, at: At, refused: codec.Refusal, value: bytes | None) -> None:
        self._put(at, *rejection.effects_of(at, refused, value))

    # -- one group -------------------------------------------------------------------------

    def _step(self, at: At, name: str, decide: Callable[[Draft], None]) -> None:
        """Let a group judge something; keep the outcome only if it is sound.  # INV-44"""
        cell = self.cells.get(name)
        draft = Draft(
            name,
            cell.group if cell else None,
            at,
            self.settings.group,
            cell.load_offsets if cell else OffsetTable,
            len(self.cells) < self.settings.group.groups_per_shard_max,
            cell.heard if cell else {},
            self.settings.group.shard_bytes_max - self._agenda.size_bytes,
        )
        decide(draft)
        if self.settings.checks_invariants and draft.group is not None:
            classic.check(draft.group)
        outputs = self._encode_effects(draft.effects, at)
        self.outputs += outputs
        if draft.is_deleted and cell is not None:
            self._forget(cell)
        if draft.group is None:
            return
        if cell is None:
            cell = self.cells[name] = Cell.empty(name, classic.KIND)
        commits = [effect for effect in draft.effects if isinstance(effect, fx.Commit)]
        if draft.group is cell.group and not (draft.touched or commits):
            return  # refused, or only asked
        self._settle(cell, draft.group, draft.touched, commits)

    def _settle(
        self, cell: Cell, group: Group, touched: list[str], commits: Iterable[fx.Commit] = ()
    ) -> None:
        """Take over a group's new state, and what the shard knows about it by heart."""
        row = cell.stored
        before = (row.timeout_ms, row.next_due_ms, row.expires_ms, row.size_bytes)
        had = (cell.group, row.offset_count)
        for commit in commits:
            cell.apply_commit(commit.topic, commit.partition, commit.value)
        cell.set_group(group, self.clock_ms, touched)
        cell.bound_expiry(*had, self._retention_ms)
        if commits:
            cell.bound_expiry_by_commit(self.clock_ms, self._retention_ms)
        self._agenda.note(row, *before)

    def _forget(self, cell: Cell) -> None:
        """Its effects have withdrawn everything that was written of this group but itself."""
        # It was Empty, but an announced id may have waited in it.
        self._agenda.forget(cell.stored)
        del self.cells[cell.stored.name]
        self._deleted.add(cell.stored.name)

    def _encode_effects(self, effects: list[fx.Effect], at: At) -> list[Output]:
        before = self._ordinal
        try:
            lines = (self._complete(effect, at) for effect in effects)
            return [route(line, at.shard) for line in lines if line is not None]
        except BaseException:
            self._ordinal = before
            raise

    def _complete(self, effect: fx.Effect, at: At) -> fx.Effect | None:
        """Give a history line its id and time; None: one of a flood, which is only counted."""
        if not isinstance(effect, fx.Record):
            return effect
        cell = self.cells.get(effect.group)
        counts = self._refusals if cell is None else cell.stored.refusals
        if (line := counts.line(effect, self.clock_ms)) is None:
            return None
        self._ordinal += 1
        return event_of(line, at, self._ordinal - 1)

    def _put(self, at: At, *effects: fx.Effect) -> None:
        self.outputs += self._encode_effects(list(effects), at)

    # -- time ------------------------------------------------------------------------------

    def _fire_due(self, at: At) -> None:
        """Rule 2: every deadline that is due, in order of time, then group, kind, member.

        # INV-33
        """
        agenda = self._agenda
        while agenda.has_due(self.clock_ms):
            bound_ms, name = agenda.pop()
            cell = self.cells.get(name)
            if cell is None or cell.stored.next_due_ms != bound_ms or cell.group is None:
                continue
            due = classic.next_due(cell.group, cell.heard)
            if due.due_ms != bound_ms:
                # Heartbeats have pushed it later since the bound was set.
                cell.stored.next_due_ms = due.due_ms
                agenda.schedule(cell.stored)
                continue
            try:
                self._step(at, name, partial(classic.fire, due=due))
            except Exception as problem:  # noqa: BLE001  INV-42
                self._quarantine(at, name, problem)
            if cell.stored.next_due_ms == bound_ms:  # another one of the group, equally due
                agenda.schedule(cell.stored)

    def _expire(self, at: At) -> None:
        """Retention: what was due at the newest check goes; a look where something may be."""
        agenda, interval_ms = self._agenda, self.settings.group.offsets_retention_check_interval_ms
        checked_ms = classic.newest_check(self.clock_ms, interval_ms)
        while agenda.has_expiring(checked_ms):
            check_ms, name = agenda.pop_expiring()
            cell = self.cells.get(name)
            if cell is None or agenda.check_of(cell.stored) != check_ms or cell.group is None:
                continue
            try:
                self._step(at, name, partial(classic.expire, checked_ms=checked_ms))
                if name in self.cells:
                    cell.find_expiry(self._retention_ms)
                    agenda.schedule_expiry(cell.stored)
            except Exception as problem:  # noqa: BLE001  INV-42
                self._quarantine(at, name, problem)

    def _cover(self, published: int) -> None:
        """Rule 3: what waited to be heard of starts now."""
        if published <= self.published:
            return
        self.published = published
        for name in sorted(self._agenda.uncovered):
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
        self._put(at, quarantine.recorded(name, group, at, problem))

    def _release(self, at: At, request: rq.ReleaseQuarantine, cell: Cell | None) -> None:
        group = cell.group if cell else None
        refused = quarantine.refused_release(group)
        if not refused and cell is not None and group is not None:
            freed = msgspec.structs.replace(group, is_quarantined=False)
            self._settle(cell, classic.restart(freed, self.clock_ms), list(group.members))
        self._put(at, *quarantine.effects_of_release(request, at, group, refused))

    # -- the end of a batch ----------------------------------------------------------------

    def close(self) -> list[Output]:
        """What is written once per batch: saved states of changed groups, and Progress."""
        shard = self.settings.shard
        for name in sorted(self.cells.keys() | self._deleted):
            cell = self.cells.get(name)
            if cell is None:
                self.outputs.append(route(fx.SaveGroup(name, None), shard))
            elif cell.changed and cell.group is not None:
                saved = classic.encode_saved(cell.group)
                self.outputs.append(route(fx.SaveGroup(name, saved), shard))
        if self.offset > self._first_offset:
            progress = rs.Progress(shard=shard, offset=self.offset, time_ms=self.previous_ms)
            replies = {reply for cell in self.cells.values() for reply in cell.stored.replies}
            self.outputs += [route(fx.Notify(r, progress), shard) for r in sorted(replies)]
        return self.outputs

    def encode(self) -> bytes:
        """The blob: canonical, so that equal states are equal bytes.  # INV-03"""
        return encode_blob(
            StoredShard(
                STATE_VERSION,
                self.clock_ms,
                self.previous_ms,
                self.offset,
                self.commits_offset,
                self.published,
                self._retention_ms,
                [self.cells[name].encoded() for name in sorted(self.cells)],
                self._refusals,
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
            cap_ms=self._agenda.cap_ms,
            has_deadline=owed >= 0 or any(row.next_due_ms < NEVER for row in rows),
            owed=owed,
        )

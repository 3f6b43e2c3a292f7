"""A shard: one partition of `coord.requests` and the entities that hash to it.

    fold(blob, records, settings, registry) -> (blob, outputs, status)

is a pure function: the records of an input are judged in offset order, time is the clipped log
clock, deadlines fire in order before a record is judged, and nothing else has any influence. The
same requests give the same outputs for any cut into batches; only what is written once per batch
(the saved heads and Progress) depends on the cut, and after compaction not even that.  # INV-02

Heartbeats are the many; a healthy one changes one number and decodes no head.

Requests, deadlines, looks, messages and records of the job's driver are steps of one entity each.
One that breaks sets its entity aside, and all others go on.  # INV-42
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

import msgspec

from coordlib import limits
from coordlib.core.engine import effects as fx
from coordlib.core.engine import refusals
from coordlib.core.engine.channels import Channels
from coordlib.core.engine.effects import (
    REQUESTS,
    At,
    BrokenInvariant,
    Key,
    Output,
    Refusals,
    route,
)
from coordlib.core.engine.protocol import Families, Registry, api_versions
from coordlib.core.engine.refusals import ControlRecords
from coordlib.core.engine.rows import Agenda, NothingToKeep, Row, StoredRow, note
from coordlib.core.engine.state import (
    UNTRUSTED_TIME_MS,
    Fold,
    InputRecord,
    Loaded,
    ShardSettings,
    Status,
    decode_blob,
    decode_report,
    encode_blob,
)
from coordlib.core.engine.step import (
    NOT_INDEXED,
    Current,
    Decide,
    Facts,
    Kind,
    Outcome,
    StepContext,
    never_waits,
    take,
    throttle_request,
)
from coordlib.core.engine.tables import Table
from coordlib.core.engine.time import Due
from coordlib.core.wire import api, stored
from coordlib.core.wire.envelope import Message, Refusal
from coordlib.errors import ErrorCode


def fold(
    blob: bytes | None,
    records: Iterable[InputRecord],
    settings: ShardSettings,
    registry: Registry,
) -> Fold:
    """Judge a batch."""
    shard = judged(blob, records, settings, registry)
    status = shard.status()
    return Fold(shard.encode(), shard.outputs, status)


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


def coordinate(letter: str, shard: int, offset: int) -> str:
    """The name of a record; `letter`: of its input."""
    return f"{letter}{shard}-{offset}"


def advance(clock_ms: int, previous_ms: int, timestamp_ms: int, cap_ms: int) -> int:
    """Rule 1: the clock moves by the step between records, clipped to 0..CAP.  # INV-06"""
    return clock_ms + min(max(timestamp_ms - previous_ms, 0), cap_ms)


class Shard:
    """A shard while a batch is judged. Owned by one fold; never shared."""

    def __init__(
        self, begin: bytes | Loaded | None, settings: ShardSettings, registry: Registry
    ) -> None:
        if not isinstance(begin, Loaded):
            begin = Loaded(decode_blob(begin, registry))
        state, rows, noted = begin
        self.settings, self.registry = settings, registry
        self._request_of = registry.reader.read
        #: The clipped log clock.  # INV-06
        self.clock_ms = state.clock_ms
        #: Timestamp of the newest request, also when time went back.
        self.previous_ms = state.previous_ms
        #: Newest record whose outputs can be read, by the newest tick.
        self.published = state.published
        #: Newest judged record of each input beside the requests, by its letter.  # INV-04
        self._input_offsets = {letter: state.offsets.get(letter, -1) for letter in registry.inputs}
        #: That of the requests.
        self.offset = self._first_offset = self._input_offsets.pop(REQUESTS)
        #: The record that was judged last; of this batch, once there is one.
        self._newest = InputRecord(REQUESTS, self.offset, state.previous_ms, None)
        self._refusals = state.refusals
        self._outbox = fx.Outbox(self._refusals_of)
        #: What the batch has to say so far.
        self.outputs: list[Output] = self._outbox.outputs
        self._answered = fx.UnreadOutputs(state.answered, fx.bytes_max(settings.shards))
        #: Made when they are asked for: most batches of most shards use none.
        self._channels: Channels | None = None
        self._control: ControlRecords | None = None
        self._before = state
        #: What the families have beside their entities, by space. One that keeps nothing is made
        #: when it is asked for: it costs the entities of others nothing.
        self.families = Families()
        self.families.begin = registry, state.families, settings.families
        for space in registry.stateful:
            of = registry.families[space]
            if space in state.families or of.IS_ALWAYS_STORED:
                own = settings.families.get(space)
                found = state.families.get(space, NOT_INDEXED)
                self.families[space] = of(found, of.SETTINGS() if own is None else own)
        stale = {space for space, each in self.families.items() if each.must_look_again()}
        if rows is None:
            rows = [Row(each, registry.kinds[each.kind]) for each in state.rows]
        #: By space and name.
        self.rows: dict[Key, Row] = {}
        for row in rows:
            self.rows[row.key] = row
        #: Keys of entities that this batch has changed; only these rows are encoded again. When
        #: members were heard is no change. An extra key only costs time.
        self.touched: set[Key] = set()
        for row in self.rows.values() if stale else ():
            if row.key[0] in stale:
                row.look_at_once()
                self.touched.add(row.key)
        #: How many entities each space has.
        self._count_of = Counter(map(itemgetter(0), self.rows))
        #: Entities that were deleted in this batch; some may be there again.
        self._deleted: set[Key] = set()
        if stale or not noted:
            noted = [note([(row.key, row.facts, row.entry_bytes) for row in self.rows.values()])]
        self._agenda = Agenda(noted, settings.bounds.check_interval_ms)
        #: Entities with a deadline that is due and waits until what they have said can be seen.
        self._put_off: set[Key] = set()

    def row(self, name: str, space: str = "group") -> Row:
        """The row of an entity. Raises KeyError when there is none."""
        return self.rows[space, name]

    @property
    def channels(self) -> Channels:
        """Messages to and from other shards."""
        if self._channels is None:
            self._channels = Channels(self._before.channels)
        return self._channels

    @property
    def control(self) -> ControlRecords:
        """Which control records count."""
        if self._control is None:
            self._control = ControlRecords(self._before.control, self.settings)
        return self._control

    # -- one record ------------------------------------------------------------------------

    def judge(self, record: InputRecord) -> None:
        """Apply one record; older ones than the newest of their topic do nothing."""
        if record.topic != REQUESTS:
            self._judge_other_input(record)
            return
        if record.offset <= self.offset:
            return
        self._move_clock(record)
        request: Any = self._read(record)
        if isinstance(request, api.Request):
            key = request.entity
            row = self.rows.get(key)
            if not (
                type(request) is api.Heartbeat
                and row is not None
                and row.accepts_quietly(request, self.clock_ms)
            ):
                self._judge_request(self._at(record), key, request, record.value)
            return
        at = self._at(record)
        if isinstance(request, api.Control):
            request = self.control.judge(request, record)
        if isinstance(request, api.Control):
            self._obey(at, request)
        elif request is not None:
            self._reject(at, request, record.value)

    def _read(self, record: InputRecord) -> Any:
        """The request or control record that it has, or a Refusal."""
        if record.timestamp_ms == UNTRUSTED_TIME_MS:
            return refusals.without_time()
        request = self._request_of(record.value)
        if self.settings.set_aside:
            here = coordinate(record.topic, self.settings.shard, record.offset)
            return refusals.unless_set_aside(request, self.settings.set_aside.get(here))
        return request

    def _judge_other_input(self, record: InputRecord) -> None:
        """A record of an input that a family has brought."""
        if record.offset <= self._input_offsets[record.topic]:
            return
        self._input_offsets[record.topic] = record.offset
        self._newest = record
        at, request = self._at(record), self._read(record)
        if isinstance(request, Refusal):
            self._reject(at, request, record.value)
        elif why := refusals.why_not_here(self.registry.inputs[record.topic], request):
            refused = refusals.reject(request, ErrorCode.INVALID_REQUEST, why)
            self._reject(at, refused, record.value, type(request))
        else:
            self._judge_request(at, request.entity, request, record.value)

    def _move_clock(self, record: InputRecord) -> None:
        """Rules 1 and 2: move the clock, then do what is due, before the record is judged.

        A record without the broker's time stands still at the time before it.
        """
        agenda, timestamp_ms = self._agenda, record.timestamp_ms
        if timestamp_ms == UNTRUSTED_TIME_MS:
            timestamp_ms = self.previous_ms
        if self.offset < 0:
            self.clock_ms = timestamp_ms
        else:
            self.clock_ms = advance(self.clock_ms, self.previous_ms, timestamp_ms, agenda.cap_ms)
        self.previous_ms = timestamp_ms
        self.offset = record.offset
        self._newest = record
        due, looks, clock_ms = agenda.due, agenda.looks, self.clock_ms
        if (due and due[0][0] <= clock_ms) or (looks and looks[0][0] <= clock_ms):
            at = self._at(record)
            self._fire_due(at)
            self._look(at)

    def _at(self, record: InputRecord) -> At:
        """The place of a record of this shard."""
        time_ms, own = record.timestamp_ms, self.settings
        return At(
            own.shard,
            own.shards,
            record.topic,
            record.offset,
            self.previous_ms if time_ms == UNTRUSTED_TIME_MS else time_ms,
            self.clock_ms,
            own.incarnation,
            own.reply_partitions,
            coordinate(record.topic, own.shard, record.offset),
        )

    def _here(self) -> At:
        """The place of the record that was judged last."""
        return self._at(self._newest)

    def _judge_request(self, at: At, key: Key, request: api.Request, raw: bytes | None) -> None:
        """If that breaks, its entity is set aside and all others go on.  # INV-42"""
        row = self.rows.get(key)
        fault = None  # what is here belongs here: it was made by a request that was not misdirected
        if row is None or (request.reply or 0) >= self.settings.reply_partitions:
            fault = refusals.misdirected(request, self.settings, self.registry, row is not None)
        if fault is not None:
            self._reject(at, fault, raw, type(request))
            return
        if isinstance(request, api.ApiVersions):
            self._put(at, api_versions(at, request, self.registry, self.families.values()))
            return
        value = None if row is None else row.value
        try:
            if isinstance(request, api.ReleaseQuarantine):
                self._release(at, request, row)
            elif value is not None and value.is_quarantined:
                self._put(at, refusals.unavailable(request, at))
            else:
                self._handle(at, key, request, row, value, len(raw or b""))
        except Exception as problem:  # noqa: BLE001
            self._quarantine(at, key, problem, self.registry.only_kind(key[0], type(request)))
            self._put(at, refusals.unavailable(request, at))

    def _handle(
        self, at: At, key: Key, request: api.Request, row: Row | None, value: Any, size_bytes: int
    ) -> None:
        """An empty entity takes the kind of the next request that needs one."""
        what, asked = type(request), fx.SizedRequest(request, size_bytes)
        if row is None:
            kind = self.registry.first_kind(key[0], what)
            if kind is None:
                why = f"{what.__name__} does not apply to the space {key[0]}."
                self._reject(at, refusals.reject(request, ErrorCode.INVALID_REQUEST, why), None)
                return
            held = Current(None, None, self.registry.only_kind(key[0], what))
            self._step(at, key, kind.handlers[what], kind, held, asked)
            return
        own = row.kind
        kind = own if what in own.handlers else self.registry.first_kind(key[0], what)
        if kind is not None and (kind is own or (own.is_empty(value) and kind.adopts)):
            self._step(at, key, kind.handlers[what], kind, Current(value, own), asked)
        else:
            self._put(at, *refusals.inapplicable(request, at, own, value, kind))

    def _reject(
        self, at: At, refused: Refusal, raw: bytes | None, request: type[Any] | None = None
    ) -> None:
        """The answer to a record that changes nothing, and its line of history."""
        row = self.rows.get((refused.space, refused.group))
        kind = row.stored.kind if row else self.registry.only_kind(refused.space, request)
        self._put(at, *refusals.effects_of_refusal(at, refused, kind, raw))

    def _put(self, at: At, *effects: fx.Effect) -> None:
        self._outbox.put(effects, at)

    # -- one entity ------------------------------------------------------------------------

    def _step(
        self,
        at: At,
        key: Key,
        decide: Decide,
        kind: Kind,
        held: Current | None = None,
        asked: fx.SizedRequest | None = None,
    ) -> None:
        """Let an entity judge something; keep the outcome only if it is sound.  # INV-44

        `held`: its value, if it is known already. `asked`: `decide` judges this request.
        """
        row = self.rows.get(key)
        if row is not None:
            self.touched.add(key)
        if held is None:
            held = Current() if row is None else Current(row.value, row.kind)
        given = () if asked is None else (asked.request,)
        done = take(decide, given, kind, key[1], held, at, self._context(at, key, row, asked))
        if self.settings.checks_invariants and done.is_judged_by(kind):
            kind.check(done.value)
        effects = done.effects
        if row is not None and done.value is not None and done.kind is not row.kind:
            effects = [*effects, refusals.kind_changed(row, at, kind)]
        outputs, size_bytes = self._outbox.ready(effects, at)
        counted = fx.counted_bytes(size_bytes, asked) if size_bytes > fx.FREE_BYTES else 0
        may_wait = counted and not done.is_reaction and at.topic == REQUESTS
        if asked and may_wait and self._answered.must_wait(asked, counted, self._is_unread(row)):
            self._outbox.undo()
            self._step(at, key, partial(throttle_request, asked.request), kind, held)
            return
        if done.is_change or done.is_deleted:
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

    def _count(self, at: At, key: Key, size_bytes: int) -> None:
        """Outputs of a step that readers cannot see yet.  # INV-68"""
        if at.topic != REQUESTS:
            return
        self._answered.count(at.offset, size_bytes)
        if key in self.rows:
            self.touched.add(key)
            self.rows[key].stored.answered = at.offset

    def _context(
        self, at: At, key: Key, row: Row | None, asked: fx.SizedRequest | None
    ) -> StepContext:
        family, bytes_max = self.families[key[0]], self.settings.bounds.bytes_max
        return StepContext(
            row=row,
            tables=self.registry.tables[key[0]],
            may_create=row is not None or self._count_of[key[0]] < family.entities_max,
            room_bytes=bytes_max - self._agenda.size_bytes,
            reserve_bytes=bytes_max // limits.SHARD_RESERVE_SHARE,
            must_wait=never_waits
            if asked is None or at.topic != REQUESTS
            else partial(self._answered.would_wait, asked, self._is_unread(row)),
            family=family.context_of_new(at) if row is None else family.context,
            channels=lambda: self.channels,
        )

    def _is_unread(self, row: Row | None) -> bool:
        """Whether an entity has said something large that no tick covers yet."""
        return row is not None and row.stored.answered > self.published

    def _keep(self, at: At, key: Key, row: Row | None, done: Outcome) -> None:
        """Store what a step has come to, all of it or nothing."""
        if done.is_deleted and row is not None:
            self._forget(row)
        if done.value is None or done.kind is None or not done.is_change:
            return
        if row is not None:
            self._settle(row, done.value, done.touched, done.puts, done.kind)
            return
        row = Row(StoredRow(key[1], done.kind.NAME), done.kind)
        self._settle(row, done.value, done.touched, done.puts, done.kind)
        self.families[key[0]].created(at)
        self._count_of[key[0]] += 1
        self.rows[key] = row

    def _settle(
        self,
        row: Row,
        value: Any,
        touched: list[str],
        puts: Iterable[fx.Put] = (),
        kind: Kind | None = None,
    ) -> None:
        """Store an entity's new head and entries, and update the indexes that follow from it."""
        key, kind, before = row.key, kind or row.kind, row.stored.facts
        self.touched.add(key)
        found: dict[str, list[tuple[Any, Any]]] = {}
        for put in puts:
            found.setdefault(put.table, []).append((put.place, put.value))
        tables = self.registry.tables[kind.SPACE]
        changes: list[tuple[Table, list[tuple[Any, Any]]]]
        changes = [(tables[name], some) for name, some in found.items()]
        settings, entry_bytes = self.families[row.kind.SPACE].settings, row.entry_bytes
        row.settle(value, kind, row.known(settings, self.clock_ms), touched, changes)
        self._replaced(key, before, row.stored.facts, row.entry_bytes - entry_bytes)

    def _replaced(
        self, key: Key, before: Facts | None, after: Facts | None, entry_bytes: int
    ) -> None:
        self.touched.add(key)
        if before is not after:
            self._agenda.replace(key, before, after)
        self._agenda.size_bytes += entry_bytes

    def _forget(self, row: Row) -> None:
        """Drop the entity. Tombstones for its entries are already among the effects; that of its
        head is written at the end of the batch."""
        # It was empty, but an announced id may have waited in it.
        key = row.key
        self._replaced(key, row.facts, None, -row.entry_bytes)
        del self.rows[key]
        self._count_of[key[0]] -= 1
        self._deleted.add(key)

    def _refusals_of(self, key: Key) -> Refusals:
        row = self.rows.get(key)
        if row is None:
            return self._refusals
        self.touched.add(key)
        return row.stored.refusals

    # -- quarantine ------------------------------------------------------------------------

    def _quarantine(self, at: At, key: Key, problem: Exception, kind: str | None = None) -> None:
        """Keep the entity as it was before the step, and judge nothing of it any more."""
        row, generation = self.rows.get(key), -1
        if row is not None and row.value is not None:
            generation = row.kind.generation(row.value)
            self._settle(row, msgspec.structs.replace(row.value, is_quarantined=True), [])
        kind = row.stored.kind if row is not None else kind
        self._put(at, refusals.quarantined(key, kind, generation, at, problem))

    def _release(self, at: At, request: api.ReleaseQuarantine, row: Row | None) -> None:
        refused = refusals.refused_release(row)
        effects = refusals.effects_of_release(request, at, row, refused)
        if not refused and row is not None:
            freed = refusals.freed(row.kind, row.value, self.published, self.clock_ms)
            self._settle(row, freed, list(row.kind.sessions(row.value)))
        self._put(at, *effects)
        if not refused and row is not None:  # what the family learns has gone on meanwhile
            self._let(at, request.entity, row.kind.released)

    def _set_aside(self, row: Row, problem: Exception) -> None:
        """What cannot be written is saved as it was when the batch began; it is judged no more."""
        key, at, before = row.key, self._here(), row.facts
        generation, was_deleted = row.kind.generation(row.value), key in self._deleted
        try:
            saved = row.set_aside(at)
            self._replaced(key, before, row.facts, 0)
        except NothingToKeep:
            saved, row.stored.facts = None, before
            self._forget(row)
        if saved is not None or was_deleted:
            self._save(key, saved)
        self._put(at, refusals.quarantined(key, row.kind.NAME, generation, at, problem))

    # -- what is due -----------------------------------------------------------------------

    def _fire_due(self, at: At) -> None:
        """Rule 2: every deadline that is due, in order of time, then entity, kind, member.

        # INV-33
        """
        agenda = self._agenda
        fired: tuple[Key, Due] | None = None
        while agenda.has_due(self.clock_ms):
            bound_ms, key = agenda.pop()
            row = self.rows.get(key)
            if row is None or row.facts.next_due_ms != bound_ms or row.value is None:
                continue
            if self._answered.is_overfull or (self._answered.is_full and self._is_unread(row)):
                self._put_off.add(key)
                continue
            try:
                due = row.kind.next_due(row.value, row.heard)
                if fired == (key, due):
                    raise BrokenInvariant(f"{due.name} is due again when it has been done")
                if self._fire(at, key, row, due, bound_ms):
                    fired = key, due
            except Exception as problem:  # noqa: BLE001  INV-42
                self._quarantine(at, key, problem)
            if row.facts.next_due_ms == bound_ms:  # another one of the entity, equally due
                agenda.schedule(key, row.facts)

    def _fire(self, at: At, key: Key, row: Row, due: Due, bound_ms: int) -> bool:
        """Whether anything was due."""
        if due.due_ms == bound_ms:
            self._step(at, key, partial(row.kind.fire, due=due), row.kind)
            return True
        before = row.facts  # heartbeats have pushed it later since the bound was set
        row.is_due_at(due.due_ms)
        self._replaced(key, before, row.facts, 0)
        return False

    def _look(self, at: At) -> None:
        """What was due at the newest check goes; a look where something may be.

        Checks stand at fixed points of the clock: neither the cut into batches nor how often
        anybody looked can show.  # INV-02
        """
        agenda, interval_ms = self._agenda, self.settings.bounds.check_interval_ms
        checked_ms = self.clock_ms - self.clock_ms % interval_ms
        while agenda.has_look(checked_ms) and not self._answered.is_full:
            check_ms, key = agenda.pop_look()
            row = self.rows.get(key)
            if row is None or agenda.check_of(row.facts) != check_ms or row.value is None:
                continue
            if row.is_quarantined:
                before = row.facts
                row.rest()
                self._replaced(key, before, row.facts, 0)
                continue
            try:
                self._step(at, key, partial(row.kind.maintain, checked_ms=checked_ms), row.kind)
                if key in self.rows:
                    before = row.facts
                    settings = self.families[key[0]].settings
                    row.renew_by_entries(row.known(settings, self.clock_ms, has_looked=True))
                    row.look_after(checked_ms)
                    self._replaced(key, before, row.facts, 0)
                    agenda.schedule_look(key, row.facts)
            except Exception as problem:  # noqa: BLE001  INV-42
                self._quarantine(at, key, problem)

    def _cover(self, published: int) -> None:
        """Rule 3: what waited to be heard of starts now, and what waited for readers goes on."""
        if published <= self.published:
            return
        self.published = published
        self._answered.outputs_visible(published)
        for key in sorted(self._put_off):
            if key in self.rows:
                self._agenda.schedule(key, self.rows[key].facts)
        self._put_off.clear()
        for key in sorted(self._agenda.uncovered):
            row = self.rows[key]
            if not 0 <= row.facts.first_unread_offset <= published or row.value is None:
                continue
            try:
                value, heard_now = row.kind.outputs_visible(row.value, published, self.clock_ms)
                self._settle(row, value, heard_now)
            except Exception as problem:  # noqa: BLE001  INV-42
                self._quarantine(self._here(), key, problem)

    # -- records of the driver -------------------------------------------------------------

    def _obey(self, at: At, record: api.Control) -> None:
        """One that counts."""
        if isinstance(record, api.Tick):
            self._cover(min(record.published, at.offset - 1))
            self._confirm(at, record.heard or {})
        elif isinstance(record, api.FromShard):
            self._hear(at, record)
        else:
            self._learn(at, record)

    def _learn(self, at: At, record: api.Control) -> None:
        """A job record: the families that judge such records say which steps follow."""
        for space in self.registry.families_of(type(record)):
            try:
                follows = self._asked(space, partial(self.families[space].judge, record))
            except Exception as problem:  # noqa: BLE001  INV-42: a defect, and the log must go on
                self._complain(at, record, _not_judged(record, problem))
                continue
            for name, decide in follows:
                if isinstance(record, api.TxnDecided) and self._answered.is_overfull:
                    return  # the shard's status still names the others: the driver says it again
                if isinstance(decide, Exception):
                    self._quarantine(at, (space, name), decide)
                else:
                    self._let(at, (space, name), decide, type(record) in self.families[space].NOTED)

    def _asked(
        self, space: str, ask: Callable[[Iterable[tuple[str, Row]]], Iterable[Any]]
    ) -> list[Any]:
        """What a family says to its rows. It may find anew by what it finds them: no more."""
        shown: list[tuple[Row, Facts]] = []

        def show() -> Iterator[tuple[str, Row]]:
            for key, row in self.rows.items():
                if key[0] == space:
                    shown.append((row, row.facts))
                    yield key[1], row

        try:
            return list(ask(show()))
        finally:
            self.touched.update(row.key for row, facts in shown if row.facts is not facts)

    def _let(self, at: At, key: Key, decide: Decide, is_noted: bool = False) -> None:
        """A step that no request asked for; `is_noted`: also of an entity that is set aside."""
        row = self.rows.get(key)
        if row is None or row.value is None or (row.is_quarantined and not is_noted):
            return
        try:
            self._step(at, key, decide, row.kind)
        except Exception as problem:  # noqa: BLE001  INV-42
            self._quarantine(at, key, problem)

    def _complain(self, at: At, record: api.Control, why: str) -> None:
        refused = refusals.reject(record, ErrorCode.UNKNOWN_SERVER_ERROR, why)
        self._reject(at, refused, None)

    # -- messages of shards ----------------------------------------------------------------

    def _hear(self, at: At, record: api.FromShard) -> None:
        """The next message of a shard is judged; one that was judged before does nothing.  # INV-95

        A message is not judged while the shard has too many `UnreadOutputs`, nor behind a gap (an
        earlier message was dropped, or is missing from the log), nor if this code cannot read it.
        It waits in the outbox, and the driver feeds it again.
        """
        missing = self.channels.gap_before(record.source, record.seq)
        if missing or self._answered.is_overfull:
            return  # it was judged, or it waits in the outbox: the driver feeds it again
        try:
            message: Message = self.registry.read_message(record.body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
            self._complain(at, record, _not_judged(record, problem))
            return
        self.channels.hear(record.source, record.seq)
        self._deliver(at, record, message)

    def _deliver(self, at: At, record: api.FromShard, message: Message) -> None:
        """An entity judges a message. If that breaks, the entity is set aside, and then the message
        is judged once more: it does not come again."""
        key, what = message.entity, type(message)
        row = self.rows.get(key)
        kind = self.registry.first_to_hear(key[0], what) if row is None else row.kind
        handler = None if kind is None else kind.MESSAGES.get(what)
        if kind is None or handler is None:
            self._complain(at, record, f"Nothing in the space {key[0]} judges {what.__name__}.")
            return
        try:
            self._judge_message(at, key, kind, partial(_judged, handler, message))
        except Exception as problem:  # noqa: BLE001  INV-42
            self._complain(at, record, _not_judged(record, problem))

    def _judge_message(self, at: At, key: Key, kind: Kind, decide: Decide) -> None:
        """Raises what the handler raises for an entity that is set aside, or for none."""
        try:
            self._step(at, key, decide, kind)
        except Exception as problem:
            row = self.rows.get(key)
            if row is None or row.is_quarantined:
                raise
            self._quarantine(at, key, problem)
            self._step(at, key, decide, kind)

    def _confirm(self, at: At, heard: Mapping[int, int]) -> None:
        """Shards have judged messages: they are withdrawn, and what waited for that goes on."""
        for shard, number in sorted(heard.items()):
            news = self.channels.confirm(shard, number)
            if not news:
                continue
            self._put(at, *(fx.ToShard(shard, each, None) for each in news))
            for space in self.registry.families:
                for name, decide in self._waited(at, space, shard, news[-1]):
                    self._let(at, (space, name), decide)

    def _waited(self, at: At, space: str, shard: int, number: int) -> list[tuple[str, Decide]]:
        try:
            return self._asked(space, partial(self.families[space].heard, shard, number))
        except Exception as problem:  # noqa: BLE001  INV-42: a defect, and the log must go on
            why = f"Messages to {shard} could not be confirmed: {type(problem).__name__}."
            self._reject(at, Refusal(error=ErrorCode.UNKNOWN_SERVER_ERROR, message=why), None)
            return []

    # -- the end of a batch ----------------------------------------------------------------

    def close(self) -> list[Output]:
        """What is written once per batch: saved heads that changed, and Progress."""
        for key in sorted(self.touched):
            row = self.rows.get(key)
            if row is None:
                if key in self._deleted:  # else it was not made in the end
                    self._save(key, None)
            elif row.changed and row.value is not None:
                try:
                    row.encode_head()
                    self._save(key, row.kind.save(row.value))
                except Exception as problem:  # noqa: BLE001  INV-67: a defect, the others go on
                    self._set_aside(row, problem)
        shard = self.settings.shard
        if self._channels is not None:
            self.outputs.extend(route(each, shard) for each in self._channels.saved())
        if self.offset > self._first_offset:
            done = api.Progress(shard=shard, offset=self.offset, time_ms=self.previous_ms)
            for reply in sorted(self._agenda.replies):
                self.outputs.append(route(fx.Notify(reply, done), shard))
        return self.outputs

    def _save(self, key: Key, saved: bytes | None) -> None:
        """The record of a head; None: a tombstone."""
        family = self.registry.families[key[0]]
        effect = fx.Save(family.HEADS, family.head_key(key[1]), saved)
        self.outputs.append(route(effect, self.settings.shard))

    def encode(self, has_rows: bool = True) -> bytes:
        """The blob; without rows, if they are stored elsewhere."""
        used, rows, known = self._channels, self.rows if has_rows else {}, self.families
        channels = self._before.channels if used is None else used.stored()
        position = self._position
        families = {
            space: known[space].state() for space in self.registry.stateful if space in known
        }
        return encode_blob(position, rows, families, self._refusals, channels)

    def status(self) -> Status:
        """What the driver must know."""
        agenda, heard = self._agenda, {}
        if self._channels is not None or self._before.channels is not None:
            heard = self.channels.heard
        owed = max(self._answered.owed, max(agenda.waits.values(), default=-1))
        reports = [decode_report(each) for each in agenda.reports.values()]
        return Status(
            shard=self.settings.shard,
            position=self._position,
            cap_ms=agenda.cap_ms,
            has_deadline=owed >= 0 or agenda.deadlines > 0,
            owed=owed,
            undecided=tuple(sorted(offset for each in reports for offset in each)),
            heard=heard,
        )

    @property
    def _position(self) -> stored.ShardPosition:
        control = self._control
        return stored.ShardPosition(
            clock_ms=self.clock_ms,
            previous_ms=self.previous_ms,
            offsets={REQUESTS: self.offset, **self._input_offsets},
            published=self.published,
            answered=self._answered.rows,
            control=self._before.control if control is None else control.newest,
        )


def _judged(handler: Any, message: Message, step: Any) -> None:
    handler(step, message)


def _not_judged(record: api.Control, problem: Exception) -> str:
    return f"{type(record).__name__} could not be judged: {type(problem).__name__}."

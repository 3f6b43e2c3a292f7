"""The entities of a shard while a batch is judged: indexes, what is due, records of the driver.

Deadlines, looks, messages and records of the job's driver are steps of one entity each, and so is
all that `fold.py` lets entities judge. One that breaks sets its entity aside, and all others go on.
# INV-42
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from coordlib.core.engine import effects as fx
from coordlib.core.engine import refusals
from coordlib.core.engine.channels import Channels
from coordlib.core.engine.effects import REQUESTS, At, Key, Refusals
from coordlib.core.engine.outputs import Answered, Asked, Outbox, bytes_max, counted_bytes
from coordlib.core.engine.protocol import Family, Registry
from coordlib.core.engine.rows import Agenda, Noted, NothingToKeep, Row, note
from coordlib.core.engine.state import ShardSettings, StoredShard, StoredWithChannels
from coordlib.core.engine.step import (
    NOT_INDEXED,
    Around,
    BrokenInvariant,
    Decide,
    Facts,
    Kind,
    Known,
)
from coordlib.core.engine.tables import Entries, Table
from coordlib.core.engine.time import Due
from coordlib.core.wire import api as rq
from coordlib.core.wire import codec
from coordlib.core.wire.envelope import Message
from coordlib.errors import ErrorCode

T = TypeVar("T")


class _Families(dict[str, Family]):
    """By space; made when they are asked for."""

    def __init__(self, make: Callable[[str, StoredShard], Family], state: StoredShard) -> None:
        super().__init__()
        self._make, self._state = make, state

    def __missing__(self, space: str) -> Family:
        made = self[space] = self._make(space, self._state)
        return made


class Rows(ABC):
    """All of them. Owned by one fold; never shared."""

    def __init__(
        self,
        state: StoredWithChannels,
        settings: ShardSettings,
        registry: Registry,
        rows: Iterable[Row] | None = None,
        noted: Collection[Noted] = (),
    ) -> None:
        """`rows`: in the place of those of `state`, and what the agenda has of them."""
        self.settings, self.registry = settings, registry
        self._refusals = state.refusals
        self._outbox = Outbox(settings.shard, self._refusals_of)
        #: The clipped log clock.  # INV-06
        self.clock_ms = state.clock_ms
        #: Newest record whose outputs can be read, by the newest tick.
        self.published = state.published
        self._answered = Answered(state.answered, bytes_max(settings.shards))
        #: Made when they are asked for: most batches of most shards use none.
        self._channels: Channels | None = None
        self._stored_channels = state.channels
        #: What the families have beside their entities, by space. One that keeps nothing is made
        #: when it is asked for: it costs the entities of others nothing.
        self.families = _Families(self._make_family, state)
        for space in registry.stateful:
            if space in state.families or registry.families[space].IS_ALWAYS_STORED:
                self.families[space]
        stale = {space for space, each in self.families.items() if each.must_look_again()}
        if rows is None:
            rows = [Row(stored, registry.kinds[stored.kind]) for stored in state.rows]
        #: By space and name.
        self.rows: dict[Key, Row] = {}
        for row in rows:
            self.rows[row.key] = row
        #: Whom this batch let judge something, or changed in another way: nobody else's row differs
        #: from what it was, but for when members were heard. A mark too many costs time alone.
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
            known: list[tuple[Key, Facts, int]] = []
            for row in self.rows.values():
                known.append((row.key, row.facts, row.entry_bytes))
            noted = [note(known)]
        self._agenda = Agenda(noted, settings.look_interval_ms)
        #: Entities with a deadline that is due and waits until what they have said can be seen.
        self._put_off: set[Key] = set()

    def _make_family(self, space: str, state: StoredShard) -> Family:
        family = self.registry.families[space]
        return family(state.families.get(space, NOT_INDEXED), self.settings.of(family))

    def row(self, name: str, space: str = "group") -> Row:
        """The row of an entity. Raises KeyError when there is none."""
        return self.rows[space, name]

    def _rows_of(self, space: str) -> Iterable[tuple[str, Row]]:
        return ((key[1], row) for key, row in self.rows.items() if key[0] == space)

    def _asked(
        self, space: str, ask: Callable[[Iterable[tuple[str, Row]]], Iterable[T]]
    ) -> list[T]:
        """What a family says to its rows. It may find anew by what it finds them: no more."""
        shown: list[tuple[Row, Facts]] = []

        def show() -> Iterator[tuple[str, Row]]:
            for name, row in self._rows_of(space):
                shown.append((row, row.facts))
                yield name, row

        try:
            return list(ask(show()))
        finally:
            self.touched.update(row.key for row, facts in shown if row.facts is not facts)

    @property
    def channels(self) -> Channels:
        """Messages to and from other shards."""
        if self._channels is None:
            self._channels = Channels(self._stored_channels)
        return self._channels

    @abstractmethod
    def _step(self, at: At, key: Key, decide: Any, kind: Kind) -> None:
        """Let an entity judge something; keep the outcome only if it is sound."""

    @abstractmethod
    def _here(self) -> At:
        """The place of the record that was judged last."""

    @abstractmethod
    def _quarantine(self, at: At, key: Key, problem: Exception, kind: str | None = None) -> None:
        """Keep the entity as it was before the step, and judge nothing of it any more."""

    # -- rows ------------------------------------------------------------------------------

    def _settle(
        self,
        row: Row,
        value: Any,
        touched: list[str],
        puts: Iterable[fx.Put] = (),
        kind: Kind | None = None,
    ) -> None:
        """Store an entity's new head and entries, and update the indexes that follow from it."""
        key, known, entry_bytes = row.key, self._known(row), row.entry_bytes
        self.touched.add(key)
        kind = kind or row.kind
        row.settle(value, kind, known, touched, self._by_table(kind, puts) if puts else ())
        self._replaced(key, known.facts, row.facts, row.entry_bytes - entry_bytes)

    def _by_table(
        self, kind: Kind, puts: Iterable[fx.Put]
    ) -> Iterable[tuple[Table, list[tuple[Any, Any]]]]:
        tables = self.registry.tables[kind.SPACE]
        found: dict[str, list[tuple[Any, Any]]] = {}
        for put in puts:
            found.setdefault(put.table, []).append((put.place, put.value))
        return [(tables[name], changes) for name, changes in found.items()]

    def _replaced(
        self, key: Key, before: Facts | None, after: Facts | None, entry_bytes: int
    ) -> None:
        self.touched.add(key)
        if before is not after:
            self._agenda.replace(key, before, after)
        self._agenda.size_bytes += entry_bytes

    def _known(self, row: Row) -> Known:
        settings = self.families[row.kind.SPACE].settings
        return Known(row, settings, self.clock_ms, row.value, row.facts, row.counts)

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

    def _count(self, at: At, key: Key, size_bytes: int) -> None:
        """Outputs of a step that readers cannot see yet.  # INV-68"""
        if at.topic != REQUESTS:
            return
        self._answered.count(at.offset, size_bytes)
        if key in self.rows:
            self.touched.add(key)
            self.rows[key].stored.answered = at.offset

    def _set_aside(self, row: Row, problem: Exception) -> None:
        """What cannot be written is saved as it was when the batch began; it is judged no more."""
        key, at, before = row.key, self._here(), row.facts
        family = self.registry.families[row.kind.SPACE]
        generation, was_deleted = row.kind.generation(row.value), key in self._deleted
        try:
            saved = row.set_aside(at)
            self._replaced(key, before, row.facts, 0)
        except NothingToKeep:
            saved, row.stored.facts = None, before
            self._forget(row)
        if saved is not None or was_deleted:
            self._outbox.put_saved(family, key[1], saved)
        self._put(at, refusals.quarantined(key, row.kind.NAME, generation, at, problem))

    def _put(self, at: At, *effects: fx.Effect) -> None:
        self._outbox.put(effects, at)

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

    def _around(self, at: At, key: Key, row: Row | None, asked: Asked | None) -> Around:
        shard_bytes_max, family = self.settings.bounds.bytes_max, self.families[key[0]]
        return Around(
            entries=row.entries if row else Entries,
            tables=self.registry.tables[key[0]],
            heard=row.heard if row else {},
            may_create=row is not None or self._count_of[key[0]] < family.entities_max,
            room_bytes=shard_bytes_max - self._agenda.size_bytes,
            shard_bytes_max=shard_bytes_max,
            must_wait=lambda said: self._must_wait(at, asked, row, counted_bytes(said, asked)),
            family=family.around(at, row is None),
            channels=lambda: self.channels,
        )

    def _must_wait(self, at: At, asked: Asked | None, row: Row | None, counted: int) -> bool:
        """Whether a step is put off that says so much that counts; without a request none is."""
        if asked is None or at.topic != REQUESTS:
            return False
        return self._answered.must_wait(asked, counted, self._is_unread(row))

    def _is_unread(self, row: Row | None) -> bool:
        """Whether an entity has said something large that no tick covers yet."""
        return row is not None and row.stored.answered > self.published

    def _look(self, at: At) -> None:
        """What was due at the newest check goes; a look where something may be.

        Checks stand at fixed points of the clock: neither the cut into batches nor how often
        anybody looked can show.  # INV-02
        """
        agenda, interval_ms = self._agenda, self.settings.look_interval_ms
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
                self._step(at, key, partial(row.kind.look, checked_ms=checked_ms), row.kind)
                if key in self.rows:
                    before = row.facts
                    row.renew_by_entries(self._known(row)._replace(has_looked=True))
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
        self._answered.cover(published)
        for key in sorted(self._put_off):
            if key in self.rows:
                self._agenda.schedule(key, self.rows[key].facts)
        self._put_off.clear()
        for key in sorted(self._agenda.uncovered):
            row = self.rows[key]
            if not 0 <= row.facts.waits_from <= published or row.value is None:
                continue
            try:
                value, heard_now = row.kind.cover(row.value, published, self.clock_ms)
                self._settle(row, value, heard_now)
            except Exception as problem:  # noqa: BLE001  INV-42
                self._quarantine(self._here(), key, problem)


class DriverRecords(Rows):
    """What follows from them, in the entities of this shard."""

    @abstractmethod
    def _reject(self, at: At, refused: codec.Refusal, value: bytes | None) -> None:
        """A line of history about a record that changes nothing."""

    def _obey(self, at: At, record: rq.Control) -> None:
        """One that counts."""
        if isinstance(record, rq.Tick):
            self._cover(min(record.published, at.offset - 1))
            self._confirm(at, record.heard or {})
        elif isinstance(record, rq.FromShard):
            self._hear(at, record)
        else:
            self._learn(at, record)

    def _learn(self, at: At, record: rq.Control) -> None:
        """A job record: the families that judge such records say which steps follow."""
        for space in self.registry.families_of(type(record)):
            try:
                follows = self._asked(space, partial(self.families[space].judge, record))
            except Exception as problem:  # noqa: BLE001  INV-42: a defect, and the log must go on
                self._complain(at, record, _not_judged(record, problem))
                continue
            for name, decide in follows:
                if isinstance(record, rq.TxnDecided) and self._answered.is_overfull:
                    return  # the shard's status still names the others: the driver says it again
                if isinstance(decide, Exception):
                    self._quarantine(at, (space, name), decide)
                else:
                    self._let(at, (space, name), decide, type(record) in self.families[space].NOTED)

    def _let(self, at: At, key: Key, decide: Decide, is_noted: bool = False) -> None:
        """A step that no request asked for; `is_noted`: also of an entity that is set aside."""
        row = self.rows.get(key)
        if row is None or row.value is None or (row.is_quarantined and not is_noted):
            return
        try:
            self._step(at, key, decide, row.kind)
        except Exception as problem:  # noqa: BLE001  INV-42
            self._quarantine(at, key, problem)

    def _complain(self, at: At, record: rq.Control, why: str) -> None:
        refused = refusals.reject(record, ErrorCode.UNKNOWN_SERVER_ERROR, why)
        self._reject(at, refused, None)

    # -- messages of shards ----------------------------------------------------------------

    def _hear(self, at: At, record: rq.FromShard) -> None:
        """The next message of a shard is judged; one that was judged before does nothing.  # INV-95

        None is judged while too much cannot be read that the shard has said (answered.py), and none
        behind a gap: those before it were dropped so, or a log did not take one. One that cannot be
        read is not judged either: it was sent by newer code, and so are those behind it. They wait
        in the outbox until such code reads them.
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

    def _deliver(self, at: At, record: rq.FromShard, message: Message) -> None:
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
            self._reject(at, codec.Refusal(error=ErrorCode.UNKNOWN_SERVER_ERROR, message=why), None)
            return []


def _judged(handler: Any, message: Message, step: Any) -> None:
    handler(step, message)


def _not_judged(record: rq.Control, problem: Exception) -> str:
    return f"{type(record).__name__} could not be judged: {type(problem).__name__}."

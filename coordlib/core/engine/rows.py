"""The rows of a shard while a batch is judged: the indexes over them, and what is due.

Deadlines, looks and questions that can be heard are steps of one entity each, and so is all that
`shard.py` lets entities judge. One that breaks sets its entity aside, and all others go on.
# INV-42
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

from coordlib.core.engine import effect as fx
from coordlib.core.engine import quarantine
from coordlib.core.engine.agenda import Agenda, Noted, note
from coordlib.core.engine.answered import Answered, Asked, bytes_max, counted_bytes
from coordlib.core.engine.blob import ShardSettings, StoredShard, StoredWithChannels
from coordlib.core.engine.channels import Channels
from coordlib.core.engine.clock import Due
from coordlib.core.engine.family import Family, Registry
from coordlib.core.engine.kind import NOT_INDEXED, Facts, Kind, Known
from coordlib.core.engine.outbox import Outbox
from coordlib.core.engine.refusal_lines import Refusals
from coordlib.core.engine.row import NothingToKeep, Row
from coordlib.core.engine.step import Around, BrokenInvariant
from coordlib.core.engine.table import Entries, Table
from coordlib.core.engine.transition import REQUESTS, At, Key

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
        self._put(at, quarantine.recorded(key, row.kind.NAME, generation, at, problem))

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

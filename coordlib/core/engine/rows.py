"""An entity's row in its shard: head, soft state and entries, each decoded only when touched.

Most rows of a batch see heartbeats only, or nothing at all. So the row carries, outside the encoded
head, the facts by which the shard decides without decoding it. `Agenda` is an index over the facts
of all rows; everything in it can be recomputed from the rows.  # INV-15

In a row of a page the times when members were heard stand in the page's times, for all rows
together. A heartbeat changes one number there. So a batch that has heard everybody writes the times
anew, and no row.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, KeysView, Mapping, Set
from copy import copy
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine.effects import At, BrokenInvariant, Key, Refusals
from coordlib.core.engine.step import ANY_GENERATION, NOT_INDEXED, Facts, Kind, Known
from coordlib.core.engine.tables import NO_ENTRIES, Change, Entries, Place, StoredTable, Table
from coordlib.core.engine.time import NEVER
from coordlib.core.wire import api

_decode_heard: Final = msgspec.msgpack.Decoder(dict[str, int]).decode
_encode: Final = msgspec.msgpack.Encoder().encode
_EMPTY_MAP: Final = msgspec.Raw(_encode({}))


class NothingToKeep(Exception):
    """An entity of this batch that nobody can write, and that was not there before."""


class StoredRow(msgspec.Struct, array_like=True, gc=False):
    """A row as it stands in the shard's blob."""

    name: str
    kind: str
    facts: Facts = Facts()
    #: When each member was last heard, on the shard's clock. In a page: the members' ids alone.
    heard: msgspec.Raw = _EMPTY_MAP
    head: msgspec.Raw = msgspec.Raw(b"")
    #: Entries beside the head, by table; none is empty.
    tables: dict[str, StoredTable] = {}
    #: Counts of refused requests that history does not list one by one.
    refusals: Refusals = msgspec.field(default_factory=Refusals)
    #: The newest record with outputs that count (`effects.UnreadOutputs`); -1: none.
    answered: int = -1


class Row:
    """A row while a batch is judged."""

    __slots__ = (
        "_at_start",
        "_entries",
        "_heard",
        "_is_encoded",
        "_value",
        "changed",
        "key",
        "kind",
        "stored",
    )

    def __init__(self, stored: StoredRow, kind: Kind) -> None:
        self.stored, self.kind = stored, kind
        #: Its space and name.
        self.key: Key = (kind.SPACE, stored.name)
        self._value: Any = None
        self._heard: dict[str, int] | None = None
        self._entries: dict[str, Entries] = {}
        #: Whether the head changed in this batch, and whether the row has it.
        self.changed = False
        self._is_encoded = False
        #: Kind and head of the row when the batch began, once either was replaced.
        self._at_start: tuple[Kind, msgspec.Raw] | None = None

    @property
    def facts(self) -> Facts:
        """What is known without decoding anything."""
        return self.stored.facts

    @property
    def value(self) -> Any:
        """The head, as its kind has it; None: not made yet."""
        if self._value is None and len(self.stored.head):
            self._value = self.kind.decode(self.stored.head)
        return self._value

    @property
    def is_quarantined(self) -> bool:
        """Whether an operator has to let it go on."""
        value = self.value
        return value is not None and value.is_quarantined

    @property
    def heard(self) -> Mapping[str, int]:
        """When each member was last heard, on the shard's clock. Has exactly the members."""
        return self._own_heard()

    def _own_heard(self) -> dict[str, int]:
        """The same, to be changed."""
        if self._heard is None:
            self._heard = _decode_heard(self.stored.heard)
        return self._heard

    def accepts_quietly(self, request: api.Heartbeat, clock_ms: int) -> bool:
        """A healthy heartbeat: remember when, and nothing else."""
        heard = self._heard  # asked first: this runs for every heartbeat
        if heard is None:
            heard = self._own_heard()
        if not self._is_healthy(request, heard):
            return False
        heard[request.member] = clock_ms
        return True

    def _is_healthy(self, request: api.Heartbeat, members: Container[str]) -> bool:
        facts = self.stored.facts
        if facts.fast_path_generation not in (request.generation, ANY_GENERATION):
            return False
        if request.generation < 0 or request.member not in members:
            return False
        instance = request.instance
        return instance is None or facts.instances.get(instance) == request.member

    # -- tables ----------------------------------------------------------------------------

    def entries(self, table: Table) -> Entries:
        """The entries of a table."""
        found = self._entries.get(table.name)
        if found is None:
            found = Entries(table, self.stored.tables.get(table.name))
            self._entries[table.name] = found
        return found

    def count(self, table: Table) -> int:
        """How many entries a table has; reads none of them."""
        kept = self.stored.tables.get(table.name)
        return kept.count if kept else 0

    @property
    def counts(self) -> dict[str, int]:
        """How many entries each table has that has any."""
        return {name: table.count for name, table in self.stored.tables.items() if table.count}

    @property
    def entry_bytes(self) -> int:
        """Upper bound of what all tables have in the blob."""
        tables = self.stored.tables
        return sum(table.size_bytes for table in tables.values()) if tables else 0

    def apply(self, table: Table, changes: Iterable[tuple[Place, Any]]) -> list[Change]:
        """Store or forget entries of one table, as the topic has them, all or none of them.

        Returns what puts them back, for `put_back`.
        """
        entries, before = self.entries(table), []
        try:
            for place, value in changes:
                before.append((place, entries.apply(place, value)))
        except Exception:
            self.put_back(table, before)
            raise
        self._count_again(table)
        return before

    def put_back(self, table: Table, before: list[Change]) -> None:
        """As if `apply` had not been called."""
        entries = self.entries(table)
        for place, kept in reversed(before):
            entries.set(place, kept)
        self._count_again(table)

    def _count_again(self, table: Table) -> None:
        entries, tables = self.entries(table), self.stored.tables
        blocks = tables[table.name].blocks if table.name in tables else NO_ENTRIES
        stored = StoredTable(entries.count, entries.size_bytes, blocks)
        self.stored.tables = {**tables, table.name: stored}  # another one: `settle` keeps the old

    # -- the head --------------------------------------------------------------------------

    def known(self, settings: Any, clock_ms: int, has_looked: bool = False) -> Known:
        """What its kind may use for new facts beside the value; `settings`: its family's."""
        return Known(
            self,
            settings,
            clock_ms,
            self.value,
            self.stored.facts,
            self.counts,
            has_looked=has_looked,
        )

    def settle(
        self,
        value: Any,
        kind: Kind,
        known: Known,
        touched: Iterable[str],
        puts: Iterable[tuple[Table, list[tuple[Place, Any]]]] = (),
    ) -> None:
        """Store the value and the entries of a step and renew the facts, whole or not at all.

        Raises BrokenInvariant if nobody could write it, and whatever its kind or a table raises.
        """
        before = (copy(self.stored), self.kind, self._value, self._heard, self.changed)
        heard = self._heard or {}
        times = [(member, heard[member]) for member in touched if member in heard]
        undo: list[tuple[Table, list[Change]]] = []
        try:
            self._take_over(value, kind, known, touched)
            for table, changes in puts:
                undo.append((table, self.apply(table, changes)))
            if undo:
                put = {table.name: changed for table, changed in undo}
                now = known._replace(value=self.value, facts=self.facts, put=put)
                self.renew_by_entries(now)
        except Exception:
            for table, entries in reversed(undo):
                self.put_back(table, entries)
            self.stored, self.kind, self._value, self._heard, self.changed = before
            heard.update(times)
            raise

    def _take_over(self, value: Any, kind: Kind, known: Known, touched: Iterable[str]) -> None:
        if value is self._value:
            self._touch(touched, known.clock_ms)
            return
        if kind is not self.kind:
            self._note_start()
            self.kind, self.stored.kind = kind, kind.NAME
        self.set_value(value, known, touched)
        if self.facts.size_bytes > limits.RECORD_BYTES_MAX // 2 and not value.is_quarantined:
            check_writable(kind, value, known.value)

    def set_value(self, value: Any, known: Known, touched: Iterable[str] = ()) -> None:
        """Store a head that was written before, and its facts."""
        self._value = value
        self.changed, self._is_encoded = True, False
        sessions, heard = self._sessions(value), self._own_heard()
        if heard.keys() != sessions:
            in_order = sessions if isinstance(sessions, KeysView) else sorted(sessions)  # INV-03
            self._heard = {member: heard.get(member, known.clock_ms) for member in in_order}
        self._touch(touched, known.clock_ms)
        # Not for `touched` alone: the bounds stay valid, and renewing them only when the value
        # happened to change earlier in this batch would show the cut in the bytes.  # INV-02
        self._renew(value, known)

    def _touch(self, members: Iterable[str], clock_ms: int) -> None:
        heard = self._own_heard()
        for member in members:
            if member in heard:
                heard[member] = clock_ms

    def renew_by_entries(self, known: Known) -> None:
        """New facts, after its entries changed or were looked at, and nothing else."""
        if self.value is not None:
            self._renew(self.value, known)

    def _renew(self, value: Any, known: Known) -> None:
        try:
            facts = self.kind.facts(value, known)
        except Exception:
            if not value.is_quarantined:
                raise
            facts = known.facts  # perhaps the defect for which it is set aside: it must succeed
        self.stored.facts = facts.at_rest() if value.is_quarantined else facts

    def _sessions(self, value: Any) -> Set[str]:
        try:
            return self.kind.sessions(value)
        except Exception:
            if not value.is_quarantined:
                raise
            return self.heard.keys()

    def is_due_at(self, due_ms: int) -> None:
        """The earliest deadline is later than the bound was: members were heard."""
        self.stored.facts = replace(self.stored.facts, next_due_ms=due_ms)

    def rest(self) -> None:
        """It is set aside: nothing is due, and no look finds anything."""
        self.stored.facts = self.stored.facts.at_rest()

    def look_after(self, checked_ms: int) -> None:
        """A look at this check has left something that is due: the next check sees it again."""
        if self.facts.next_maintenance_ms <= checked_ms:
            self.stored.facts = replace(self.stored.facts, next_maintenance_ms=checked_ms + 1)

    def look_at_once(self) -> None:
        """Settings changed by which the bound of the next look was found."""
        self.stored.facts = replace(self.stored.facts, next_maintenance_ms=0)

    # -- bytes -----------------------------------------------------------------------------

    def encode_head(self) -> None:
        """Put the head into the row if it changed. Called once when the batch ends."""
        if self.changed and not self._is_encoded:
            head = msgspec.Raw(self.kind.encode(self._value))
            self._note_start()
            self.stored.head, self._is_encoded = head, True

    def _note_start(self) -> None:
        if self._at_start is None:
            self._at_start = self.kind, self.stored.head

    def set_aside(self, at: At) -> bytes | None:
        """Quarantine what cannot be written; the saved head as it can be written.

        Steps that would leave such a value fail by themselves, so this is for defects. The row
        keeps what the members were told, if it can; the topic gets what it had when the batch
        began, which is what a rebuild would go on from. An entity that was made since is saved as
        a new one. None: there is nothing that could be written, and the topic keeps what it has.

        Raises NothingToKeep: the entity was made in this batch, and its kind can encode nothing.
        """
        kind, head = self._at_start or (self.kind, self.stored.head)
        before = kind.decode(head) if len(head) else _made_anew(kind, self.stored.name, at)
        kept = [(self.kind, self._value), *([] if before is None else [(kind, before)])]
        if not any(self._can_freeze(*each) for each in kept):
            if not len(head):
                raise NothingToKeep(self.stored.name)
            self._freeze(kind, before)
            self.stored.head, self._is_encoded = head, True  # as it was, and at rest until asked
            return None
        try:
            return None if before is None else kind.save(replace(before, is_quarantined=True))
        except Exception:  # noqa: BLE001  whatever it is, the batch must end
            return None

    def _can_freeze(self, kind: Kind, value: Any) -> bool:
        try:
            self._freeze(kind, replace(value, is_quarantined=True))
            self.encode_head()
        except Exception:  # noqa: BLE001  whatever it is, the batch must end
            return False
        return True

    def _freeze(self, kind: Kind, value: Any) -> None:
        """Nothing is due, and nothing is judged."""
        self.kind, self.stored.kind = kind, kind.NAME
        self._value, self._is_encoded, self.changed = value, False, True
        self.stored.facts = self.stored.facts.at_rest()

    def encoded(self) -> StoredRow:
        """The row with everything that was decoded encoded again; equal content, equal bytes."""
        row = self.stored
        if self._value is not None:
            self.encode_head()
        if self._heard is not None:
            row.heard = msgspec.Raw(_encode(self._heard))
        if self._entries:
            tables = {**row.tables, **{name: each.stored() for name, each in self._entries.items()}}
            row.tables = {name: tables[name] for name in sorted(tables) if tables[name].count}
        return row


def _made_anew(kind: Kind, name: str, at: At) -> Any:
    try:
        return kind.create(name, at)
    except Exception:  # noqa: BLE001  whatever it is, the batch must end
        return None


def check_writable(kind: Kind, value: Any, before: Any) -> None:
    """Raise BrokenInvariant if a step has made a head larger than its record may be.  # INV-67

    The step then fails, and what is kept is the head before it: however the log is cut, as no
    check at the end of a batch could promise. Whatever admission lets through is smaller, so this
    is for what nobody has thought of. To shrink is allowed. Only heads that are large in the blob
    are checked: in JSON they have at most twice as many bytes.
    """
    size_bytes = len(kind.save(value))
    if size_bytes <= limits.RECORD_BYTES_MAX:
        return
    if before is None or size_bytes > len(kind.save(before)):
        raise BrokenInvariant(f"{kind.name_of(value)}: its record would have {size_bytes} bytes")


_decode_members: Final = msgspec.msgpack.Decoder(list[str]).decode
NO_TIMES: Final = array("q")


class HeardByPlace(Mapping[str, int]):
    """When each member of a row was heard, read from the page's times one by one.

    Each step is given it, and few steps look: a copy would cost a refused request of an entity
    with 1,000 members more than all its judging.
    """

    __slots__ = ("_row",)

    def __init__(self, row: "PageRow") -> None:
        self._row = row

    def __getitem__(self, member: str) -> int:
        return self._row.heard_ms(member)

    def __iter__(self) -> Iterator[str]:
        return iter(self._row.places)

    def __len__(self) -> int:
        return len(self._row.places)


class PageRow(Row):
    """As any row; `stored.heard` has the members' ids alone."""

    __slots__ = ("_base", "_times", "places")

    def __init__(self, stored: StoredRow, kind: Kind) -> None:
        super().__init__(stored, kind)
        #: Where each member has its time, from `_base` on.
        self.places = {each: at for at, each in enumerate(_decode_members(stored.heard))}
        self._times, self._base = NO_TIMES, 0

    def move(self, times: "array[int]", is_new: bool = False) -> None:
        """Have its place at the end of these times; `is_new`: nobody was heard yet."""
        heard, base = [0] * len(self.places) if is_new else self._heard_by_place(), len(times)
        times.extend(heard)
        self._times, self._base = times, base

    def _heard_by_place(self) -> "array[int]":
        return self._times[self._base : self._base + len(self.places)]

    @property
    def heard(self) -> Mapping[str, int]:
        """When each member was last heard; as it is now, since heartbeats change the times."""
        return HeardByPlace(self) if self._heard is None else self._heard

    def heard_ms(self, member: str) -> int:
        """When this member was heard, by the times. Raises KeyError for a stranger."""
        return self._times[self._base + self.places[member]]

    def _own_heard(self) -> dict[str, int]:
        if self._heard is None:
            self._heard = dict(zip(self.places, self._heard_by_place(), strict=True))
        return self._heard

    def accepts_quietly(self, request: api.Heartbeat, clock_ms: int) -> bool:
        """A healthy heartbeat; it leaves no trace but in the times, unless a step came before."""
        if self._heard is not None:
            return super().accepts_quietly(request, clock_ms)
        if not self._is_healthy(request, self.places):
            return False
        self._times[self._base + self.places[request.member]] = clock_ms
        return True

    def encoded(self) -> StoredRow:
        """As a blob has it."""
        self._own_heard()
        return super().encoded()


def page_row(row: Row, times: "array[int]") -> PageRow:
    """A row as a batch finds it that reads it from its page, with its times at the end of these.

    Nothing else is left of it, so that it makes no difference whether it was read or kept.
    """
    stored, heard = row.encoded(), row.heard
    stored.heard = msgspec.Raw(_encode(list(heard)))
    fresh = PageRow(stored, row.kind)
    fresh._times = array("q", heard.values())
    fresh.move(times)
    return fresh


class Noted(NamedTuple):
    """What some rows add to an agenda. Never changed: an agenda has lists of its own."""

    #: (not later than the earliest deadline, key), of rows that have one.
    due: list[tuple[int, Key]]
    #: (not later than the first time at which a look may find something, key), likewise.
    looks: list[tuple[int, Key]]
    #: (key, highest record whose answers somebody must be able to read first), likewise.
    waits: list[tuple[Key, int]]
    #: (key, requests whose transactions have to be asked about), likewise.
    reports: list[tuple[Key, msgspec.Raw]]
    #: Shortest timeouts of those who have any.
    timeouts: list[int]
    #: Partitions of the answers that members read, of each row.
    replies: list[tuple[int, ...]]
    #: Of all rows together.
    size_bytes: int


def note(rows: Collection[tuple[Key, Facts, int]]) -> Noted:
    """`rows`: key, facts, and the bytes of the row's tables."""
    return Noted(
        [(facts.next_due_ms, key) for key, facts, _ in rows if facts.next_due_ms < NEVER],
        [
            (facts.next_maintenance_ms, key)
            for key, facts, _ in rows
            if facts.next_maintenance_ms < NEVER
        ],
        [
            (key, facts.last_unread_offset)
            for key, facts, _ in rows
            if facts.first_unread_offset >= 0
        ],
        [(key, facts.report) for key, facts, _ in rows if facts.report != NOT_INDEXED],
        [facts.timeout_ms for _, facts, _ in rows if facts.timeout_ms],
        [facts.replies for _, facts, _ in rows],
        sum(facts.size_bytes + entries for _, facts, entries in rows),
    )


class Agenda:
    """An index over the facts of a shard's rows, kept in step by `replace`."""

    __slots__ = (
        "_check_interval_ms",
        "_replies",
        "_timeouts",
        "cap_ms",
        "deadlines",
        "due",
        "looks",
        "reports",
        "size_bytes",
        "waits",
    )

    def __init__(self, noted: Collection[Noted], check_interval_ms: int) -> None:
        self._check_interval_ms = check_interval_ms
        #: (not later than the earliest deadline, key); may be stale, the row's facts decide.
        self.due = list(chain.from_iterable(each.due for each in noted))
        #: How many entities have a deadline.
        self.deadlines = len(self.due)
        heapify(self.due)
        #: (check at which a look may find something, key); likewise. No deadline, so no tick is
        #: written for it.
        self.looks = [
            (self._check(next_maintenance_ms), key)
            for each in noted
            for next_maintenance_ms, key in each.looks
        ]
        heapify(self.looks)
        #: Entities that wait for a covering tick, and up to which record.
        self.waits = dict(chain.from_iterable(each.waits for each in noted))
        #: What entities report to the driver.
        self.reports = dict(chain.from_iterable(each.reports for each in noted))
        #: How many entities have which shortest timeout.
        self._timeouts = Counter(chain.from_iterable(each.timeouts for each in noted))
        #: How many entities have members that read the answers of these partitions.
        self._replies = Counter(chain.from_iterable(each.replies for each in noted))
        #: Rule 1: the longest step of the clock.
        self.cap_ms = self._find_cap()
        #: Upper bound of what the rows have in the blob.
        self.size_bytes = sum(each.size_bytes for each in noted)

    @property
    def uncovered(self) -> Set[Key]:
        """Entities that wait for a covering tick."""
        return self.waits.keys()

    @property
    def replies(self) -> set[int]:
        """Partitions of the answers that members read."""
        return {reply for some, count in self._replies.items() if count for reply in some}

    def replace(self, key: Key, before: Facts | None, after: Facts | None) -> None:
        """A row has other facts now; None: it was not there before, or is gone.

        What is left in the heaps of a row that is gone names nobody.
        """
        self.size_bytes += (after.size_bytes if after else 0) - (before.size_bytes if before else 0)
        self._count(before, after)
        if after is None or after.first_unread_offset < 0:
            self.waits.pop(key, None)
        else:
            self.waits[key] = after.last_unread_offset
        if after is None or after.report == NOT_INDEXED:
            self.reports.pop(key, None)
        else:
            self.reports[key] = after.report
        if after is None:
            return
        if before is None or after.next_due_ms != before.next_due_ms:
            self.schedule(key, after)
        if before is None or after.next_maintenance_ms != before.next_maintenance_ms:
            self.schedule_look(key, after)

    def _count(self, before: Facts | None, after: Facts | None) -> None:
        timeout_before_ms = before.timeout_ms if before else 0
        timeout_ms = after.timeout_ms if after else 0
        if timeout_ms != timeout_before_ms:
            self._timeouts[timeout_before_ms] -= 1
            self._timeouts[timeout_ms] += 1
            self.cap_ms = self._find_cap()
        for facts, one in ((before, -1), (after, 1)):
            if facts is not None:
                self.deadlines += one if facts.next_due_ms < NEVER else 0
                self._replies[facts.replies] += one

    def schedule(self, key: Key, facts: Facts) -> None:
        if facts.next_due_ms < NEVER:
            heappush(self.due, (facts.next_due_ms, key))

    def schedule_look(self, key: Key, facts: Facts) -> None:
        if facts.next_maintenance_ms < NEVER:
            heappush(self.looks, (self.check_of(facts), key))

    def check_of(self, facts: Facts) -> int:
        """The first check that is not before the row's bound."""
        return self._check(facts.next_maintenance_ms)

    def _check(self, next_maintenance_ms: int) -> int:
        return -(-next_maintenance_ms // self._check_interval_ms) * self._check_interval_ms

    def has_look(self, clock_ms: int) -> bool:
        return bool(self.looks) and self.looks[0][0] <= clock_ms

    def pop_look(self) -> tuple[int, Key]:
        return heappop(self.looks)

    def has_due(self, clock_ms: int) -> bool:
        return bool(self.due) and self.due[0][0] <= clock_ms

    def pop(self) -> tuple[int, Key]:
        """The earliest bound, and whose it was when it was noted."""
        return heappop(self.due)

    def _find_cap(self) -> int:
        """A fifth of the shortest timeout of any live member."""
        shortest = min((ms for ms, count in self._timeouts.items() if ms and count), default=0)
        return shortest // 5 if shortest else limits.CLOCK_CAP_IDLE_MS

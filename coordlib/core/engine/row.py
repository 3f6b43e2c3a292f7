"""An entity's row in its shard: head, soft state and entries, each decoded only when touched.

Most rows of a batch see heartbeats only, or nothing at all. So the row carries, outside the encoded
head, the facts by which the shard decides without decoding it.
"""

from collections.abc import Container, Iterable, KeysView, Mapping, Set
from copy import copy
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine.kind import ANY_GENERATION, Facts, Kind, Known
from coordlib.core.engine.refusal_lines import Refusals
from coordlib.core.engine.step import BrokenInvariant
from coordlib.core.engine.table import NO_ENTRIES, Change, Entries, Place, StoredTable, Table
from coordlib.core.engine.transition import At, Key
from coordlib.core.wire import requests as rq

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
    #: The newest record by which the entity has said something large (answered.py); -1: none.
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

    def takes(self, kind: Kind) -> bool:
        """Whether this kind may judge it: its own, or another one while the entity is empty."""
        return kind is self.kind or (self.kind.is_empty(self.value) and kind.adopts)

    def accepts_quietly(self, request: rq.Heartbeat, clock_ms: int) -> bool:
        """A healthy heartbeat: remember when, and nothing else."""
        heard = self._heard  # asked first: this runs for every heartbeat
        if heard is None:
            heard = self._own_heard()
        if not self._is_healthy(request, heard):
            return False
        heard[request.member] = clock_ms
        return True

    def _is_healthy(self, request: rq.Heartbeat, members: Container[str]) -> bool:
        facts = self.stored.facts
        if facts.quiet not in (request.generation, ANY_GENERATION):
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

    def reindex(self, index: msgspec.Raw) -> None:
        """What the family finds it by was found anew."""
        self.stored.facts = replace(self.stored.facts, index=index)

    def is_due_at(self, due_ms: int) -> None:
        """The earliest deadline is later than the bound was: members were heard."""
        self.stored.facts = replace(self.stored.facts, next_due_ms=due_ms)

    def rest(self) -> None:
        """It is set aside: nothing is due, and no look finds anything."""
        self.stored.facts = self.stored.facts.at_rest()

    def look_after(self, checked_ms: int) -> None:
        """A look at this check has left something that is due: the next check sees it again."""
        if self.facts.look_at_ms <= checked_ms:
            self.stored.facts = replace(self.stored.facts, look_at_ms=checked_ms + 1)

    def look_at_once(self) -> None:
        """Settings changed by which the bound of the next look was found."""
        self.stored.facts = replace(self.stored.facts, look_at_ms=0)

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
    is for what nobody has thought of. To shrink is allowed. Asked only for heads that are large in
    the blob: in JSON they have at most twice as many bytes.
    """
    size_bytes = len(kind.save(value))
    if size_bytes <= limits.RECORD_BYTES_MAX:
        return
    if before is None or size_bytes > len(kind.save(before)):
        raise BrokenInvariant(f"{kind.name_of(value)}: its record would have {size_bytes} bytes")

"""What the shard asks of what it runs: a *kind* of entity, and the facts about one of its values.

An entity (a consumer group, for one) has a *head*: one frozen value, written whole when it changed.
Small rows beside it stand in tables (`table.py`). A kind says which requests it judges, what the
shard must know of a value without decoding it (`Facts`), and what follows from a deadline. Kinds
that share names and state are a *family* (`family.py`).
"""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

import msgspec

from coordlib.core.engine import common
from coordlib.core.engine.clock import NEVER, Due
from coordlib.core.engine.step import Step
from coordlib.core.engine.transition import At
from coordlib.core.wire import requests as rq
from coordlib.core.wire.envelope import Message

if TYPE_CHECKING:
    from coordlib.core.engine.table import Change, Entries, Table

#: One step of an entity: it changes the step's value, or refuses.
Handler = Callable[[Any, Any], None]

#: No heartbeat is accepted without judging it.
NO_GENERATION: Final = -1
#: A live member's heartbeats are, whatever generation they name (rule 13).
ANY_GENERATION: Final = -2
#: nil: what a family may want to index is not known.
NOT_INDEXED: Final = msgspec.Raw(b"\xc0")


class Facts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the shard knows of a value without decoding it. Kept in the row; see `Kind.facts`."""

    #: Generation whose heartbeats change nothing but when a member was heard; or NO_ or ANY_.
    quiet: int = NO_GENERATION
    #: Not later than the earliest deadline, on the shard's clock.
    next_due_ms: int = NEVER
    #: Lowest and highest record whose answers somebody must be able to read first; -1: none.
    waits_from: int = -1
    waits_to: int = -1
    #: Shortest timeout of anybody who is waited for; 0: nobody (rule 1).
    timeout_ms: int = 0
    #: Partitions of the answers that members read.
    replies: tuple[int, ...] = ()
    #: Not later than the first time at which `Kind.look` may find something to do.
    look_at_ms: int = NEVER
    #: Upper bound of the row in the shard's blob, without its tables; by the value alone.
    size_bytes: int = 0
    #: Instance id of each static member to its member id.
    instances: dict[str, str] = {}
    #: What the family finds entities by, opaque to the shard.
    index: msgspec.Raw = NOT_INDEXED
    #: Requests whose transactions of Kafka the driver has to ask about, by offset; nil: none.
    report: msgspec.Raw = NOT_INDEXED

    def at_rest(self) -> "Facts":
        """Of an entity that is set aside: nothing is due, and nobody is waited for."""
        return msgspec.structs.replace(
            self,
            quiet=NO_GENERATION,
            next_due_ms=NEVER,
            waits_from=-1,
            waits_to=-1,
            timeout_ms=0,
            look_at_ms=NEVER,
        )


class RowView(Protocol):
    """As much of a row as a kind may read for its facts."""

    @property
    def heard(self) -> Mapping[str, int]:
        """When each member was last heard, on the shard's clock."""

    def count(self, table: "Table") -> int:
        """How many entries a table has; reads none of them."""

    def entries(self, table: "Table") -> "Entries":
        """The entries of a table."""


class Known(NamedTuple):
    """What a kind may use for new facts beside the value."""

    row: RowView
    #: The family's (`Family.SETTINGS`).
    settings: Any
    clock_ms: int
    #: The value and the facts before. Equal to the value of now: only its tables changed.
    value: Any
    facts: Facts
    #: How many entries each table had before, if it had any, by the table's name.
    counts: Mapping[str, int]
    #: The entries that were put or forgotten, by table, and what they were before.
    put: "Mapping[str, Sequence[Change]]" = MappingProxyType({})
    #: Whether `Kind.look` has just been called.
    has_looked: bool = False


class UnknownSavedVersion(ValueError):
    """A value was saved by other code; nothing else can read it."""


class Kind:
    """A kind of entity; one object, which keeps no state. The defaults are those of a kind
    without members, deadlines or tables.

    Values are frozen structs of the kind's own type, with the fields `v`, `group` and
    `is_quarantined`, and tagged with the kind's name (`tag_field="kind"`).
    """

    #: What rows of the shard, saved values and history call it.
    NAME: ClassVar[str]
    #: The space of its names; one for all kinds of a family.
    SPACE: ClassVar[str] = "group"
    #: Type of its values.
    VALUE: ClassVar[type[msgspec.Struct]]
    #: Version of its saved values, in their field `v`.
    SAVED_VERSION: ClassVar[int] = 1
    STEP: ClassVar[type[Step[Any]]] = Step
    #: The requests that it judges, beside those that every kind answers (`common.py`).
    APIS: ClassVar[Mapping[type[rq.Request], Handler]]
    #: The messages of shards that it judges (`channels.py`). A message is judged also while its
    #: entity is set aside, since it does not come again: its handler must see to that itself, and
    #: change no more then than entries of tables.
    MESSAGES: ClassVar[Mapping[type[Message], Handler]] = {}
    #: Its tables. They are the family's: an entity keeps them when its kind changes.
    TABLES: ClassVar["tuple[Table, ...]"] = ()
    #: What must happen before one of its entities can be deleted; None: as the error says.
    WHILE_NOT_EMPTY: ClassVar[str | None] = None

    @cached_property
    def handlers(self) -> Mapping[type[rq.Request], Handler]:
        """All requests that it judges."""
        return {**common.APIS, **self.APIS}

    # -- bytes -----------------------------------------------------------------------------

    @cached_property
    def decode(self) -> Callable[[bytes | memoryview], Any]:
        """From the shard's blob."""
        return msgspec.msgpack.Decoder(self.VALUE).decode

    @cached_property
    def encode(self) -> Callable[[Any], bytes]:
        """To the shard's blob; equal values, equal bytes."""
        return msgspec.msgpack.Encoder().encode

    @cached_property
    def _decode_saved(self) -> Callable[[bytes], Any]:
        return msgspec.json.Decoder(self.VALUE).decode

    def load(self, saved: bytes) -> Any:
        """From the compacted topic. Raises UnknownSavedVersion, msgspec.MsgspecError.

        A decoder ignores fields that it does not know: the fields of newer code would be lost.
        """
        value = self._decode_saved(saved)
        if value.v != self.SAVED_VERSION:
            raise UnknownSavedVersion(
                f"{self.name_of(value)} was saved with version {value.v}, this code knows "
                f"{self.SAVED_VERSION}: start the code that wrote it."
            )
        return value

    @cached_property
    def save(self) -> Callable[[Any], bytes]:
        """To the compacted topic."""
        return msgspec.json.Encoder().encode

    # -- values ----------------------------------------------------------------------------

    def create(self, name: str, at: At) -> Any:
        """The value of an entity that has just been made."""
        raise NotImplementedError(f"{self.NAME}: no step makes {name}, {at.coordinate}")

    @property
    def adopts(self) -> bool:
        """Whether an empty entity of another kind of the family may become one of this."""
        return type(self).adopt is not Kind.adopt

    def adopt(self, value: Any, at: At) -> Any:
        """An empty entity of another kind of the family as one of this kind."""
        raise NotImplementedError(f"{self.NAME} takes nothing over: {value}, {at.coordinate}")

    def is_empty(self, value: Any) -> bool:
        """Whether another kind of the family may take the entity over, and it may be deleted."""
        return not self.sessions(value)

    def name_of(self, value: Any) -> str:
        """How messages name an entity."""
        return f"{self.NAME} {getattr(value, 'group', '')}".strip()

    def generation(self, value: Any) -> int:
        """What lines of history give as the generation; -1: it has none."""
        return getattr(value, "generation", -1)

    def sessions(self, _: Any) -> Set[str]:
        """The member ids whose heartbeats count. Soft state has exactly these."""
        return frozenset()

    def facts(self, value: Any, known: Known) -> Facts:
        """What the shard must know of a value. Asked for when it, or its tables, have changed.

        An entry that is put must not cost what grows with the head: where `known.value` is the
        value itself, start from `known.facts`.
        """
        raise NotImplementedError(f"{self.NAME}: {value}, {known.facts}")

    def next_due(self, _value: Any, _heard: Mapping[str, int]) -> Due:
        """Its earliest deadline. `Facts.next_due_ms` may be earlier, since members were heard."""
        return Due(NEVER)

    def fire(self, step: Any, due: Due) -> None:
        """Do what follows from a deadline; all others that are due may be done with it.

        Sets `step.cause` to `due.name`, which history gives as the cause.
        """
        raise NotImplementedError(f"{self.NAME}: {due.name} of {step.name}")

    def cover(self, value: Any, _published: int, _clock_ms: int) -> tuple[Any, list[str]]:
        """Start what waited for answers to be visible; and the members heard of by that."""
        return value, []

    def restart(self, value: Any, _clock_ms: int) -> Any:
        """Give everything that runs its full time again."""
        return value

    def look(self, _step: Any, checked_ms: int) -> None:
        """Do what was due at a check: retention, expiry of ids. No tick is written for it."""

    def released(self, step: Any) -> None:
        """An operator lets the entity go on: catch up with what the family has learnt."""

    def check(self, value: Any) -> None:
        """Raise BrokenInvariant when the value contradicts itself."""

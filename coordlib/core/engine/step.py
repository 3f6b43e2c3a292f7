"""A step in the making.

`step(state, event) -> (state, effects)` is pure at its edges: heads are frozen values. Inside one
step a `Step` holds the value as it stands by now and collects what should happen. When a step fails
half-way it is thrown away, and the entity is as it was before.

Here is what all kinds have in common; a kind may add its own in a class of its own.

`take` runs a step. It changes nothing: the shard writes the effects, and then stores what the
outcome has, every entry whose change was acknowledged, also where the head is the same as before.
# INV-22
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine import effect as fx
from coordlib.core.engine import transition
from coordlib.core.engine.transition import At
from coordlib.core.wire import requests as rq
from coordlib.core.wire import stored
from coordlib.core.wire.envelope import Message
from coordlib.errors import ErrorCode

if TYPE_CHECKING:
    from coordlib.core.engine.channels import Channels
    from coordlib.core.engine.kind import Kind
    from coordlib.core.engine.table import Entries, Place, Table

#: For the sender of a request that would make one entity more than a shard may hold.
SHARD_IS_FULL: Final = (
    "Delete groups, or other entities, that nobody needs, or raise groups_per_shard_max: "
    "this shard is full."
)
#: For the sender of a request that would make the shard's state larger than it may be.
SHARD_IS_TOO_LARGE: Final = (
    "Delete groups, or other entities, that nobody needs, or raise shard.bytes_max: "
    "this shard's state is full."
)


class BrokenInvariant(AssertionError):
    """A step would leave a state that must not exist; the entity is quarantined instead."""


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What a step may read beside its value and its record."""

    #: The entries of a table of this entity.
    entries: "Callable[[Table], Entries]"
    #: The family's tables, by name.
    tables: "Mapping[str, Table]" = MappingProxyType({})
    #: When each member's newest request was judged, on the shard's clock. Read only.
    heard: Mapping[str, int] = MappingProxyType({})
    #: Whether the shard has room for one more entity.
    may_create: bool = True
    #: How many bytes more the shard takes of new entities and members.
    room_bytes: int = limits.SHARD_BYTES_MAX
    #: How many bytes a shard may have.
    shard_bytes_max: int = limits.SHARD_BYTES_MAX
    #: Whether the request would be refused for now if it wrote so many bytes (answered.py).
    must_wait: "Callable[[int], bool] | None" = None
    #: What the family has beside its entities; see `Family.around`.
    family: Any = None
    #: Messages to and from other shards. Read only; None: there are no other shards.
    channels: "Callable[[], Channels] | None" = None


V = TypeVar("V")


class Step(Generic[V]):
    """One entity during one step."""

    __slots__ = (
        "around",
        "at",
        "cause",
        "effects",
        "family",
        "is_deleted",
        "is_reaction",
        "kind",
        "live",
        "name",
        "puts",
        "sends",
        "touched",
        "value",
    )

    #: Errors for which the published design of the protocol has a name of its own.
    DESIGN_ERRORS: ClassVar[Mapping[ErrorCode, str]] = MappingProxyType({})

    def __init__(self, kind: "Kind", name: str, value: V | None, at: At, around: Around) -> None:
        self.kind = kind
        self.name = name
        self.hold(value)
        #: Whether this step deleted the entity; then `value` is None.
        self.is_deleted = False
        #: Whether the coordinator asked for just this, by a date. The sender's fence takes it for
        #: done when the log has it (rule 10), so it is not refused for now (answered.py).
        self.is_reaction = False
        self.at = at
        #: What history gives as the cause: the record's coordinate, or a deadline's name.
        self.cause = at.coordinate
        self.effects: list[fx.Effect] = []
        #: The entries that this step has put by now, by table and place.
        self.puts: dict[tuple[str, Place], Any] = {}
        #: The messages that this step has sent by now.
        self.sends: list[fx.ToShard] = []
        #: Members whose session starts anew with this step.
        self.touched: list[str] = []
        self.around = around
        #: What the family has beside its entities; see `Family.around`.
        self.family = around.family

    def hold(self, value: V | None) -> None:
        """Put this value in the place of the one before; None: there is no entity."""
        self.value = value
        #: The value where it exists by now. Elsewhere it is None: a step that goes on all the same
        #: breaks at its first field.
        self.live: V = value  # type: ignore[assignment]

    @property
    def heard(self) -> Mapping[str, int]:
        """When each member's newest request was judged, on the shard's clock. Read only."""
        return self.around.heard

    @property
    def may_create(self) -> bool:
        """Whether the shard has room for one more entity."""
        return self.around.may_create

    @property
    def room_bytes(self) -> int:
        """How many bytes more the shard takes of new entities and members."""
        return self.around.room_bytes

    def must_wait(self, said_bytes: int) -> bool:
        """Whether a request that writes so much is put off, before it has changed anything."""
        ask = self.around.must_wait
        return ask is not None and ask(said_bytes)

    def room_for(self, is_known: bool) -> int:
        """How many bytes more the shard takes of a sender; below 0 it is fuller than it may be.

        A quarter is kept for members: their groups go on when a flood has filled the rest.
        """
        reserve = self.around.shard_bytes_max // limits.SHARD_RESERVE_SHARE
        return self.room_bytes + (reserve if is_known else 0)

    def change(self, **fields: Any) -> None:
        """Replace fields of the value; a kind says which ones have methods of their own."""
        self.hold(replace(self.live, **fields))  # type: ignore[type-var]  # values are structs

    def create(self, reason: str) -> None:
        """An entity without members and entries."""
        self.hold(self.kind.create(self.name, self.at))
        self.record(stored.EVENT_GROUP_CREATED, reason=reason)

    def delete(self) -> None:
        """The last that a step does to an entity: no request finds it any more."""
        self.hold(None)
        self.is_deleted = True

    # -- entries ---------------------------------------------------------------------------

    def entries(self, table: "Table") -> "Entries":
        """The entries of a table as they were before this step."""
        return self.around.entries(table)

    def entry(self, table: "Table", name: str, number: int) -> Any:
        """An entry as this step has left it by now, as the blob keeps it; None: there is none."""
        place = (table.name, (name, number))
        if place not in self.puts:
            return self.entries(table).get(name, number)
        value = self.puts[place]
        return None if value is None else table.keep(value)

    def put_entry(self, table: "Table", place: "Place", value: msgspec.Struct | None) -> None:
        """Store an entry if the step goes through; None: forget it."""
        key = table.key(self.name, place)
        self.puts[table.name, place] = value
        self.emit(fx.Put(table.topic, key, self.name, table.name, place, value))

    def forget_entries(self, table: "Table | None" = None) -> None:
        """Forget all entries, of one table or of all that the family has; also those just put.

        What the step has forgotten already is not forgotten once more.
        """
        for each in [table] if table else self.around.tables.values():
            puts = {place: value for (name, place), value in self.puts.items() if name == each.name}
            places = {(name, number) for name, number, _ in self.entries(each)} - puts.keys()
            places |= {place for place, value in puts.items() if value is not None}
            for place in sorted(places):
                self.put_entry(each, place, None)

    # -- messages --------------------------------------------------------------------------

    @property
    def channels(self) -> "Channels":
        """The channels as they were before this step. Read only."""
        assert self.around.channels is not None, "a shard gives its steps the channels"
        return self.around.channels()

    def send(self, shard: int, message: Message) -> int:
        """Let a shard judge this, if the step goes through; the number of the message to it."""
        own = sum(each.shard == shard for each in self.sends)
        sent = fx.ToShard(shard, self.channels.sent_to(shard) + own + 1, message)
        self.sends.append(sent)
        self.emit(sent)
        return sent.number

    # -- effects ---------------------------------------------------------------------------

    def emit(self, effect: fx.Effect) -> None:
        """Let something happen, after all that was emitted before, if the step goes through."""
        self.effects.append(effect)

    def answer(
        self,
        request: rq.Request,
        reply: int | None = None,
        **fields: Any,
    ) -> None:
        """Answer the request of this record, now."""
        self.effects.append(transition.answer(request, self.at, reply, **fields))

    def refuse(
        self,
        request: rq.Request,
        code: ErrorCode,
        message: str | None = None,
        **fields: Any,
    ) -> None:
        """Answer the request of this record with an error; the value stays as it is.  # INV-24

        Where the published design has a name of its own for the error, the answer has that, too.
        """
        if code in self.DESIGN_ERRORS:
            fields.setdefault("design_error", self.DESIGN_ERRORS[code])
        self.effects.append(transition.refuse(request, self.at, code, message, **fields))
        steps = request.UNTOLD_REFUSALS
        if steps is not None and code not in steps:
            named = fields.get("member") or getattr(request, "member", None)
            self.record_refused(request, code, message, member=named or "")

    def record_refused(
        self,
        request: rq.Request,
        code: ErrorCode,
        message: str | None = None,
        member: str = "",
        **detail: Any,
    ) -> None:
        """Record in the history which request was refused, and with which answer.

        One request, at most one such line: nobody can make history grow faster than the log.
        """
        told = transition.refusal(code, message)
        self.record(
            stored.EVENT_REQUEST_REJECTED,
            member=member,
            reason=told["message"],
            detail={
                "error": told["error"],
                "request": type(request).__name__,
                "client": request.client,
                **detail,
            },
        )

    def record(self, type_: str, **fields: Any) -> None:
        """A line of history about this entity."""
        generation = -1 if self.value is None else self.kind.generation(self.value)
        fields.setdefault("generation", generation)
        self.effects.append(
            fx.History(
                type=type_,
                space=self.kind.SPACE,
                group=self.name,
                cause=self.cause,
                kind=self.kind.NAME,
                **fields,
            )
        )


Decide = Callable[[Step[Any]], None]


class Held(NamedTuple):
    """What the shard has of an entity before a step; nothing: it is not there."""

    value: Any = None
    kind: "Kind | None" = None


class Outcome(NamedTuple):
    """What a step came to, if it went through."""

    #: The value after the step; None: there is none.
    value: Any
    #: The kind of that value; None: there is none.
    kind: "Kind | None"
    effects: list[fx.Effect]
    #: Of the effects, the entries to store or to forget.
    puts: list[fx.Put]
    #: Of the effects, the messages to shards.
    sends: list[fx.ToShard]
    #: Members whose session starts anew.
    touched: list[str]
    is_deleted: bool
    #: Whether there is anything to store.
    is_change: bool
    #: Whether a member did what it was asked for: that never waits for readers (`answered.py`).
    is_reaction: bool

    def is_judged_by(self, kind: "Kind") -> bool:
        """Whether there is a value of this kind now that must be sound.

        One that is set aside need not be: perhaps that is why it is.
        """
        return self.value is not None and self.kind is kind and not self.value.is_quarantined


def take(
    decide: Decide,
    kind: "Kind",
    name: str,
    held: Held,
    at: At,
    around: Around,
    named: str | None,
) -> Outcome:
    """Let a kind judge for an entity, or for none; `named`: what history names if none is made."""
    value = held.value
    before = value if held.kind in (None, kind) else kind.adopt(value, at)
    step = kind.STEP(kind, name, before, at, around)
    decide(step)
    # An empty entity of another kind that was judged and did not change keeps its kind.
    after = value if step.value is before else step.value
    found = kind if after is not None and after is not value else held.kind
    told = found.NAME if found else named
    if step.is_deleted and step.value is not None:
        raise BrokenInvariant(f"{name}: it was deleted and made anew in one step")
    puts = _puts(step)
    return Outcome(
        value=after,
        kind=found,
        effects=step.effects if told == kind.NAME else _named(step.effects, told),
        puts=puts,
        sends=step.sends,
        touched=step.touched,
        is_deleted=step.is_deleted,
        is_change=after is not value or bool(step.touched or puts),
        is_reaction=step.is_reaction,
    )


def _named(effects: list[fx.Effect], kind: str | None) -> list[fx.Effect]:
    """The effects of a step, with another kind in its history than the one that judged.

    A kind may judge for no entity, or for an empty one of another kind, and change nothing.
    """
    return [
        replace(effect, kind=kind) if isinstance(effect, fx.History) else effect
        for effect in effects
    ]


def _puts(step: Step[Any]) -> list[fx.Put]:
    """The entries of a step. Raises BrokenInvariant when no entity would keep them.  # INV-44"""
    found = [effect for effect in step.effects if isinstance(effect, fx.Put)]
    if not found:
        return found
    if step.value is None and not step.is_deleted:
        raise BrokenInvariant(f"{step.name}: entries were put for no entity")
    if any(effect.entity != step.name for effect in found):
        raise BrokenInvariant(f"{step.name}: entries of another entity were put")
    return found

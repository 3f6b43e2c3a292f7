"""A step in the making.

`step(state, event) -> (state, effects)` is pure at its edges: heads are frozen values. Inside one
step a `Step` holds the value as it stands by now and collects what should happen. When a step fails
half-way it is thrown away, and the entity is as it was before.

Here is what all kinds have in common; a kind may add its own in a class of its own.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from coordlib import limits
from coordlib.coordinators.shard import transition
from coordlib.coordinators.shard.transition import At
from coordlib.effects import effect as fx
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import stored

if TYPE_CHECKING:
    from coordlib.coordinators.shard.kind import Kind
    from coordlib.coordinators.shard.table import Entries, Place, Table

#: For the sender of a request that would make one entity more than a shard may hold.
SHARD_IS_FULL: Final = (
    "Delete groups that nobody needs, or raise groups_per_shard_max: this shard is full."
)
#: For the sender of a request that would make the shard's state larger than it may be.
SHARD_IS_TOO_LARGE: Final = (
    "Delete groups that nobody needs, or raise shard_bytes_max: this shard's state is full."
)


class BrokenInvariant(AssertionError):
    """A step would leave a state that must not exist; the entity is quarantined instead."""


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What a step may read beside its value and its record."""

    #: The entries of a table of this entity.
    entries: "Callable[[Table], Entries]"
    #: When each member was last heard, on the shard's clock. Read only.
    heard: Mapping[str, int] = MappingProxyType({})
    #: Whether the shard has room for one more entity.
    may_create: bool = True
    #: How many bytes more the shard takes of new entities and members.
    room_bytes: int = limits.SHARD_BYTES_MAX
    #: How many bytes a shard may have.
    shard_bytes_max: int = limits.SHARD_BYTES_MAX
    #: What the family has beside its entities; see `Family.around`.
    family: Any = None


V = TypeVar("V")


class Step(Generic[V]):
    """One entity during one step."""

    __slots__ = (
        "around",
        "at",
        "cause",
        "effects",
        "is_deleted",
        "is_reaction",
        "kind",
        "name",
        "touched",
        "value",
    )

    def __init__(self, kind: "Kind", name: str, value: V | None, at: At, around: Around) -> None:
        self.kind = kind
        self.name = name
        self.value = value
        #: Whether this step deleted the entity; then `value` is None.
        self.is_deleted = False
        #: Whether the coordinator asked for just this, by a date. The sender's fence takes it for
        #: done when the log has it (rule 10), so it is not refused for now (answered.py).
        self.is_reaction = False
        self.at = at
        #: What history gives as the cause: the record's coordinate, or a deadline's name.
        self.cause = at.coordinate
        self.effects: list[fx.Effect] = []
        #: Members that were heard of in this step; their session starts anew.
        self.touched: list[str] = []
        self.around = around

    @property
    def heard(self) -> Mapping[str, int]:
        """When each member was last heard, on the shard's clock. Read only."""
        return self.around.heard

    @property
    def may_create(self) -> bool:
        """Whether the shard has room for one more entity."""
        return self.around.may_create

    @property
    def room_bytes(self) -> int:
        """How many bytes more the shard takes of new entities and members."""
        return self.around.room_bytes

    def room_for(self, is_known: bool) -> int:
        """How many bytes more the shard takes of a sender; below 0 it is fuller than it may be.

        A quarter is kept for members: their groups go on when a flood has filled the rest.
        """
        reserve = self.around.shard_bytes_max // limits.SHARD_RESERVE_SHARE
        return self.room_bytes + (reserve if is_known else 0)

    @property
    def live(self) -> V:
        """The value, which exists by now."""
        if self.value is None:
            raise BrokenInvariant(f"{self.name}: a step went on without a group")
        return self.value

    def change(self, **fields: Any) -> None:
        """Replace fields of the value; a kind says which ones have methods of their own."""
        self.value = replace(self.live, **fields)  # type: ignore[type-var]  # values are structs

    def create(self, reason: str) -> None:
        """An entity without members and entries."""
        self.value = self.kind.create(self.name, self.at)
        self.record(stored.EVENT_GROUP_CREATED, reason=reason)

    def delete(self) -> None:
        """The last that a step does to an entity: no request finds it any more."""
        self.value, self.is_deleted = None, True

    # -- entries ---------------------------------------------------------------------------

    def entries(self, table: "Table") -> "Entries":
        """The entries of a table as they were before this step."""
        return self.around.entries(table)

    def entry(self, table: "Table", name: str, number: int) -> Any:
        """An entry as this step has left it by now: as kept, or as put; None: there is none."""
        for effect in reversed(self.effects):
            if isinstance(effect, fx.Put) and (effect.table, effect.place) == (
                table.name,
                (name, number),
            ):
                return effect.value
        return self.entries(table).get(name, number)

    def put_entry(self, table: "Table", place: "Place", value: msgspec.Struct | None) -> None:
        """Store an entry if the step goes through; None: forget it."""
        key = table.key(self.name, place)
        self.emit(fx.Put(table.topic, key, self.name, table.name, place, value))

    def forget_entries(self, table: "Table | None" = None) -> None:
        """Forget all entries, of one table or of all that the family has."""
        for each in [table] if table else self.kind.TABLES:
            for name, number, _ in self.entries(each):
                self.put_entry(each, (name, number), None)

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
        """Answer the request of this record with an error; the value stays as it is.  # INV-24"""
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
        """Record in the history which request was refused, and what its sender was told.

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

"""A step in the making.

`step(state, event) -> (state, effects)` is pure at its edges: groups are frozen values. Inside
one step a `Step` holds the group as it stands by now and collects what should happen. When a
step fails half-way the step is thrown away, and the group is as it was before.

Here is what all kinds of groups have in common; each kind adds its own in a class of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from coordlib import limits
from coordlib.config import GroupConfig
from coordlib.coordinators.groups.group import AnyGroup, BrokenInvariant
from coordlib.coordinators.shard.table import OffsetTable
from coordlib.coordinators.shard.transition import At, envelope, refusal, reply_of
from coordlib.effects import effect as fx
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import responses as rs
from coordlib.records import stored

#: Requests whose refusal leaves a line of history: those that wanted to change something. Of each,
#: the errors that are steps of the protocol and leave none. Not here: heartbeats (what they are
#: refused for is in history already, and a zombie repeats them), questions, and commits, which
#: have a line of their own (CommitRefused). LeaveGroup is refused row by row, in its answer.
STEPS_OF_REFUSED: Final[dict[type[rq.Request], frozenset[ErrorCode]]] = {
    rq.JoinGroup: frozenset({ErrorCode.MEMBER_ID_REQUIRED}),
    rq.SyncGroup: frozenset({ErrorCode.REBALANCE_IN_PROGRESS}),
    rq.Subscribe: frozenset({ErrorCode.REBALANCE_IN_PROGRESS}),
    rq.Release: frozenset(),
    rq.DeleteGroup: frozenset(),
    rq.OffsetDelete: frozenset(),
}


#: For whoever would make one group more than a shard may hold.
SHARD_IS_FULL: Final = (
    "Delete groups that nobody needs, or raise groups_per_shard_max: this shard is full."
)
#: For whoever comes when too many groups are being made.
SHARD_IS_THROTTLED: Final = (
    "Try again, or raise new_groups_per_second_max: this shard makes no more groups just now."
)
#: For whoever would make the shard's state larger than it may be.
SHARD_IS_TOO_LARGE: Final = (
    "Delete groups that nobody needs, or raise shard_bytes_max: this shard's state is full."
)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a step may read beside its group and its record."""

    config: GroupConfig
    load_offsets: Callable[[], OffsetTable]
    #: When each member was last heard, on the shard's clock. Read only.
    heard: Mapping[str, int] = MappingProxyType({})
    #: Whether the shard has room for one more group.
    may_create: bool = True
    #: Whether the shard has made so many groups that the next one has to wait.
    is_throttled: bool = False
    #: How many bytes of groups and offsets more the shard takes from whoever is new.
    room_bytes: int = limits.SHARD_BYTES_MAX
    #: The topics of the cluster, as far as the log has told, by partition count. Read only.
    topics: Mapping[str, int] = MappingProxyType({})
    #: Strategies that the job's configuration adds, by friendly name.
    strategies: Mapping[str, Any] = MappingProxyType({})


G = TypeVar("G", bound=AnyGroup)


class Step(ABC, Generic[G]):
    """One group during one step."""

    __slots__ = (
        "around",
        "at",
        "cause",
        "effects",
        "group",
        "is_deleted",
        "is_reaction",
        "name",
        "touched",
    )

    #: Which kind of group this is; history names it.
    KIND: str
    #: A group of that kind, and the state in which one is deleted.
    GROUP: ClassVar[type[Any]]
    DEAD: ClassVar[Any]

    def __init__(self, name: str, group: G | None, at: At, around: Surroundings) -> None:
        self.name = name
        self.group = group
        #: Whether this step deleted the group; then `group` is None.
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

    @classmethod
    def adopt(cls, group: AnyGroup, at: At) -> Any:
        """An empty group of another kind as one of this: its name, generation and offsets go on."""
        return cls.GROUP(
            group=group.group,
            generation=group.generation,
            state_since_ms=at.time_ms,
            state_since_clock_ms=at.clock_ms,
        )

    @property
    def config(self) -> GroupConfig:
        return self.around.config

    @property
    def heard(self) -> Mapping[str, int]:
        """When each member was last heard, on the shard's clock. Read only."""
        return self.around.heard

    @property
    def may_create(self) -> bool:
        """Whether the shard has room for one more group."""
        return self.around.may_create

    @property
    def is_throttled(self) -> bool:
        """Whether the shard has made so many groups that the next one has to wait."""
        return self.around.is_throttled

    @property
    def room_bytes(self) -> int:
        """How many bytes of groups and offsets more the shard takes from whoever is new."""
        return self.around.room_bytes

    def room_for(self, is_known: bool) -> int:
        """How many bytes more the shard takes of somebody; below 0 it is fuller than it may be.

        A quarter is kept for members: their groups go on when a flood has filled the rest.
        """
        reserve = self.config.shard_bytes_max // limits.SHARD_RESERVE_SHARE
        return self.room_bytes + (reserve if is_known else 0)

    @property
    @abstractmethod
    def new_group_bytes(self) -> int:
        """What the group has in the shard's blob when it has just been made, at most."""

    @property
    def offsets(self) -> OffsetTable:
        """Committed offsets of the group, to be read. Changed by Commit effects only."""
        return self.around.load_offsets()

    @property
    def live(self) -> G:
        """The group, which exists by now."""
        if self.group is None:
            raise BrokenInvariant(f"{self.name}: a step went on without a group")
        return self.group

    def change(self, **fields: Any) -> None:
        """Replace fields of the group; each kind says which ones have methods of their own."""
        self.group = replace(self.live, **fields)  # type: ignore[type-var]  # groups are structs

    @abstractmethod
    def enter(self, state: Any) -> None:
        """Change the state, along the kind's table only.  # INV-12"""

    def create(self, reason: str) -> None:
        """A group without members and offsets."""
        at = self.at
        self.group = self.GROUP(
            group=self.name, state_since_ms=at.time_ms, state_since_clock_ms=at.clock_ms
        )
        self.record(stored.EVENT_GROUP_CREATED, reason=reason)

    def delete(self) -> None:
        """The last that a step does to a group: no request finds it any more."""
        self.enter(self.DEAD)
        self.group, self.is_deleted = None, True

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
        where = reply_of(request, self.at) if reply is None else reply
        self.emit(
            fx.Respond(where, rs.answer_to(type(request))(**envelope(request, self.at), **fields))
        )

    def refuse(
        self,
        request: rq.Request,
        code: ErrorCode,
        message: str | None = None,
        **fields: Any,
    ) -> None:
        """Answer the request of this record with an error; the group stays as it is.  # INV-24"""
        self.answer(request, **refusal(code, message), **fields)
        steps = STEPS_OF_REFUSED.get(type(request))
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
        """Tell history who was refused what, and what the sender was told.

        One request, at most one such line: nobody can make history grow faster than the log.
        """
        told = refusal(code, message)
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
        """A line of history about this group."""
        fields.setdefault("generation", self.group.generation if self.group else -1)
        self.emit(
            fx.History(type=type_, group=self.name, cause=self.cause, protocol=self.KIND, **fields)
        )

"""A step in the making.

`step(state, event) -> (state, effects)` is pure at its edges: groups are frozen values. Inside
one step a `Draft` holds the group as it stands by now and collects what should happen. When a
step fails half-way the draft is thrown away, and the group is as it was before.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from coordlib import limits
from coordlib.config import ClassicConfig
from coordlib.coordinators.classic import kept_bytes
from coordlib.coordinators.classic.group import (
    VALID_PREVIOUS_STATES,
    BrokenInvariant,
    Group,
    Member,
    State,
)
from coordlib.coordinators.offset_table import OffsetTable
from coordlib.coordinators.transition import At, envelope, refusal, reply_of
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
    rq.DeleteGroup: frozenset(),
    rq.OffsetDelete: frozenset(),
}


class Draft:
    """One group during one step."""

    __slots__ = (
        "_load_offsets",
        "at",
        "cause",
        "config",
        "effects",
        "group",
        "heard",
        "is_deleted",
        "may_create",
        "name",
        "room_bytes",
        "touched",
    )

    def __init__(  # noqa: PLR0913, PLR0917  # what the shard knows of a group, in its one place
        self,
        name: str,
        group: Group | None,
        at: At,
        config: ClassicConfig,
        load_offsets: Callable[[], OffsetTable],
        may_create: bool = True,
        heard: Mapping[str, int] = MappingProxyType({}),
        room_bytes: int = limits.SHARD_BYTES_MAX,
    ) -> None:
        self.name = name
        self.group = group
        #: Whether this step deleted the group; then `group` is None.
        self.is_deleted = False
        self.at = at
        self.config = config
        #: What history gives as the cause: the record's coordinate, or a deadline's name.
        self.cause = at.coordinate
        self.effects: list[fx.Effect] = []
        #: Members that were heard of in this step; their session starts anew.
        self.touched: list[str] = []
        #: When each member was last heard, on the shard's clock. Read only.
        self.heard = heard
        #: Whether the shard has room for one more group.
        self.may_create = may_create
        #: How many bytes of groups and offsets more the shard takes from whoever is new.
        self.room_bytes = room_bytes
        self._load_offsets = load_offsets

    @property
    def offsets(self) -> OffsetTable:
        """Committed offsets of the group, to be read. Changed by Commit effects only."""
        return self._load_offsets()

    def room_for(self, is_known: bool) -> int:
        """How many bytes more the shard takes of somebody; below 0 it is fuller than it may be.

        A quarter is kept for members: their groups go on when a flood has filled the rest.
        """
        reserve = self.config.shard_bytes_max // limits.SHARD_RESERVE_SHARE
        return self.room_bytes + (reserve if is_known else 0)

    @property
    def live(self) -> Group:
        """The group, which exists by now."""
        if self.group is None:
            raise BrokenInvariant(f"{self.name}: a step went on without a group")
        return self.group

    def change(self, **fields: Any) -> None:
        """Replace fields of the group; its state by `enter` only, members by `put` and `drop`."""
        before = self.live
        self.group = replace(before, **fields)
        if "members" not in fields:
            kept_bytes.carry(before, self.group)

    def enter(self, state: State) -> None:
        """Change the state, along the table only.  # INV-12"""
        if self.live.state not in VALID_PREVIOUS_STATES[state]:
            raise BrokenInvariant(f"{self.name}: {self.live.state.value} to {state.value}")
        at = self.at
        self.change(state=state, state_since_ms=at.time_ms, state_since_clock_ms=at.clock_ms)

    def create(self, reason: str) -> None:
        """A group without members and offsets."""
        at = self.at
        self.group = Group(
            group=self.name, state_since_ms=at.time_ms, state_since_clock_ms=at.clock_ms
        )
        self.record(stored.EVENT_GROUP_CREATED, reason=reason)

    def delete(self) -> None:
        """The last that a step does to a group: no request finds it any more."""
        self.enter(State.DEAD)
        self.group, self.is_deleted = None, True

    def put(self, *members: Member) -> None:
        """Add members or replace them under their ids."""
        table = dict(self.live.members)
        size, grown = self.live.size_bytes, 0
        for member in members:
            before = table.get(member.member)
            size += member.size_bytes() - (before.size_bytes() if before else 0)
            grown += kept_bytes.grown(before, member)
            table[member.member] = member
        self._change_members(table, grown, size_bytes=size)

    def rename(self, member: Member, successor: Member) -> None:
        """Put a successor in a member's place, also in the order of members and as leader."""
        table = dict(
            (successor.member, successor) if each is member else (name, each)
            for name, each in self.live.members.items()
        )
        size = self.live.size_bytes + successor.size_bytes() - member.size_bytes()
        leader = self.live.leader
        self._change_members(
            table,
            kept_bytes.grown(member, successor),
            size_bytes=size,
            leader=successor.member if leader == member.member else leader,
        )

    def drop(self, member: Member) -> None:
        """Take a member out; nobody waits any more for the one that it replaced."""
        table = dict(self.live.members)
        del table[member.member]
        guards = {
            name: replace(guard, successor=None) if guard.successor == member.member else guard
            for name, guard in self.live.guards.items()
        }
        size = self.live.size_bytes - member.size_bytes()
        self._change_members(table, -kept_bytes.of_member(member), guards=guards, size_bytes=size)

    def _change_members(self, table: dict[str, Member], grown: int, **fields: Any) -> None:
        before = self.live
        self.change(members=table, **fields)
        kept_bytes.carry(before, self.live, grown)

    def emit(self, effect: fx.Effect) -> None:
        """Let something happen, after all that was emitted before, if the step goes through."""
        self.effects.append(effect)

    def answer(
        self,
        request: rq.Request,
        answer: type[rs.Response],
        reply: int | None = None,
        **fields: Any,
    ) -> None:
        """Answer the request of this record, now."""
        where = reply_of(request, self.at) if reply is None else reply
        self.emit(fx.Respond(where, answer(**envelope(request, self.at), **fields)))

    def refuse(
        self,
        request: rq.Request,
        answer: type[rs.Response],
        code: ErrorCode,
        message: str | None = None,
        **fields: Any,
    ) -> None:
        """Answer the request of this record with an error; the group stays as it is.  # INV-24"""
        self.answer(request, answer, **refusal(code, message), **fields)
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
        self.emit(fx.Record(type=type_, group=self.name, cause=self.cause, **fields))

    def notify_members(self, members: Iterable[Member], notification: rs.Notification) -> None:
        """Write a notification once to each partition that one of these members reads."""
        for reply in sorted({member.reply for member in members}):
            self.emit(fx.Notify(reply, notification))

"""Membership in groups of both kinds: heartbeats, and the end of a membership."""

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire.checks import optional_names_fault
from coordlib.core.wire.envelope import InAnySpace, Int32, Name, Part, Reason, Response, Waits


class Heartbeat(InAnySpace, tag="Heartbeat", kw_only=True, frozen=True):
    """A sign of life. A healthy one gets no answer of its own, only the shard's Progress."""

    WAITS: ClassVar[Waits] = Waits.NEVER

    generation: Int32
    member: Name
    instance: Name | None = None


class HeartbeatResponse(Response, tag="Heartbeat", frozen=True, kw_only=True):
    """Sent only when something is wrong with the heartbeat."""


class Leaver(Part, frozen=True):
    """One member that leaves, by its id, its instance id, or both."""

    member: Name
    instance: Name | None = None


class LeaveGroup(InAnySpace, tag="LeaveGroup", kw_only=True, frozen=True):
    """Give up membership, now and not when the session runs out (KIP-345: several at once)."""

    WAITS: ClassVar[Waits] = Waits.WITH_ITS_GROUP

    members: Annotated[tuple[Leaver, ...], Meta(min_length=1, max_length=limits.LEAVERS_MAX)]
    reason: Reason | None = None
    #: The sender has stopped working but keeps its place: a static member before a restart
    #: (KIP-1092, REMAIN_IN_GROUP). Its successor need not wait for its fence. A dynamic member is
    #: removed all the same; from anybody but the member itself the row is INVALID_REQUEST.
    remain: bool = False

    def fault(self) -> str | None:
        """Ids of members and instances are names, or empty."""
        return optional_names_fault(
            "members", [row.member for row in self.members]
        ) or optional_names_fault("members", [row.instance for row in self.members])


class LeftMember(msgspec.Struct, frozen=True):
    """One row of a LeaveGroup answer."""

    member: str
    instance: str | None
    error: str


class LeaveGroupResponse(Response, tag="LeaveGroup", frozen=True, kw_only=True):
    """A row for each member that was named; at the top `error` is NONE even if all are refused."""

    members: tuple[LeftMember, ...] | UnsetType = UNSET


class MemberRemoved(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """This member is no longer in the group."""

    v: int = 1
    group: str
    cause: str
    member: str
    reason: str

"""Classic groups, as in Kafka's classic protocol: join, then ask for the assignment.

Source: design seeds 002 and 004; `JoinGroupRequest.json` and its siblings in Apache Kafka.
"""

from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire.checks import names_fault, no_name, optional_names_fault
from coordlib.core.wire.envelope import (
    Generation,
    Int32,
    Name,
    Part,
    Reason,
    Request,
    Response,
    Waits,
)
from coordlib.errors import ErrorCode


class Protocol(Part, frozen=True):
    """One assignment protocol that a member offers, with its metadata for it."""

    name: Annotated[str, Meta(min_length=1, max_length=limits.PROTOCOL_NAME_LENGTH_MAX)]
    metadata: bytes


class JoinGroup(Request, tag="JoinGroup", kw_only=True, frozen=True):
    """Enter a group, or enter its next generation. `member` is empty at the first time."""

    WAITS: ClassVar[Waits] = Waits.WITH_ITS_GROUP
    UNTOLD_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset(
        {ErrorCode.MEMBER_ID_REQUIRED}
    )

    member: Name = ""
    #: The newest generation of a rejoining member; -1: none. A late duplicate names an old one.
    generation: Generation = -1
    instance: Name | None = None
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32
    protocol_type: Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)]
    protocols: Annotated[tuple[Protocol, ...], Meta(max_length=limits.PROTOCOLS_MAX)]
    reason: Reason | None = None
    #: Where the client runs, in its own words (seed 000, group metadata). That of the request by
    #: which it enters is kept and shown; it decides nothing. Not written where it is not set: older
    #: jobs refuse the field.
    host: Name | UnsetType = UNSET

    def fault(self) -> str | None:
        """Each protocol stands once, and an instance id is not empty: None is no instance."""
        names = [protocol.name for protocol in self.protocols]
        if len(set(names)) != len(names):
            return "protocols names one protocol twice: name each once."
        return (
            optional_names_fault("protocols", names)
            or optional_names_fault("protocol_type", [self.protocol_type])
            or optional_names_fault("instance", [self.instance])
            or optional_names_fault("member", [self.member])
            or (no_name("instance") if self.instance == "" else None)
            or (None if self.host is UNSET else names_fault("host", [self.host]))
        )


class JoinedMember(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member as the leader sees it: its metadata for the chosen protocol."""

    member: str
    instance: str | None
    metadata: bytes
    #: Its assignment, for a leader that comes back and must not assign (KIP-814): only the leader
    #: can see that a partition came while it was away. Empty otherwise.
    assignment: bytes = b""


class JoinGroupResponse(Response, tag="JoinGroup", frozen=True, kw_only=True):
    """A new generation begins. `members` is filled for the leader only."""

    generation: int | UnsetType = UNSET
    protocol_type: str | UnsetType | None = UNSET
    protocol: str | UnsetType | None = UNSET
    leader: str | UnsetType = UNSET
    member: str = ""
    members: tuple[JoinedMember, ...] | UnsetType = UNSET
    skip_assignment: bool | UnsetType = UNSET


class RebalanceInProgress(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """Members of this generation must join again."""

    v: int = 1
    group: str
    cause: str
    generation: int


#: Errors that a leader may give as the reason why there is no assignment. They do not concern the
#: membership of their readers; other errors do, and only the coordinator may give them.
ASSIGNMENT_ERRORS: Final = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.UNSUPPORTED_ASSIGNOR,
)
_ASSIGNMENT_ERROR_NAMES: Final = tuple(each.name for each in ASSIGNMENT_ERRORS)


class MemberAssignment(Part, frozen=True):
    """The leader's assignment for one member."""

    member: Name
    assignment: bytes


class SyncGroup(Request, tag="SyncGroup", kw_only=True, frozen=True):
    """Ask for one's assignment; the leader's request carries all of them, or why there are none."""

    WAITS: ClassVar[Waits] = Waits.WITH_ITS_GROUP
    UNTOLD_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset(
        {ErrorCode.REBALANCE_IN_PROGRESS}
    )

    generation: Int32
    member: Name
    instance: Name | None = None
    protocol_type: Name | None = None
    protocol: Name | None = None
    assignments: tuple[MemberAssignment, ...] = ()
    #: From the leader: one of ASSIGNMENT_ERRORS, by name (seed 002, SyncErrorCode). Left out: NONE.
    #: Not written where it is not set, so that an older job reads all other requests.
    error: Name | UnsetType = UNSET
    #: The message about that error for the other members.
    message: Reason | UnsetType = UNSET

    @property
    def has_failed(self) -> bool:
        """Whether the sender could not assign."""
        return self.error is not UNSET and self.error != ErrorCode.NONE.name

    def fault(self) -> str | None:
        """Each member has one share, or there is none and an error that leaders may give."""
        members = [row.member for row in self.assignments]
        if len(set(members)) != len(members):
            return "assignments names one member twice: give each one share."
        if self.has_failed and self.error not in _ASSIGNMENT_ERROR_NAMES:
            return f"error must be NONE, {', '.join(_ASSIGNMENT_ERROR_NAMES)}."
        if self.has_failed and self.assignments:
            return "assignments must be empty where error is named: nobody is given anything."
        if self.message and not self.has_failed:
            return "message explains an error: name one, or leave it out."
        return optional_names_fault("assignments", members) or optional_names_fault(
            "member", [self.member]
        )


class SyncGroupResponse(Response, tag="SyncGroup", frozen=True, kw_only=True):
    """A member's share, with the fencing token of the assignment that it belongs to."""

    protocol_type: str | UnsetType | None = UNSET
    protocol: str | UnsetType | None = UNSET
    assignment: bytes | UnsetType = UNSET
    fence: int | UnsetType = UNSET

"""Consumer groups: heartbeats, the end of a membership, classic groups, server-assigned groups.

Classic groups are those of Kafka's classic protocol: join, then ask for the assignment (seeds 002
and 004; `JoinGroupRequest.json` and its siblings in Apache Kafka). Members of server-assigned
groups send the wanted topics, and give up demanded partitions (the published design of the consumer
rewrite, seed 000).
"""

from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire.envelope import (
    Generation,
    InAnySpace,
    Int32,
    Name,
    Part,
    Reason,
    Request,
    Response,
    Waits,
    names_fault,
    no_name,
    optional_names_fault,
)
from coordlib.core.wire.offsets import CommittedOffset, FailedPartition, rows_fault
from coordlib.errors import ErrorCode


class Heartbeat(InAnySpace, tag="Heartbeat", kw_only=True, frozen=True):
    """A sign of life. A healthy one gets no answer of its own, only the shard's Progress."""

    WAITS: ClassVar[Waits] = Waits.NEVER

    generation: Int32
    member: Name
    instance: Name | None = None


class HeartbeatResponse(Response, tag="Heartbeat", frozen=True, kw_only=True):
    """Sent only when something is wrong with the heartbeat."""


def with_reason(detail: dict[str, str], reason: str | None) -> dict[str, str]:
    """A line's detail with the client's own reason (KIP-800), if it gave one."""
    return {**detail, "client_reason": reason} if reason else detail


class Leaver(Part, frozen=True):
    """One member that leaves, by its id, its instance id, or both."""

    member: Name
    instance: Name | None = None

    def left(self, code: ErrorCode) -> "LeftMember":
        """Its row of the answer."""
        return LeftMember(member=self.member, instance=self.instance, error=code.name)


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

    def why(self, is_itself: bool) -> str:
        """The reason that history gives; `is_itself`: the sender is the member that goes."""
        what = "left" if is_itself else f"removed by {self.client}"
        return f"{what}: {self.reason}" if self.reason else what


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


class Protocol(Part, frozen=True):
    """One assignment protocol that a member offers, with its metadata for it."""

    name: Annotated[str, Meta(min_length=1, max_length=limits.PROTOCOL_NAME_LENGTH_MAX)]
    metadata: bytes


class JoinGroup(Request, tag="JoinGroup", kw_only=True, frozen=True):
    """Enter a group, or enter its next generation. `member` is empty at the first time."""

    WAITS: ClassVar[Waits] = Waits.WITH_ITS_GROUP
    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset(
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
    #: which it enters is kept and shown; it decides nothing. Left out where it is not set.
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
    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset(
        {ErrorCode.REBALANCE_IN_PROGRESS}
    )

    generation: Int32
    member: Name
    instance: Name | None = None
    protocol_type: Name | None = None
    protocol: Name | None = None
    assignments: tuple[MemberAssignment, ...] = ()
    #: From the leader: one of ASSIGNMENT_ERRORS, by name (seed 002, SyncErrorCode). Left out: NONE.
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


Pattern = Annotated[str, Meta(min_length=1, max_length=limits.PATTERN_LENGTH_MAX)]


class Subscribe(Request, tag="Subscribe", kw_only=True, frozen=True):
    """Enter a server-assigned group, or change one's subscription there (seed 000, JoinGroup).

    The coordinator assigns; no member leads. `member` is empty at the first time.
    """

    WAITS: ClassVar[Waits] = Waits.WITH_ITS_GROUP
    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset(
        {ErrorCode.REBALANCE_IN_PROGRESS}
    )

    member: Name = ""
    #: The newest generation that a member knows; -1: none. A late duplicate names an old one.
    generation: Generation = -1
    #: Topics by name; one that does not exist is a wish, and is given once it does.
    topics: Annotated[tuple[Name, ...], Meta(max_length=limits.SUBSCRIBED_TOPICS_MAX)] = ()
    #: Topics by RE2 expression, which must match the whole name; null: by name only.
    pattern: Pattern | None = None
    #: Topics that this matches too are not wanted.
    exclude: Pattern | None = None
    #: Friendly name of the strategy; null: the group's own, at first `sticky`.
    strategy: Annotated[str, Meta(min_length=1, max_length=limits.NAME_LENGTH_MAX)] | None = None
    session_timeout_ms: Int32
    #: How long the member may take to give up demanded partitions.
    rebalance_timeout_ms: Int32
    #: The member's share in proportion to the other members.
    capacity: Annotated[int, Meta(ge=1, le=limits.CAPACITY_MAX)] = 1
    reason: Reason | None = None
    #: Where the client runs, in its own words (seed 000, group metadata). That of the request by
    #: which it enters is kept and shown; it decides nothing. Left out where it is not set.
    host: Name | UnsetType = UNSET

    def fault(self) -> str | None:
        """A member wants topics by name, by an expression, or by both."""
        if not self.topics and self.pattern is None:
            return "topics is empty and pattern is null: say what you want."
        return (
            names_fault("topics", self.topics)
            or optional_names_fault("member", [self.member])
            or optional_names_fault("strategy", [self.strategy])
            or (None if self.host is UNSET else names_fault("host", [self.host]))
        )


class GrantedPartitions(msgspec.Struct, frozen=True):
    """Partitions of one topic that one record granted to a member."""

    topic: str
    partitions: tuple[int, ...]
    #: Log offset of that record: a fencing token that is higher than any former owner's.
    fence: int


class OwnedPartitions(msgspec.Struct, frozen=True):
    """Partitions of one topic."""

    topic: str
    partitions: tuple[int, ...]


class DemandedRelease(msgspec.Struct, frozen=True):
    """Partitions that a member must give up, with a Release that names `cause`."""

    cause: int
    partitions: tuple[OwnedPartitions, ...]


class SubscribeResponse(Response, tag="Subscribe", frozen=True, kw_only=True):
    """The member's first partitions. Those that others must release first follow later."""

    generation: int | UnsetType = UNSET
    member: str = ""
    strategy: str | UnsetType = UNSET
    #: The highest fence that the member ever had; -1: nothing was ever granted.
    fence: int | UnsetType = UNSET
    partitions: tuple[GrantedPartitions, ...] | UnsetType = UNSET
    release: tuple[DemandedRelease, ...] | UnsetType = UNSET


class AssignmentChanged(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """All that a member of a server-assigned group holds now; replaces every earlier picture.

    The member works on `partitions`, old and new, and gives up those of `release`.
    """

    v: int = 1
    group: str
    cause: str
    member: str
    generation: int
    fence: int
    partitions: tuple[GrantedPartitions, ...]
    release: tuple[DemandedRelease, ...]


class Release(InAnySpace, tag="Release", kw_only=True, frozen=True):
    """Give up the partitions of one demand, and commit their positions, in one record.

    It names the cause of the demand: a late duplicate finds that demand gone, and does nothing.
    """

    WAITS: ClassVar[Waits] = Waits.WITH_ITS_GROUP
    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset()

    generation: Int32
    member: Name
    #: Offset of the record that caused the demand, as the demand names it.
    cause: Annotated[int, Meta(ge=0, le=limits.INT64_MAX)]
    #: Offsets of the released partitions; none: no record was processed since the last commit.
    offsets: Annotated[
        tuple[CommittedOffset, ...], Meta(max_length=limits.OFFSETS_PER_REQUEST_MAX)
    ] = ()

    def fault(self) -> str | None:
        """Each partition has one position."""
        return rows_fault(self.offsets) or optional_names_fault("member", [self.member])


class ReleaseResponse(Response, tag="Release", frozen=True, kw_only=True):
    """NONE: the demand is over."""

    #: Offsets that were not stored.
    failed: tuple[FailedPartition, ...] | UnsetType = UNSET

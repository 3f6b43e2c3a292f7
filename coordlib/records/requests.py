"""The requests of wire format version 1, as typed values.

One struct per request type, named as Kafka names it. Field meanings are Kafka's; times are
milliseconds. Bytes (`metadata`, `assignment`) are base64 on the wire and opaque to the
coordinator. Unknown fields are refused, so that a misspelt option is never silently ignored.
The page about all of this, with examples, is README.md beside this file.
Source: design seeds 002 and 004; `JoinGroupRequest.json` and its siblings in Apache Kafka.
"""

from enum import Enum
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.errors import ErrorCode

Int32 = Annotated[int, Meta(ge=0, le=limits.INT32_MAX)]
Generation = Annotated[int, Meta(ge=-1, le=limits.INT32_MAX)]
LeaderEpoch = Annotated[int, Meta(ge=-1, le=limits.INT32_MAX)]
Offset = Annotated[int, Meta(ge=-limits.INT64_MAX - 1, le=limits.INT64_MAX)]
Reason = Annotated[str, Meta(max_length=limits.REASON_LENGTH_MAX)]
Name = Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)]
Pattern = Annotated[str, Meta(min_length=1, max_length=limits.PATTERN_LENGTH_MAX)]
Text = Annotated[str, Meta(max_length=limits.REQUEST_BYTES_MAX)]
Count = Annotated[int, Meta(ge=0, le=limits.INT64_MAX)]


class _Part(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A value inside a request."""


class Protocol(_Part, frozen=True):
    """One assignment protocol that a member offers, with its metadata for it."""

    name: Annotated[str, Meta(min_length=1, max_length=limits.PROTOCOL_NAME_LENGTH_MAX)]
    metadata: bytes


class MemberAssignment(_Part, frozen=True):
    """The leader's assignment for one member."""

    member: Name
    assignment: bytes


class Leaver(_Part, frozen=True):
    """One member that leaves, by its id, its instance id, or both."""

    member: Name
    instance: Name | None = None


class CommittedOffset(_Part, frozen=True):
    """One partition's position: the next offset to read, as in Kafka."""

    topic: Name
    partition: Int32
    offset: Offset
    leader_epoch: LeaderEpoch = -1
    metadata: Text = ""


class TopicPartitions(_Part, frozen=True):
    """Some partitions of one topic."""

    topic: Name
    partitions: Annotated[tuple[Int32, ...], Meta(max_length=limits.FETCH_PARTITIONS_MAX)]


class Waits(Enum):
    """When a request is refused for now, because too many answers cannot be read yet."""

    #: Whenever the shard has too many: the sender only asks.
    ALWAYS = 1
    #: Only while its own group has some: the group's members cannot go on without it.
    WITH_ITS_GROUP = 2
    NEVER = 3


class Request(
    msgspec.Struct, tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True
):
    """The envelope: sender, correlation id, group, and the partition for the answer."""

    #: The space of names that `group` is in.
    SPACE: ClassVar[str] = "group"
    WAITS: ClassVar[Waits] = Waits.ALWAYS
    #: Errors that are normal protocol steps and leave no line of history; None: no refusal of
    #: this request does. Requests that want to change something name some, or none. Heartbeats
    #: are None (the reasons are in history already, and a zombie repeats them), so are questions,
    #: commits, which have a line of their own (CommitRefused), and LeaveGroup, which is refused
    #: row by row in its answer.
    UNTOLD_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = None

    v: Literal[1]
    id: Annotated[str, Meta(min_length=1, max_length=limits.CORRELATION_ID_LENGTH_MAX)]
    client: Annotated[str, Meta(min_length=1, max_length=limits.CLIENT_LENGTH_MAX)]
    group: Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)]
    #: Partition of `coord.responses` that the sender reads; None: the client id's own.
    reply: Int32 | None = None

    @property
    def entity(self) -> tuple[str, str]:
        """Space and name of what the request is about."""
        return self.SPACE, self.group

    def fault(self) -> str | None:
        """What is wrong with it that its schema cannot say; None: nothing."""
        return None


class InAnySpace(Request, frozen=True, kw_only=True):
    """A request that entities of several spaces understand."""

    #: The space of names that `group` is in; left out: groups.
    space: Annotated[str, Meta(max_length=limits.SPACE_LENGTH_MAX)] | UnsetType = UNSET

    @property
    def entity(self) -> tuple[str, str]:
        """Space and name of what the request is about."""
        return (self.SPACE if self.space is UNSET else self.space), self.group


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


#: Errors that a leader may give as the reason why there is no assignment. They do not concern the
#: membership of their readers; other errors do, and only the coordinator may give them.
ASSIGNMENT_ERRORS: Final = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.UNSUPPORTED_ASSIGNOR,
)


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
        """Whether the sender could not divide."""
        return self.error is not UNSET and self.error != ErrorCode.NONE.name


class Heartbeat(InAnySpace, tag="Heartbeat", kw_only=True, frozen=True):
    """A sign of life. A healthy one gets no answer of its own, only the shard's Progress."""

    WAITS: ClassVar[Waits] = Waits.NEVER

    generation: Int32
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


class OffsetCommit(Request, tag="OffsetCommit", kw_only=True, frozen=True):
    """Store positions; with generation -1 from a client that is no member."""

    WAITS: ClassVar[Waits] = Waits.NEVER

    generation: Generation = -1
    member: Name = ""
    instance: Name | None = None
    offsets: Annotated[
        tuple[CommittedOffset, ...],
        Meta(min_length=1, max_length=limits.OFFSETS_PER_REQUEST_MAX),
    ]


class OffsetFetch(Request, tag="OffsetFetch", kw_only=True, frozen=True):
    """Read positions: of the named partitions, or of all (`topics` null)."""

    topics: tuple[TopicPartitions, ...] | None = None
    require_stable: bool = False


class OffsetDelete(Request, tag="OffsetDelete", kw_only=True, frozen=True):
    """Delete positions of topics that no member of the group subscribes to (KIP-496)."""

    UNTOLD_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset()

    topics: tuple[TopicPartitions, ...]


class DescribeGroup(InAnySpace, tag="DescribeGroup", frozen=True):
    """Ask for the group's state."""


class DeleteGroup(InAnySpace, tag="DeleteGroup", frozen=True):
    """Delete an empty group with its offsets (KIP-229)."""

    UNTOLD_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset()


class FindCoordinator(InAnySpace, tag="FindCoordinator", frozen=True):
    """Ask which shard coordinates this group."""


class ReleaseQuarantine(InAnySpace, tag="ReleaseQuarantine", frozen=True):
    """Let a quarantined group go on from its kept state, by order of an operator."""


class Subscribe(Request, tag="Subscribe", kw_only=True, frozen=True):
    """Enter a server-assigned group, or change one's subscription there (seed 000, JoinGroup).

    The coordinator divides; nobody leads. `member` is empty at the first time.
    """

    WAITS: ClassVar[Waits] = Waits.WITH_ITS_GROUP
    UNTOLD_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset(
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


class Release(InAnySpace, tag="Release", kw_only=True, frozen=True):
    """Give up the partitions of one demand, and commit their positions, in one record.

    It names the cause of the demand: a late duplicate finds that demand gone, and does nothing.
    """

    WAITS: ClassVar[Waits] = Waits.WITH_ITS_GROUP
    UNTOLD_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset()

    generation: Int32
    member: Name
    #: Offset of the record that caused the demand, as the demand names it.
    cause: Annotated[int, Meta(ge=0, le=limits.INT64_MAX)]
    #: Of the partitions let go of; none: nothing new was done there.
    offsets: Annotated[
        tuple[CommittedOffset, ...], Meta(max_length=limits.OFFSETS_PER_REQUEST_MAX)
    ] = ()


class Topic(_Part, frozen=True):
    """A topic as the cluster has it."""

    topic: Name
    partitions: Annotated[int, Meta(ge=1, le=limits.PARTITIONS_PER_TOPIC_MAX)]


class Control(
    msgspec.Struct, tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True
):
    """A record that only the job's driver writes, for one shard: TIME-AND-FENCING.md, rule 17.

    Records of older drivers lack the three fields; see `records/control.py`.
    """

    v: Literal[1]
    #: Number of the driver's start, then of the record: rises in each shard.
    n: tuple[Count, Count] | UnsetType = UNSET
    #: The key of `coord.progress` that signed it.
    key: Annotated[str, Meta(max_length=limits.CONTROL_KEY_LENGTH_MAX)] | UnsetType = UNSET
    #: On the wire the last field.
    sig: Annotated[bytes, Meta(max_length=limits.SIGNATURE_BYTES_MAX)] | UnsetType = UNSET


class TopicMetadata(Control, tag="TopicMetadata", frozen=True, kw_only=True):
    """All topics of the cluster whose names lie in a range; another one in it does not exist.

    Each record stands for itself: a listing of many topics is several records, and a record that
    comes twice, or alone, is true all the same.
    """

    #: The range, by code points: after this name (null: from the first) ...
    after: Name | None = None
    #: ... through this one (null: to the last).
    through: Name | None = None
    topics: Annotated[tuple[Topic, ...], Meta(max_length=limits.TOPICS_PER_RECORD_MAX)]


class Tick(Control, tag="Tick", frozen=True, kw_only=True):
    """Time passes, and outputs up to `published` (an offset of this shard) can be read.

    TIME-AND-FENCING.md, rules 5 to 7.
    """

    published: Annotated[int, Meta(ge=-1, le=limits.INT64_MAX)]


AnyRequest = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroup
    | DeleteGroup
    | FindCoordinator
    | ReleaseQuarantine
    | Subscribe
    | Release
    | TopicMetadata
    | Tick
)

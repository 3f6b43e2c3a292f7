"""Responses and notifications of wire format version 1.

With an `error` other than NONE, `message` is one sentence that says what to do, and the fields of
the answer itself are absent (UNSET here). Readers ignore unknown fields.
"""

from functools import cache

import msgspec
from msgspec import UNSET, UnsetType

from coordlib.errors import ErrorCode


class JoinedMember(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member as the leader sees it: its metadata for the chosen protocol."""

    member: str
    instance: str | None
    metadata: bytes
    #: Its assignment, for a leader that comes back and must not divide (KIP-814): only the leader
    #: can see that a partition came while it was away. Empty otherwise.
    assignment: bytes = b""


class LeftMember(msgspec.Struct, frozen=True):
    """One row of a LeaveGroup answer."""

    member: str
    instance: str | None
    error: str


class FailedPartition(msgspec.Struct, frozen=True):
    """A partition that was refused in a commit or delete that otherwise went well."""

    topic: str
    partition: int
    error: str


class FetchedOffset(msgspec.Struct, frozen=True):
    """One partition's committed offset; -1 when there is none."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: str = ErrorCode.NONE.name


class DescribedMember(msgspec.Struct, frozen=True):
    """A member in the answer to DescribeGroup."""

    member: str
    instance: str | None
    client: str
    assignment: bytes


#: Reasons why a group waits for a member.
NOT_RELEASED = "has not let go of what others are to have"
NOT_STOPPED = "has not stopped"
NOT_JOINED = "was told its id and has not joined"
NOT_REJOINED = "has not joined again"
NOT_SYNCED = "has not asked for its assignment"


class AwaitedMember(msgspec.Struct, frozen=True):
    """A member or former owner for which a group waits."""

    member: str
    client: str
    reason: str


class Response(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """The envelope of every answer; `cause` is the coordinate of the request."""

    v: int = 1
    id: str
    client: str
    group: str
    cause: str
    error: str = ErrorCode.NONE.name
    message: str | UnsetType = UNSET
    #: The error's name in seed 000, beside Kafka's of today; for server-assigned groups.
    design_error: str | UnsetType = UNSET


class JoinGroupResponse(Response, tag="JoinGroup", frozen=True, kw_only=True):
    """A new generation begins. `members` is filled for the leader only."""

    generation: int | UnsetType = UNSET
    protocol_type: str | UnsetType | None = UNSET
    protocol: str | UnsetType | None = UNSET
    leader: str | UnsetType = UNSET
    member: str = ""
    members: tuple[JoinedMember, ...] | UnsetType = UNSET
    skip_assignment: bool | UnsetType = UNSET


class SyncGroupResponse(Response, tag="SyncGroup", frozen=True, kw_only=True):
    """A member's share, with the fencing token of the assignment that it belongs to."""

    protocol_type: str | UnsetType | None = UNSET
    protocol: str | UnsetType | None = UNSET
    assignment: bytes | UnsetType = UNSET
    fence: int | UnsetType = UNSET


class HeartbeatResponse(Response, tag="Heartbeat", frozen=True, kw_only=True):
    """Sent only when something is wrong with the heartbeat."""


class LeaveGroupResponse(Response, tag="LeaveGroup", frozen=True, kw_only=True):
    """A row for each member that was named; at the top `error` is NONE even if all are refused."""

    members: tuple[LeftMember, ...] | UnsetType = UNSET


class OffsetCommitResponse(Response, tag="OffsetCommit", frozen=True, kw_only=True):
    """Partitions that were not stored; a refusal of the whole commit is `error`."""

    #: Empty when every partition was stored.
    failed: tuple[FailedPartition, ...] | UnsetType = UNSET


class OffsetDeleteResponse(Response, tag="OffsetDelete", frozen=True, kw_only=True):
    """Partitions that were kept since a member subscribes to them; missing ones are no fault."""

    #: Empty when none of the named partitions is left.
    failed: tuple[FailedPartition, ...] | UnsetType = UNSET


class OffsetFetchResponse(Response, tag="OffsetFetch", frozen=True, kw_only=True):
    """Large answers come in `parts`; `part` counts from 0."""

    offsets: tuple[FetchedOffset, ...] | UnsetType = UNSET
    part: int | UnsetType = UNSET
    parts: int | UnsetType = UNSET


class DescribeGroupResponse(Response, tag="DescribeGroup", frozen=True, kw_only=True):
    """The group at the request's place in the log; an unknown group is Dead, without an error."""

    #: `assigned`; left out for classic groups.
    kind: str | UnsetType = UNSET
    state: str | UnsetType = UNSET
    generation: int | UnsetType = UNSET
    protocol_type: str | UnsetType | None = UNSET
    protocol: str | UnsetType | None = UNSET
    leader: str | UnsetType | None = UNSET
    members: tuple[DescribedMember, ...] | UnsetType = UNSET
    #: Former owners, announced ids, and members that have not joined or synced in a rebalance.
    waits_for: tuple[AwaitedMember, ...] | UnsetType = UNSET


class DeleteGroupResponse(Response, tag="DeleteGroup", frozen=True, kw_only=True):
    """NONE: the group and its offsets are gone."""


class FindCoordinatorResponse(Response, tag="FindCoordinator", frozen=True, kw_only=True):
    shard: int | UnsetType = UNSET


class ReleaseQuarantineResponse(Response, tag="ReleaseQuarantine", frozen=True, kw_only=True):
    """NONE: the group goes on. Otherwise the error gives the reason."""


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


class ReleaseResponse(Response, tag="Release", frozen=True, kw_only=True):
    """NONE: the demand is over."""

    #: Offsets that were not stored.
    failed: tuple[FailedPartition, ...] | UnsetType = UNSET


class Rejected(Response, tag="Rejected", frozen=True, kw_only=True):
    """The request could not be read, or stands in the wrong partition."""


@cache
def answer_to(request: type[msgspec.Struct]) -> type[Response]:
    """The type of the response to this request type: the one with its tag.

    Raises:
        LookupError: it has no answer.
    """
    tag = request.__struct_config__.tag
    for each in Response.__subclasses__():
        if each.__struct_config__.tag == tag:
            return each
    raise LookupError(f"{tag} has no answer.")


class RebalanceInProgress(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """Members of this generation must join again."""

    v: int = 1
    group: str
    cause: str
    generation: int


class MemberRemoved(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """This member is no longer in the group."""

    v: int = 1
    group: str
    cause: str
    member: str
    reason: str


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


class Progress(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """Every request of this shard up to `offset` was judged; silence about one means accepted."""

    v: int = 1
    shard: int
    offset: int
    time_ms: int


class CoordinatorLoading(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """The job has started and reads its state back: requests wait in the log, and are answered.

    Written once to every response partition; the next answer or Progress ends it.
    """

    v: int = 1
    error: str = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name
    design_error: str = "CoordinatorStartupNotComplete"
    message: str = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.what_to_do


#: Notices of the job itself, for all readers of the partition.
OfTheCoordinator = Progress | CoordinatorLoading
AnyResponse = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetDeleteResponse
    | OffsetFetchResponse
    | DescribeGroupResponse
    | DeleteGroupResponse
    | FindCoordinatorResponse
    | ReleaseQuarantineResponse
    | SubscribeResponse
    | ReleaseResponse
    | Rejected
    | AssignmentChanged
    | RebalanceInProgress
    | MemberRemoved
    | Progress
    | CoordinatorLoading
)
Notification = AssignmentChanged | RebalanceInProgress | MemberRemoved

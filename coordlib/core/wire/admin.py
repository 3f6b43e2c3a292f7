"""What tools ask: which requests a job reads; of an entity, to show, find, delete or release it.

A job refuses a field that it does not know. It answers ApiVersions with all requests and fields
that it reads, and records one wire version (`kafka/layout.py`) that a client compares with its own
when it starts. Source: ApiVersions of Apache Kafka (KIP-35), seed 004; names take the place of a
version number for each request, because each field here is optional by itself.
"""

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire.envelope import InAnySpace, Request, Response
from coordlib.core.wire.offsets import DescribedPending
from coordlib.errors import ErrorCode


class ApiVersions(Request, tag="ApiVersions", frozen=True, kw_only=True):
    """Ask which requests the job reads. It is about no group, and any shard answers."""

    group: Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)] = ""


class ApiVersionsResponse(Response, tag="ApiVersions", frozen=True, kw_only=True):
    """The requests that the job reads, and its bounds, by the names of `limits` in lower case."""

    #: Type -> its fields; those of the rows in a field stand behind it and a dot.
    types: dict[str, tuple[str, ...]] | UnsetType = UNSET
    limits: dict[str, int] | UnsetType = UNSET


class DescribeGroup(InAnySpace, tag="DescribeGroup", frozen=True):
    """Ask for the group's state."""


class DescribedMember(msgspec.Struct, frozen=True):
    """A member in the answer to DescribeGroup."""

    member: str
    instance: str | None
    client: str
    assignment: bytes
    #: Where it runs, in its own words; left out where it named none.
    host: str | UnsetType = UNSET


#: Reasons why a group waits for a member.
NOT_RELEASED = "has not let go of what others are to have"
NOT_DELETED = "has not deleted its replicas"
NOT_STOPPED = "has not stopped"
NOT_JOINED = "was told its id and has not joined"
NOT_REJOINED = "has not joined again"
NOT_SYNCED = "has not asked for its assignment"


class AwaitedMember(msgspec.Struct, frozen=True):
    """A member or former owner for which a group waits."""

    member: str
    client: str
    reason: str


class DescribeGroupResponse(Response, tag="DescribeGroup", frozen=True, kw_only=True):
    """The group at the request's place in the log; an unknown group is Dead, without an error."""

    #: `assigned`, `brokers`; left out for classic groups.
    kind: str | UnsetType = UNSET
    state: str | UnsetType = UNSET
    generation: int | UnsetType = UNSET
    protocol_type: str | UnsetType | None = UNSET
    protocol: str | UnsetType | None = UNSET
    leader: str | UnsetType | None = UNSET
    members: tuple[DescribedMember, ...] | UnsetType = UNSET
    #: Former owners, announced ids, and members that have not joined or synced in a rebalance.
    waits_for: tuple[AwaitedMember, ...] | UnsetType = UNSET
    #: Offsets that wait for a decision, oldest first; left out where there are none.
    pending: tuple[DescribedPending, ...] | UnsetType = UNSET


class DeleteGroup(InAnySpace, tag="DeleteGroup", frozen=True):
    """Delete an empty group with its offsets (KIP-229)."""

    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset()


class DeleteGroupResponse(Response, tag="DeleteGroup", frozen=True, kw_only=True):
    """NONE: the group and its offsets are gone."""


class FindCoordinator(InAnySpace, tag="FindCoordinator", frozen=True):
    """Ask which shard coordinates this group."""


class FindCoordinatorResponse(Response, tag="FindCoordinator", frozen=True, kw_only=True):
    """The partition of `coord.requests` in which the group is judged."""

    shard: int | UnsetType = UNSET


class ReleaseQuarantine(InAnySpace, tag="ReleaseQuarantine", frozen=True):
    """Let a quarantined group go on from its kept state, by order of an operator."""


class ReleaseQuarantineResponse(Response, tag="ReleaseQuarantine", frozen=True, kw_only=True):
    """NONE: the group goes on. Otherwise the error gives the reason."""

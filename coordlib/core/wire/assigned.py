"""Server-assigned groups: send the wanted topics, and give up demanded partitions.

Source: the published design of the consumer rewrite (seed 000).
"""

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire.checks import names_fault, optional_names_fault
from coordlib.core.wire.envelope import (
    Generation,
    InAnySpace,
    Int32,
    Name,
    Reason,
    Request,
    Response,
    Waits,
)
from coordlib.core.wire.offsets import CommittedOffset, FailedPartition, rows_fault
from coordlib.errors import ErrorCode

Pattern = Annotated[str, Meta(min_length=1, max_length=limits.PATTERN_LENGTH_MAX)]


class Subscribe(Request, tag="Subscribe", kw_only=True, frozen=True):
    """Enter a server-assigned group, or change one's subscription there (seed 000, JoinGroup).

    The coordinator assigns; no member leads. `member` is empty at the first time.
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
    #: Where the client runs, in its own words (seed 000, group metadata). That of the request by
    #: which it enters is kept and shown; it decides nothing. Not written where it is not set: older
    #: jobs refuse the field.
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
    UNTOLD_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset()

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

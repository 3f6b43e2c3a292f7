"""A step of a server-assigned group, its sizes, and checks that several requests share.  # INV-18

A commit of a member is checked row by row, against the grant of its partition. The group's
generation proves little here: members that a division did not concern do not know it. So three rows
are refused, and disturb no others: one of another member's partition, one of a released partition,
and a late one from before the partition came back.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from coordlib.core.engine import effects as fx
from coordlib.core.engine.step import BrokenInvariant
from coordlib.core.groups.assigned.group import (
    VALID_PREVIOUS_STATES,
    Group,
    Member,
    State,
)
from coordlib.core.groups.assignors.registry import StrategyBook
from coordlib.core.groups.group import GroupStep, Refused, is_older
from coordlib.core.wire import api as rq
from coordlib.core.wire import api as rs
from coordlib.core.wire import stored
from coordlib.errors import ErrorCode

#: Names of seed 000, which Kafka calls otherwise today.
DESIGN_ERRORS: Final[dict[ErrorCode, str]] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "InconsistentPartitioningStrategy",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "UnknownPartitioningStrategy",
    ErrorCode.UNKNOWN_MEMBER_ID: "UnknownConsumer",
    ErrorCode.ILLEGAL_GENERATION: "IllegalGeneration",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "CoordinatorStartupNotComplete",
}
SESSION_TIMEOUT_TOO_HIGH: Final = "SessionTimeoutTooHigh"


class Step(GroupStep[Group]):
    """One server-assigned group during one step.

    Its state changes by `enter` only, its members by `put` and `drop`.
    """

    __slots__ = ()
    DEAD = State.DEAD
    DESIGN_ERRORS = DESIGN_ERRORS
    JUDGES_ROWS = True

    @property
    def new_group_bytes(self) -> int:
        return Group(group=self.name).kept_bytes

    def commit_fault(self, request: rq.OffsetCommit) -> Refused:
        code = self.member_fault(request.member, None, request.generation)
        return None if code is ErrorCode.NONE else (code, None)

    def member_fault(self, member: str, _instance: str | None, generation: int) -> ErrorCode:
        found = find_member(self, member, generation)
        if isinstance(found, ErrorCode):
            return found
        # As in Kafka: a commit that names a member must name a generation. Only requests have a
        # place among the joins, and only they may renew a session.
        return ErrorCode.ILLEGAL_GENERATION if generation < 0 else ErrorCode.NONE

    def row_fault(self, member: str, generation: int, row: rq.CommittedOffset) -> ErrorCode:
        """A member commits what it was granted, under a generation since the grant."""
        owner = self.value.members.get(member) if self.value else None
        if owner is None:
            return ErrorCode.NONE
        grant, newest = owner.grant_of(row.topic, row.partition), self.live.generation
        if grant is None or is_older(generation, grant.generation) or is_older(newest, generation):
            return ErrorCode.PARTITION_NOT_OWNED
        return ErrorCode.NONE

    @property
    def strategies(self) -> StrategyBook:
        """The strategies that a group may choose."""
        return StrategyBook(self.family.strategies)

    @property
    def topics(self) -> Mapping[str, int]:
        """The cluster's topics as listed in the log, by partition count."""
        return self.family.topics

    def enter(self, state: State) -> None:
        """Change the state, along the table only; the same one is no change.  # INV-12"""
        if self.live.state is state:
            return
        if self.live.state not in VALID_PREVIOUS_STATES[state]:
            raise BrokenInvariant(f"{self.name}: {self.live.state.value} to {state.value}")
        at = self.at
        self.change(state=state, state_since_ms=at.time_ms, state_since_clock_ms=at.clock_ms)

    def put(self, *members: Member) -> None:
        """Add members or replace them under their ids."""
        self.change(members=self.live.members | {each.member: each for each in members})

    def drop(self, member: Member) -> None:
        """Take a member out."""
        name = member.member
        self.change(members={n: each for n, each in self.live.members.items() if n != name})

    def update(self, member: Member, **fields: Any) -> Member:
        """Replace fields of one member."""
        changed = replace(member, **fields)
        self.put(changed)
        return changed


def find_member(step: Step, member_id: str, generation: int) -> Member | ErrorCode:
    """The live member of this id, or why the request must not be judged for it.

    An older generation than the group's is accepted: members that a division did not concern get no
    notice of it (rule 13). A newer one than there ever was is a defect of its sender.
    """
    if step.value is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = step.value.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_newer = is_older(step.value.generation, generation)
    return ErrorCode.ILLEGAL_GENERATION if is_newer else member


def find_own(
    step: Step, request: rq.Subscribe | rq.Release
) -> Member | tuple[ErrorCode, str | None]:
    """The member that sent this request itself, or why it is not judged, and a sentence.

    Only the member itself can tell which topics it wants, or that it has let go. Its own requests
    are recognised by the client id, as in LeaveGroup.
    """
    member = find_member(step, request.member, request.generation)
    if isinstance(member, ErrorCode):
        return member, None
    if member.client != request.client:
        return ErrorCode.INVALID_REQUEST, "Only the member itself can say that: it is not yours."
    return member


def remove(step: Step, member: Member, reason: str) -> None:
    """Take a member out; notify it, and record that for history and readers of assignments.

    The caller decides about its partitions.
    """
    step.drop(member)
    step.record(
        stored.EVENT_MEMBER_REMOVED,
        member=member.member,
        reason=reason,
        detail={"client": member.client},
    )
    notice = rs.MemberRemoved(
        group=step.name, cause=step.at.coordinate, member=member.member, reason=reason
    )
    step.emit(fx.Notify(member.reply, notice))
    step.assign(member.member, None)

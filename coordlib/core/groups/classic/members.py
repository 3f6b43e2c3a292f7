"""A step of a classic group, and the checks that requests of its members share.  # INV-18"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from coordlib.core.engine import effects as fx
from coordlib.core.engine.step import BrokenInvariant
from coordlib.core.groups.classic import group
from coordlib.core.groups.classic.group import VALID_PREVIOUS_STATES, Group, Member, State
from coordlib.core.groups.group import GroupStep, Refused
from coordlib.core.groups.offsets.pending import described as described_pending
from coordlib.core.wire import api as rq
from coordlib.core.wire import api as rs
from coordlib.errors import ErrorCode

_NOT_ASSIGNED: Final = "Sync first, then commit what is still yours: a generation has just begun."


class Step(GroupStep[Group]):
    """One classic group during one step.

    Its state changes by `enter` only, its members by `put`, `rename` and `drop`.
    """

    __slots__ = ()
    DEAD = State.DEAD

    @property
    def new_group_bytes(self) -> int:
        return group.new_group_bytes(self.name)

    def commit_fault(self, request: rq.OffsetCommit) -> Refused:
        """A member commits in its generation, once it has its assignment."""
        member = find_in_generation(self, request.member, request.instance, request.generation)
        if isinstance(member, ErrorCode):
            return member, None
        if self.live.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS, _NOT_ASSIGNED
        return None

    def member_fault(self, member: str, instance: str | None, generation: int) -> ErrorCode:
        """In every state, as in Kafka: what was read before a rebalance is still the member's."""
        found = find_in_generation(self, member, instance, generation)
        return found if isinstance(found, ErrorCode) else ErrorCode.NONE

    def change(self, **fields: Any) -> None:
        """As for all kinds, and what the members have in the blob is handed on."""
        before = self.live
        super().change(**fields)
        if "members" not in fields:
            group.carry_bytes(before, self.live)

    def enter(self, state: State, **fields: Any) -> None:
        """Change the state, along the table only, and other fields with it.  # INV-12"""
        if self.live.state not in VALID_PREVIOUS_STATES[state]:
            raise BrokenInvariant(f"{self.name}: {self.live.state.value} to {state.value}")
        at = self.at
        since = {"state_since_ms": at.time_ms, "state_since_clock_ms": at.clock_ms}
        self.change(state=state, **since, **fields)

    def put(self, *members: Member, **fields: Any) -> None:
        """Add members or replace them under their ids, and change other fields with them."""
        table = dict(self.live.members)
        replaced = []
        for member in members:
            replaced.append((table.get(member.member), member))
            table[member.member] = member
        self._change_members(table, replaced, **fields)

    def rename(self, member: Member, successor: Member) -> None:
        """Put a successor in a member's place, also in the order of members and as leader."""
        table = dict(
            (successor.member, successor) if each is member else (name, each)
            for name, each in self.live.members.items()
        )
        leader = self.live.leader
        self._change_members(
            table,
            [(member, successor)],
            leader=successor.member if leader == member.member else leader,
        )

    def drop(self, member: Member) -> None:
        """Take a member out, with the guard of the member that it replaced."""
        table = dict(self.live.members)
        del table[member.member]
        guards = {
            name: replace(guard, successor=None) if guard.successor == member.member else guard
            for name, guard in self.live.guards.items()
        }
        self._change_members(table, [(member, None)], guards=guards)

    def _change_members(
        self,
        table: dict[str, Member],
        replaced: Iterable[tuple[Member | None, Member | None]],
        **fields: Any,
    ) -> None:
        """Change the members, with both counts of their bytes."""
        before = self.live
        record_bytes = kept = 0
        for old, new in replaced:
            more = group.growth(old, new)
            record_bytes, kept = record_bytes + more[0], kept + more[1]
        self.change(members=table, size_bytes=before.size_bytes + record_bytes, **fields)
        group.carry_bytes(before, self.live, kept)

    def notify_members(self, members: Iterable[Member], notification: rs.Notification) -> None:
        """Write a notification once to each partition that one of these members reads."""
        for reply in sorted({member.reply for member in members}):
            self.emit(fx.Notify(reply, notification))


def find_member(step: Step, member_id: str, instance: str | None) -> Member | ErrorCode:
    """The member of this id, or why the request must not be judged for it."""
    if step.value is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if instance is not None:
        static = step.value.static_member(instance)
        if static is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if static.member != member_id:
            return ErrorCode.FENCED_INSTANCE_ID  # INV-19
    elif (guard := step.value.guards.get(member_id)) is not None and guard.was_replaced:
        return ErrorCode.FENCED_INSTANCE_ID
    return step.value.members.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID


def find_in_generation(
    step: Step, member_id: str, instance: str | None, generation: int
) -> Member | ErrorCode:
    """As `find_member`, and the request must belong to the current generation."""
    member = find_member(step, member_id, instance)
    if isinstance(member, Member) and step.live.generation != generation:
        return ErrorCode.ILLEGAL_GENERATION
    return member


def describe_group(step: Step, request: rq.DescribeGroup) -> None:
    """Answer with state and members. A group that does not exist is Dead, and that is no error:
    so says Kafka up to version 5 of the request (version 6 refuses it, KIP-1043).
    """
    group = step.value
    if group is None:
        step.answer(
            request,
            state=State.DEAD.value,
            generation=-1,
            protocol_type=None,
            protocol=None,
            leader=None,
            members=(),
            waits_for=(),
        )
        return
    step.answer(
        request,
        state=group.state.value,
        generation=group.generation,
        protocol_type=group.protocol_type,
        # While members change, the protocol may too.
        protocol=group.protocol if group.state is State.STABLE else None,
        leader=group.leader,
        members=tuple(described(group)),
        waits_for=tuple(awaited(group)),
        pending=described_pending(step) or UNSET,
    )


def described(group: Group) -> Iterator[rs.DescribedMember]:
    """Its members, with what they own."""
    for member in group.members.values():
        yield rs.DescribedMember(
            member.member, member.instance, member.client, member.assignment, member.host
        )


def awaited(group: Group) -> Iterator[rs.AwaitedMember]:
    """The members for which the group waits, or its next join phase will wait, and the reason."""
    for name, guard in group.guards.items():
        yield rs.AwaitedMember(name, guard.client, rs.NOT_STOPPED)
    for name, announced in group.pending.items():
        yield rs.AwaitedMember(name, announced.client, rs.NOT_JOINED)
    for member in group.members.values():
        if group.state is State.PREPARING_REBALANCE and not member.is_joining:
            yield rs.AwaitedMember(member.member, member.client, rs.NOT_REJOINED)
        elif group.sync_timer is not None and not member.has_synced:
            yield rs.AwaitedMember(member.member, member.client, rs.NOT_SYNCED)

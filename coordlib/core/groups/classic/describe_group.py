"""DescribeGroup: the group as its log has it at this place, for operators."""

from collections.abc import Iterator

from msgspec import UNSET

from coordlib.core.groups.classic.group import Group, State
from coordlib.core.groups.classic.step import Step
from coordlib.core.groups.offsets.pending import described as described_pending
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs


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

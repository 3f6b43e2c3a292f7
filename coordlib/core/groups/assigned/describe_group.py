"""DescribeGroup: the group as its log has it at this place, for operators."""

from collections.abc import Iterator

from msgspec import UNSET

from coordlib.core.groups.assigned.group import Group, State
from coordlib.core.groups.assigned.reconciliation import encoded
from coordlib.core.groups.assigned.step import Step
from coordlib.core.groups.offsets.pending import described as described_pending
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs


def describe_group(step: Step, request: rq.DescribeGroup) -> None:
    """Answer with state and members; assignments in the layout of Kafka's consumers."""
    group = step.value
    step.answer(
        request,
        kind=step.kind.NAME,
        state=(group.state if group else State.DEAD).value,
        generation=group.generation if group else -1,
        protocol_type=group.protocol_type if group else None,
        protocol=group.protocol if group else None,
        leader=None,
        members=tuple(described(group)) if group else (),
        waits_for=tuple(awaited(group)) if group else (),
        pending=described_pending(step) or UNSET,
    )


def described(group: Group) -> Iterator[rs.DescribedMember]:
    """Its members, with all partitions that they may be working on."""
    for member in group.members.values():
        yield rs.DescribedMember(
            member.member, None, member.client, encoded(member.owned), member.host
        )


def awaited(group: Group) -> Iterator[rs.AwaitedMember]:
    """The members that still hold partitions that others are to have."""
    for name, guard in group.guards.items():
        yield rs.AwaitedMember(name, guard.client, rs.NOT_STOPPED)
    for member in group.members.values():
        if member.demands:
            yield rs.AwaitedMember(member.member, member.client, rs.NOT_RELEASED)

"""Members go: LeaveGroup, heartbeats of members that were removed, guards; and DescribeGroup.

A member that leaves by itself has stopped working, so its partitions are granted to others at once.
A member that an operator removes may still be at work: its partitions are guarded (rule 14). Its
own fence stops it one session after its last heartbeat that the log took (rule 8), or because it
cannot read that it was removed (rule 9). The guard ends earlier when it reports that it stopped.
"""

from collections.abc import Iterator, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from coordlib.core.engine.time import reaction
from coordlib.core.groups.assigned import division, reconciliation
from coordlib.core.groups.assigned.group import Group, Guard, Member, State, Step, remove_member
from coordlib.core.groups.assigned.reconciliation import encoded
from coordlib.core.groups.offsets.pending import described as described_pending
from coordlib.core.wire import api, stored
from coordlib.core.wire.groups import with_reason
from coordlib.errors import ErrorCode


def place_guard(step: Step, owner: Member, reason: str) -> None:
    """Guard this member's partitions, if it may still be working on them."""
    clock_ms = step.at.clock_ms
    # Until a tick covers its newest answer its session has not begun to run.
    heard_ms = (
        clock_ms if owner.awaits_cover is not None else step.heard.get(owner.member, clock_ms)
    )
    due_ms = heard_ms + owner.session_timeout_ms
    if not owner.owned or due_ms <= clock_ms:
        return
    guard = Guard(
        client=owner.client,
        session_timeout_ms=owner.session_timeout_ms,
        due_ms=due_ms,
        notice=reaction(owner.rebalance_timeout_ms, step.at.offset),
        partitions=owner.owned,
    )
    step.change(guards={**step.live.guards, owner.member: guard})
    step.record(
        stored.EVENT_HAND_OVER_DELAYED,
        member=owner.member,
        reason=reason,
        detail={
            "client": owner.client,
            "successor": None,
            "wait_ms": min(due_ms - clock_ms, owner.rebalance_timeout_ms),
            "wait_max_ms": owner.rebalance_timeout_ms,
        },
    )


def renew_guard(step: Step, member_id: str) -> None:
    """A former owner heartbeats: by its own clock it may work for one session from now."""
    guard = step.value.guards.get(member_id) if step.value else None
    if guard is not None:
        due_ms = step.at.clock_ms + guard.session_timeout_ms
        step.change(guards={**step.live.guards, member_id: replace(guard, due_ms=due_ms)})


def drop_guard(step: Step, member_id: str) -> None:
    """Remove a guard whose owner has stopped. Call `conclude_guards` next, or divide anew."""
    step.change(guards={name: g for name, g in step.live.guards.items() if name != member_id})


def conclude_guards(step: Step, before: Mapping[str, Member]) -> None:
    """Grant the partitions of ended guards. `before`: the members before this step."""
    if not step.live.members and not step.live.guards:
        step.enter(State.EMPTY)
        step.record(stored.EVENT_GROUP_EMPTIED, reason="former owner stopped")
        return
    division.go_on(step)
    reconciliation.tell(step, before)


def heartbeat(step: Step, request: api.Heartbeat) -> None:
    """Judge one Heartbeat."""
    if step.value is not None and request.member in step.value.members:
        step.touched.append(request.member)  # it named an instance; these groups have none
        return
    renew_guard(step, request.member)
    step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)


def leave_group(step: Step, request: api.LeaveGroup) -> None:
    """Judge one LeaveGroup. An absent group answers UNKNOWN_MEMBER_ID in every row."""
    start = step.value
    rows = tuple(leaver.left(_judge(step, request, leaver)) for leaver in request.members)
    step.answer(request, members=rows)
    if start is None:
        return
    if step.live.members.keys() != start.members.keys():
        detail = with_reason({"client": request.client}, request.reason)
        division.renew(step, "member left", detail)
        reconciliation.tell(step, start.members)
    elif step.live.guards.keys() != start.guards.keys():
        conclude_guards(step, start.members)


def _judge(step: Step, request: api.LeaveGroup, leaver: api.Leaver) -> ErrorCode:
    if step.value is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    guard = step.live.guards.get(leaver.member)
    if guard is not None and guard.client == request.client:
        drop_guard(step, leaver.member)  # the former owner itself says that it stopped
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = step.live.members.get(leaver.member)
    if member is None or leaver.instance is not None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_itself = member.client == request.client
    if request.remain and not is_itself:
        return ErrorCode.INVALID_REQUEST  # only the member itself can tell that it has stopped
    reason = request.why(is_itself)
    if not is_itself:
        place_guard(step, member, reason)
    remove_member(step, member, reason)
    return ErrorCode.NONE


def describe_group(step: Step, request: api.DescribeGroup) -> None:
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


def described(group: Group) -> Iterator[api.DescribedMember]:
    """Its members, with all partitions that they may be working on."""
    for member in group.members.values():
        yield api.DescribedMember(
            member.member, None, member.client, encoded(member.owned), member.host
        )


def awaited(group: Group) -> Iterator[api.AwaitedMember]:
    """The members that still hold partitions that others are to have."""
    for name, guard in group.guards.items():
        yield api.AwaitedMember(name, guard.client, api.NOT_STOPPED)
    for member in group.members.values():
        if member.demands:
            yield api.AwaitedMember(member.member, member.client, api.NOT_RELEASED)

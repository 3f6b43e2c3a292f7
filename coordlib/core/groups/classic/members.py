"""Members go: LeaveGroup, heartbeats that find no member, and guards of former owners.

A member that leaves by itself has stopped working. Differs from Kafka's Java coordinator, as its
Scala one did: an announced id that leaves begins no rebalance.

A static member is replaced by a newer process of its instance id, or an operator removes a member.
It may be alive and working, and read of it late. Its own fence stops it one session
after its last heartbeat that the log took (rule 8), and every such heartbeat stands in this shard's
log. So a guard is placed: until then no join phase completes, and a static successor waits for its
assignment. The guard ends earlier when the former owner itself reports that it has stopped, by a
LeaveGroup for its own id: coordlib's client sends it when it has read that it was removed and its
user has let go. It also ends when the former owner had its rebalance timeout to read that it was
removed (rule 9), even if it heartbeats on. Source: rule 14.
"""

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from coordlib.core.engine.time import reaction
from coordlib.core.groups.classic import rebalance
from coordlib.core.groups.classic.group import Group, Guard, Member, State, Step
from coordlib.core.groups.classic.rebalance import issue, send_assignment
from coordlib.core.groups.offsets.pending import described as described_pending
from coordlib.core.wire import api, stored
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.groups import with_reason
from coordlib.errors import ErrorCode


def place_guard(step: Step, owner: Member, reason: str, successor: str | None = None) -> None:
    """Guard what this owner has, if it has anything; `reason`: why it owns it no more."""
    due_ms = _heard_ms(step, owner) + owner.session_timeout_ms
    # No member expires while parked: its fence may have closed long ago.
    may_work = _may_work(step, owner) and due_ms > step.at.clock_ms
    # If a waiting successor is itself replaced, its replacement waits instead.
    guards = {
        name: replace(guard, successor=successor) if guard.successor == owner.member else guard
        for name, guard in step.live.guards.items()
    }
    if may_work:
        guards[owner.member] = Guard(
            member=owner.member,
            client=owner.client,
            first_id=owner.first_id,
            session_timeout_ms=owner.session_timeout_ms,
            due_ms=due_ms,
            notice=reaction(owner.rebalance_timeout_ms, step.at.offset),
            successor=successor,
            was_replaced=successor is not None,
        )
    step.change(guards=guards)
    if may_work:
        _record_delay(step, owner, guards[owner.member], reason)


def _record_delay(step: Step, owner: Member, guard: Guard, reason: str) -> None:
    """Record how long others wait, on the shard's clock: without further heartbeats, and at most.

    The latter counts from when it could read that it is out.
    """
    wait_max_ms = guard.notice.duration_ms
    step.record(
        stored.EVENT_HAND_OVER_DELAYED,
        member=owner.member,
        reason=reason,
        detail={
            "client": owner.client,
            "successor": guard.successor,
            "wait_ms": min(max(guard.due_ms - step.at.clock_ms, 0), wait_max_ms),
            "wait_max_ms": wait_max_ms,
        },
    )


def _may_work(step: Step, owner: Member) -> bool:
    """Whether it was given something and has not let go of it.

    A parked JoinGroup or SyncGroup is consent, but for what its subscription names as owned.
    """
    was_given = (
        step.live.fence >= 0
        and not owner.is_new
        and not step.live.awaits_former_owner(owner.member)
    )
    has_let_go = owner.has_let_go or (owner.parked is not None and not _keeps(step.live, owner))
    return was_given and not has_let_go


def _keeps(group: Group, owner: Member) -> bool:
    """Whether it works while it joins (KIP-429); read from a consumer's subscription.

    The metadata of other protocol types are opaque here; their JoinGroup is consent.
    """
    if group.protocol_type != cp.CONSUMER:
        return False
    try:
        return any(cp.decode_subscription(offer.metadata).owned for offer in owner.protocols)
    except cp.Unreadable:
        return True


def _heard_ms(step: Step, owner: Member) -> int:
    """When its newest row of heartbeats may have begun to count for it.

    The answer to a JoinGroup or SyncGroup counts as a heartbeat, and until a tick covers it the
    shard's own note of when the member was heard is older than that.
    """
    if owner.awaits_cover is not None:
        return step.at.clock_ms
    return step.heard.get(owner.member, step.at.clock_ms)


def renew_guard(step: Step, member_id: str) -> None:
    """A former owner heartbeats: by its own clock it may work for one session from now."""
    guard = step.live.guards[member_id]
    due_ms = step.at.clock_ms + guard.session_timeout_ms
    step.change(guards={**step.live.guards, member_id: replace(guard, due_ms=due_ms)})


def end_guard(step: Step, member_id: str) -> None:
    """The former owner has stopped: its successor has the assignment now."""
    successor = step.live.guards[member_id].successor
    step.change(guards={name: g for name, g in step.live.guards.items() if name != member_id})
    if step.live.state is State.STABLE and successor is not None:
        hand_over(step, step.live.members[successor])


def hand_over(step: Step, member: Member) -> None:
    """Give a static successor the assignment of the member it replaced, unless it must wait."""
    if step.live.awaits_former_owner(member.member):
        return
    issue(step, member)
    if member.parked is not None:
        send_assignment(step, member, member.parked)
        step.put(replace(member, parked=None, awaits_cover=step.at.offset))


def lift_guard(step: Step, member_id: str) -> None:
    """As `end_guard`, and complete a join phase that waited for this guard alone."""
    end_guard(step, member_id)
    rebalance.go_on(step)


def heartbeat(step: Step, request: api.Heartbeat) -> None:
    """Judge one Heartbeat. Accepted in CompletingRebalance too (KAFKA-10134)."""
    member = step.find_in_generation(request.member, request.instance, request.generation)
    if isinstance(member, ErrorCode):
        if step.value is not None and request.member in step.value.guards:
            renew_guard(step, request.member)
        step.refuse(request, member)
        return
    step.touched.append(member.member)
    if step.live.state is State.PREPARING_REBALANCE:
        step.refuse(request, ErrorCode.REBALANCE_IN_PROGRESS)


def leave_group(step: Step, request: api.LeaveGroup) -> None:
    """Judge one LeaveGroup. An absent group answers UNKNOWN_MEMBER_ID in every row."""
    before = step.value
    rows = tuple(leaver.left(_judge(step, request, leaver)) for leaver in request.members)
    step.answer(request, members=rows)
    if before is None:
        return
    if step.live.members.keys() != before.members.keys():
        detail = with_reason({"client": request.client}, request.reason)
        rebalance.membership_changed(step, "member left", detail)
    rebalance.go_on(step)


def _judge(step: Step, request: api.LeaveGroup, leaver: api.Leaver) -> ErrorCode:
    if step.value is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if leaver.member in step.live.pending:
        rebalance.forget_announced(step, leaver.member)
        return ErrorCode.NONE
    member = _find(step, leaver)
    if isinstance(member, ErrorCode):
        guard = step.live.guards.get(leaver.member)
        if guard is not None and guard.client == request.client:
            end_guard(step, leaver.member)  # the former owner itself says that it stopped
        return member
    # A newer process of the same configuration has the client id too, but not the member id.
    is_itself = member.client == request.client and member.member == leaver.member
    if request.remain and not is_itself:
        return ErrorCode.INVALID_REQUEST  # only the member itself can tell that it has stopped
    if request.remain and member.instance is not None:
        step.put(replace(member, has_let_go=True))
        return ErrorCode.NONE
    reason = request.why(is_itself)
    if not is_itself:
        place_guard(step, member, reason)
    rebalance.remove(step, member, reason)
    return ErrorCode.NONE


def _find(step: Step, leaver: api.Leaver) -> Member | ErrorCode:
    """By member id, or (an operator) by instance id alone."""
    if leaver.member == "" and leaver.instance is not None:
        return step.live.static_member(leaver.instance) or ErrorCode.UNKNOWN_MEMBER_ID
    return step.find_member(leaver.member, leaver.instance)


def describe_group(step: Step, request: api.DescribeGroup) -> None:
    """Answer with state and members. A group that does not exist is Dead, and that is no error:
    so says Kafka up to version 5 of the request (version 6 refuses it, KIP-1043).
    """
    group = step.value
    step.answer(
        request,
        state=(group.state if group else State.DEAD).value,
        generation=group.generation if group else -1,
        protocol_type=group.protocol_type if group else None,
        # While members change, the protocol may too.
        protocol=group.protocol if group and group.state is State.STABLE else None,
        leader=group.leader if group else None,
        members=tuple(described(group)) if group else (),
        waits_for=tuple(awaited(group)) if group else (),
        pending=described_pending(step) or UNSET,
    )


def described(group: Group) -> Iterator[api.DescribedMember]:
    """Its members, with what they own."""
    for member in group.members.values():
        yield api.DescribedMember(
            member.member, member.instance, member.client, member.assignment, member.host
        )


def awaited(group: Group) -> Iterator[api.AwaitedMember]:
    """The members for which the group waits, or its next join phase will wait, and the reason."""
    for name, guard in group.guards.items():
        yield api.AwaitedMember(name, guard.client, api.NOT_STOPPED)
    for name, announced in group.pending.items():
        yield api.AwaitedMember(name, announced.client, api.NOT_JOINED)
    for member in group.members.values():
        if group.state is State.PREPARING_REBALANCE and not member.is_joining:
            yield api.AwaitedMember(member.member, member.client, api.NOT_REJOINED)
        elif group.sync_timer is not None and not member.has_synced:
            yield api.AwaitedMember(member.member, member.client, api.NOT_SYNCED)

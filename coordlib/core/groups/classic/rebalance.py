"""How a group gets from one generation to the next.

    members change ──▶ prepare ──▶ everybody has joined, or time is up ──▶ complete ──▶ the
    leader syncs (`sync.py`) ──▶ Stable

Every change of membership goes through the few functions here, so that each of them ends with
the question "has everybody joined now?" — the question whose absence has made groups hang in
many implementations. Source: `GroupMetadataManager.java`, seeds 000 and 002, KIP-134.

Announced ids were handed out with MEMBER_ID_REQUIRED (KIP-394), to clients that cannot know their
id from the produce acknowledgement: a retry finds its first id instead of making another member. An
announced id keeps a join phase open until it joins or its time is up. As in Kafka it has no place
in the group yet: a group may be full when it joins.
"""

from typing import Final

from msgspec.structs import replace

from coordlib.core.engine import effects as fx
from coordlib.core.engine.step import refusal
from coordlib.core.engine.time import plain, reaction
from coordlib.core.groups.classic.group import Announced, Failure, Member, Parked, State, Step
from coordlib.core.groups.group import next_generation
from coordlib.core.wire import api, stored
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import ErrorCode

#: For a parked request of a member that has sent another one since.
_SUPERSEDED: Final = "Wait for the answer to your newer request, which took the place of this one."


def membership_changed(step: Step, reason: str, detail: dict[str, str]) -> None:
    """A member came, went or changed: begin a rebalance, or see whether one is complete."""
    if step.live.state is State.PREPARING_REBALANCE:
        complete_if_all_joined(step)
    else:
        prepare(step, reason, detail)


def prepare(step: Step, reason: str, detail: dict[str, str] | None = None) -> None:
    """Ask everybody to join again."""
    was_empty = step.live.state is State.EMPTY
    _abandon_sync(step, step.live.state is State.COMPLETING_REBALANCE)
    step.enter(
        State.PREPARING_REBALANCE,
        sync_timer=None,
        failure=None,
        rebalance_reason=reason,
        rebalance_started_ms=step.at.time_ms,
    )
    step.record(stored.EVENT_REBALANCE_STARTED, reason=reason, detail=detail or {})
    if was_empty:
        _start_initial_delay(step)
    elif not step.live.members:
        complete(step)  # no member is left to be asked
    else:
        _ask_to_rejoin(step)
        complete_if_all_joined(step)


def _abandon_sync(step: Step, is_unassigned: bool) -> None:
    """The assignment of this generation will not come: refuse the SyncGroups that wait for it."""
    for member in list(step.live.members.values()):
        if member.is_syncing:
            step.put(answer_parked(step, member, ErrorCode.REBALANCE_IN_PROGRESS))
    if is_unassigned:
        step.put(*(replace(m, assignment=b"") for m in step.live.members.values()))


def _start_initial_delay(step: Step) -> None:
    """KIP-134: the first rebalance of an empty group waits a little for more members."""
    delay_ms = step.family.config.initial_rebalance_delay_ms
    step.change(
        join_timer=plain(delay_ms, step.at.offset, step.at.clock_ms),
        initial_remaining_ms=max(step.live.rebalance_timeout_ms - delay_ms, 0),
        has_newcomer=False,
    )
    if delay_ms == 0:
        complete(step)


def _ask_to_rejoin(step: Step) -> None:
    group = step.live
    step.change(join_timer=reaction(group.rebalance_timeout_ms, step.at.offset))
    step.notify_members(
        [member for member in group.members.values() if not member.is_joining],
        api.RebalanceInProgress(
            group=group.group, cause=step.at.coordinate, generation=group.generation
        ),
    )


def complete_if_all_joined(step: Step) -> None:
    """Complete the join phase, but never before the initial delay ends: members may still come."""
    group = step.live
    if group.state is State.PREPARING_REBALANCE and not group.is_initial and group.all_joined:
        complete(step)


def initial_delay_over(step: Step) -> None:
    """Wait again if a member came meanwhile, at most for the rebalance timeout in all."""
    group = step.live
    timer, remaining = group.join_timer, group.initial_remaining_ms
    # Both may be 0: the time is used up, or the job has started anew without a delay.
    delay_ms = min(step.family.config.initial_rebalance_delay_ms, remaining or 0)
    if timer is None or not (group.has_newcomer and delay_ms):
        complete(step)
        return
    step.change(
        has_newcomer=False,
        join_timer=plain(delay_ms, step.at.offset, step.at.clock_ms),
        initial_remaining_ms=max((remaining or 0) - timer.duration_ms, 0),
    )


def complete(step: Step) -> None:
    """End the join phase: members that joined go on to the next generation, others are removed."""
    if step.live.guards:
        # Overdue, but a former owner may still be at work: nothing is handed on yet (rule 14).
        step.change(join_timer=None, is_overdue=True)
        return
    step.change(join_timer=None, initial_remaining_ms=None, has_newcomer=False, is_overdue=False)
    for member in [m for m in step.live.members.values() if not m.is_joining]:
        if member.instance is None:
            remove(step, member, "did not rejoin in time")
    if step.live.members and not any(m.is_joining for m in step.live.members.values()):
        # Only absent static members are left: ask them once more (KAFKA-9801).
        step.change(join_timer=reaction(step.live.rebalance_timeout_ms, step.at.offset))
        return
    _elect_leader_among_joined(step)
    step.change(generation=next_generation(step.live.generation))
    if step.live.members:
        _begin_generation(step)
    else:
        _become_empty(step)


def go_on(step: Step) -> None:
    """Check whether the join phase is complete, after an announced id or a guard has ended."""
    if step.live.is_overdue and not step.live.guards:
        complete(step)
    else:
        complete_if_all_joined(step)


def _become_empty(step: Step) -> None:
    step.enter(State.EMPTY, protocol=None)
    step.record(stored.EVENT_GROUP_EMPTIED, reason=step.live.rebalance_reason)


def _begin_generation(step: Step) -> None:
    step.enter(
        State.COMPLETING_REBALANCE,
        protocol=select_protocol(list(step.live.members.values())),
        sync_timer=reaction(step.live.rebalance_timeout_ms, step.at.offset),
    )
    for member in step.live.members.values():
        answer_join(step, member, member.parked)
    step.put(
        *(
            replace(
                member,
                parked=None,
                is_new=False,
                has_synced=False,
                # An absent static member got no answer: its session goes on as it was.
                awaits_cover=step.at.offset if member.is_joining else member.awaits_cover,
            )
            for member in step.live.members.values()
        )
    )
    _record_generation(step)


def _record_generation(step: Step) -> None:
    group = step.live
    step.record(
        stored.EVENT_GENERATION_STARTED,
        reason=group.rebalance_reason,
        detail={
            "protocol_type": group.protocol_type,
            "protocol": group.protocol,
            "leader": group.leader,
            "members": list(group.members),
            "duration_ms": step.at.time_ms - group.rebalance_started_ms,
        },
    )


def stop_sync_timer_when_all_synced(step: Step) -> None:
    """Stop the timer when every member has asked for its assignment, or was replaced since."""
    if all(member.has_synced for member in step.live.members.values()):
        step.change(sync_timer=None)


def select_protocol(members: list[Member]) -> str | None:
    """Each member votes for the first protocol in its list that all support; most votes win.

    Ties go to whatever the longest-standing member prefers (Kafka leaves them open).
    """
    names = [{offered.name for offered in member.protocols} for member in members]
    common = set.intersection(*names)
    votes: dict[str, int] = {}
    for offered in members[0].protocols:
        if offered.name in common:
            votes[offered.name] = 0
    for member in members:
        choice = next((p.name for p in member.protocols if p.name in common), None)
        if choice is not None:
            votes[choice] += 1
    return max(votes, key=lambda name: votes[name], default=None)


def answer_join(
    step: Step, member: Member, parked: Parked | None, is_static_return: bool = False
) -> None:
    """Answer a member's JoinGroup; the leader's answer has the metadata of all members.

    A leader that comes back under its instance id must not assign again (KIP-814).
    """
    if parked is None:
        return
    group = step.live
    is_leader = member.member == group.leader
    step.emit(
        fx.Respond(
            parked.reply,
            api.JoinGroupResponse(
                **parked.envelope(group.group),
                generation=group.generation,
                protocol_type=group.protocol_type,
                protocol=group.protocol,
                leader=group.leader or "",
                member=member.member,
                members=_seen_by_leader(step, is_static_return) if is_leader else (),
                skip_assignment=is_static_return and is_leader,
            ),
        )
    )


def _seen_by_leader(step: Step, with_assignments: bool) -> tuple[api.JoinedMember, ...]:
    protocol = step.live.protocol
    return tuple(
        api.JoinedMember(
            member=member.member,
            instance=member.instance,
            metadata=member.metadata_for(protocol),
            assignment=member.assignment if with_assignments else b"",
        )
        for member in step.live.members.values()
    )


def supersede(step: Step, member: Member, kind: str, request: api.Request) -> Member:
    """Refuse a member's parked request if it sends another one. A repeat of it replaces it.

    # INV-17: no other code would ever answer the older request.
    """
    parked = member.parked
    if parked is None or (parked.kind, parked.id, parked.client) == (
        kind,
        request.id,
        request.client,
    ):
        return member
    return answer_parked(step, member, ErrorCode.REBALANCE_IN_PROGRESS, _SUPERSEDED)


def answer_parked(
    step: Step, member: Member, code: ErrorCode, message: str | None = None
) -> Member:
    """Refuse a member's parked request, if any; its session starts when it can read the refusal."""
    parked = member.parked
    if parked is None:
        return member
    fields = {**parked.envelope(step.name), **refusal(code, message)}
    if member.is_joining:
        response: api.Response = api.JoinGroupResponse(**fields, member=member.member)
    else:
        response = api.SyncGroupResponse(**fields)
    step.emit(fx.Respond(parked.reply, response))
    return replace(member, parked=None, awaits_cover=step.at.offset)


def remove(step: Step, member: Member, reason: str) -> None:
    """Take a member out of the group. The caller decides what that changes for the group.

    Its parked request is refused, it gets a notice, and its assignment is withdrawn.
    """
    answer_parked(step, member, ErrorCode.UNKNOWN_MEMBER_ID)
    step.drop(member)
    step.tell_removed(member, reason)
    if step.live.leader == member.member:
        _elect_leader(step)


def _elect_leader_among_joined(step: Step) -> None:
    """A static member that leads and did not rejoin cannot assign."""
    group = step.live
    if group.leader is not None and not group.members[group.leader].is_joining:
        _elect_leader(step)


def _elect_leader(step: Step) -> None:
    """Elect the first member that has joined already, else the longest-standing one."""
    members = list(step.live.members.values())
    joined = [member for member in members if member.is_joining]
    step.change(leader=next((member.member for member in joined or members), None))


def issue(step: Step, member: Member) -> None:
    """Write the share to `coord.assignments` and into history."""
    group, at = step.live, step.at
    value = stored.AssignmentValue(
        generation=group.generation,
        protocol=group.protocol,
        assignment=member.assignment,
        fence=member.fence,
        since_ms=at.time_ms,
    )
    step.assign(member.member, value)
    step.record(
        stored.EVENT_ASSIGNMENT_ISSUED,
        member=member.member,
        detail={
            "fence": member.fence,
            # The same for all shares of one assignment; a static successor's fence is newer.
            "sync": group.fence,
            **_readable(group.protocol_type, member.assignment),
        },
    )


def _readable(protocol_type: str | None, assignment: bytes) -> dict[str, object]:
    """Partitions for consumers, bytes for all others and for what no consumer could read."""
    if protocol_type == cp.CONSUMER:
        try:
            return {"partitions": cp.decode_assignment(assignment).partitions}
        except cp.Unreadable as problem:
            return {"bytes": assignment, "unreadable": str(problem)}
    return {"bytes": assignment}


def record_failure(step: Step, client: str, failure: Failure) -> None:
    """Record in history why this generation has no assignment."""
    step.record(
        stored.EVENT_ASSIGNMENT_FAILED,
        member=step.live.leader or "",
        reason=failure.reason,
        detail={"client": client, "error": failure.error},
    )


def send_assignment(step: Step, member: Member, parked: Parked | None) -> None:
    """Answer a SyncGroup with the member's share; it is empty where the leader gave an error."""
    if parked is None:
        return
    group, failure = step.live, step.live.failure
    failed = {} if failure is None else refusal(ErrorCode[failure.error], failure.reason)
    step.emit(
        fx.Respond(
            parked.reply,
            api.SyncGroupResponse(
                **parked.envelope(group.group),
                **failed,
                protocol_type=group.protocol_type,
                protocol=group.protocol,
                assignment=member.assignment,
                fence=member.fence,
            ),
        )
    )


def announce(step: Step, request: api.JoinGroup, member_id: str) -> None:
    """Hand out an id, perhaps again; the member joins with it."""
    announced = Announced(
        timer=reaction(request.session_timeout_ms, step.at.offset),
        client=request.client,
        first_id=request.id,
    )
    step.change(pending={**step.live.pending, member_id: announced})
    step.refuse(request, ErrorCode.MEMBER_ID_REQUIRED, member=member_id)


def forget_announced(step: Step, member_id: str) -> None:
    """Remove an announced id that has joined, or has gone."""
    step.change(pending={n: a for n, a in step.live.pending.items() if n != member_id})


def drop_announced(step: Step, member_id: str) -> None:
    """Give up an announced id; the join phase may have waited for it alone."""
    forget_announced(step, member_id)
    go_on(step)

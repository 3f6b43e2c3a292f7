"""How a group gets from one generation to the next.

    members change ──▶ prepare ──▶ everybody has joined, or time is up ──▶ complete ──▶ the
    leader syncs (sync_group.py) ──▶ Stable

Every change of membership goes through the few functions here, so that each of them ends with
the question "has everybody joined now?" — the question whose absence has made groups hang in
many implementations. Source: `GroupMetadataManager.java`, seeds 000 and 002, KIP-134.
"""

from typing import Final

from msgspec.structs import replace

from coordlib.coordinators.groups.classic.draft import Draft
from coordlib.coordinators.groups.classic.group import Member, Parked, State
from coordlib.coordinators.groups.generations import after
from coordlib.coordinators.shard import clock as deadlines
from coordlib.coordinators.shard.transition import refusal
from coordlib.effects import effect as fx
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import responses as rs
from coordlib.records import stored

#: For a parked request of a member that has sent another one since.
_SUPERSEDED: Final = "Wait for the answer to your newer request, which took the place of this one."


def membership_changed(draft: Draft, reason: str, detail: dict[str, str] | None = None) -> None:
    """A member came, went or changed: begin a rebalance, or see whether one is complete."""
    if draft.live.state is State.PREPARING_REBALANCE:
        complete_if_all_joined(draft)
    else:
        prepare(draft, reason, detail)


def prepare(draft: Draft, reason: str, detail: dict[str, str] | None = None) -> None:
    """Ask everybody to join again."""
    was_empty = draft.live.state is State.EMPTY
    _abandon_sync(draft, draft.live.state is State.COMPLETING_REBALANCE)
    draft.enter(State.PREPARING_REBALANCE)
    draft.change(
        sync_timer=None,
        failure=None,
        rebalance_reason=reason,
        rebalance_started_ms=draft.at.time_ms,
    )
    draft.record(stored.EVENT_REBALANCE_STARTED, reason=reason, detail=detail or {})
    if was_empty:
        _start_initial_delay(draft)
    elif not draft.live.members:
        complete(draft)  # nobody is left to be asked
    else:
        _ask_to_rejoin(draft)
        complete_if_all_joined(draft)


def _abandon_sync(draft: Draft, is_unassigned: bool) -> None:
    """The assignment of this generation will not come: answer those who wait for it."""
    for member in list(draft.live.members.values()):
        if member.is_syncing:
            draft.put(answer_parked(draft, member, ErrorCode.REBALANCE_IN_PROGRESS))
    if is_unassigned:
        draft.put(*(replace(m, assignment=b"") for m in draft.live.members.values()))


def _start_initial_delay(draft: Draft) -> None:
    """KIP-134: the first rebalance of an empty group waits a little for more members."""
    delay_ms = draft.config.initial_rebalance_delay_ms
    draft.change(
        join_timer=deadlines.plain(delay_ms, draft.at.offset, draft.at.clock_ms),
        initial_remaining_ms=max(draft.live.rebalance_timeout_ms - delay_ms, 0),
        has_newcomer=False,
    )
    if delay_ms == 0:
        complete(draft)


def _ask_to_rejoin(draft: Draft) -> None:
    group = draft.live
    draft.change(join_timer=deadlines.reaction(group.rebalance_timeout_ms, draft.at.offset))
    draft.notify_members(
        (member for member in group.members.values() if not member.is_joining),
        rs.RebalanceInProgress(
            group=group.group, cause=draft.at.coordinate, generation=group.generation
        ),
    )


def complete_if_all_joined(draft: Draft) -> None:
    """Never cuts the initial delay short: more members may be about to come."""
    group = draft.live
    if group.state is State.PREPARING_REBALANCE and not group.is_initial and group.all_joined:
        complete(draft)


def initial_delay_over(draft: Draft) -> None:
    """Wait once more if somebody came meanwhile, at most for the rebalance timeout in all."""
    group = draft.live
    timer, remaining = group.join_timer, group.initial_remaining_ms
    if timer is None or remaining is None or not (group.has_newcomer and remaining):
        complete(draft)
        return
    delay_ms = min(draft.config.initial_rebalance_delay_ms, remaining)
    draft.change(
        has_newcomer=False,
        join_timer=deadlines.plain(delay_ms, draft.at.offset, draft.at.clock_ms),
        initial_remaining_ms=max(remaining - timer.duration_ms, 0),
    )


def complete(draft: Draft) -> None:
    """The join phase ends: who has joined is in the next generation, who has not is out."""
    if draft.live.guards:
        # Overdue, but a former owner may still be at work: nothing is handed on yet (rule 14).
        draft.change(join_timer=None, is_overdue=True)
        return
    draft.change(join_timer=None, initial_remaining_ms=None, has_newcomer=False, is_overdue=False)
    for member in [m for m in draft.live.members.values() if not m.is_joining]:
        if member.instance is None:
            remove(draft, member, "did not rejoin in time")
    if draft.live.members and not any(m.is_joining for m in draft.live.members.values()):
        # Only absent static members are left: ask them once more (KAFKA-9801).
        draft.change(
            join_timer=deadlines.reaction(draft.live.rebalance_timeout_ms, draft.at.offset)
        )
        return
    _elect_leader_among_joined(draft)
    draft.change(generation=after(draft.live.generation))
    if draft.live.members:
        _begin_generation(draft)
    else:
        _become_empty(draft)


def go_on(draft: Draft) -> None:
    """Something that a join phase may have waited for is over: an announced id, a guard."""
    if draft.live.is_overdue and not draft.live.guards:
        complete(draft)
    else:
        complete_if_all_joined(draft)


def _become_empty(draft: Draft) -> None:
    draft.enter(State.EMPTY)
    draft.change(protocol=None)
    draft.record(stored.EVENT_GROUP_EMPTIED, reason=draft.live.rebalance_reason)


def _begin_generation(draft: Draft) -> None:
    draft.enter(State.COMPLETING_REBALANCE)
    draft.change(
        protocol=select_protocol(list(draft.live.members.values())),
        sync_timer=deadlines.reaction(draft.live.rebalance_timeout_ms, draft.at.offset),
    )
    for member in draft.live.members.values():
        answer_join(draft, member, member.parked)
    draft.put(
        *(
            replace(
                member,
                parked=None,
                is_new=False,
                has_synced=False,
                # An absent static member got no answer: its session goes on as it was.
                awaits_cover=draft.at.offset if member.is_joining else member.awaits_cover,
            )
            for member in draft.live.members.values()
        )
    )
    _record_generation(draft)


def _record_generation(draft: Draft) -> None:
    group = draft.live
    draft.record(
        stored.EVENT_GENERATION_STARTED,
        reason=group.rebalance_reason,
        detail={
            "protocol_type": group.protocol_type,
            "protocol": group.protocol,
            "leader": group.leader,
            "members": list(group.members),
            "duration_ms": draft.at.time_ms - group.rebalance_started_ms,
        },
    )


def stop_sync_timer_when_all_synced(draft: Draft) -> None:
    """Nobody is waited for any more: each has asked for its share, or was replaced since."""
    if all(member.has_synced for member in draft.live.members.values()):
        draft.change(sync_timer=None)


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
    draft: Draft, member: Member, parked: Parked | None, is_static_return: bool = False
) -> None:
    """Tell a member its generation; its leader gets everybody's metadata too.

    A leader that comes back under its instance id must not assign again (KIP-814).
    """
    if parked is None:
        return
    group = draft.live
    is_leader = member.member == group.leader
    draft.emit(
        fx.Respond(
            parked.reply,
            rs.JoinGroupResponse(
                **parked.envelope(group.group),
                generation=group.generation,
                protocol_type=group.protocol_type,
                protocol=group.protocol,
                leader=group.leader or "",
                member=member.member,
                members=_seen_by_leader(draft, is_static_return) if is_leader else (),
                skip_assignment=is_static_return and is_leader,
            ),
        )
    )


def _seen_by_leader(draft: Draft, with_assignments: bool) -> tuple[rs.JoinedMember, ...]:
    protocol = draft.live.protocol
    return tuple(
        rs.JoinedMember(
            member=member.member,
            instance=member.instance,
            metadata=member.metadata_for(protocol),
            assignment=member.assignment if with_assignments else b"",
        )
        for member in draft.live.members.values()
    )


def supersede(draft: Draft, member: Member, kind: str, request: rq.Request) -> Member:
    """Refuse what a member waits for when it asks for something else; the same again is no more.

    # INV-17: nobody else would ever answer the older request.
    """
    parked = member.parked
    if parked is None or (parked.kind, parked.id, parked.client) == (
        kind,
        request.id,
        request.client,
    ):
        return member
    return answer_parked(draft, member, ErrorCode.REBALANCE_IN_PROGRESS, _SUPERSEDED)


def answer_parked(
    draft: Draft, member: Member, code: ErrorCode, message: str | None = None
) -> Member:
    """Refuse the request that a member waits on, if any; its session waits until it can hear."""
    parked = member.parked
    if parked is None:
        return member
    fields = {**parked.envelope(draft.name), **refusal(code, message)}
    if member.is_joining:
        response: rs.Response = rs.JoinGroupResponse(**fields, member=member.member)
    else:
        response = rs.SyncGroupResponse(**fields)
    draft.emit(fx.Respond(parked.reply, response))
    return replace(member, parked=None, awaits_cover=draft.at.offset)


def remove(draft: Draft, member: Member, reason: str) -> None:
    """Take a member out; what follows for the group is for the caller to say.

    Its parked request is refused, it is told, and its assignment is withdrawn.
    """
    answer_parked(draft, member, ErrorCode.UNKNOWN_MEMBER_ID)
    draft.drop(member)
    tell_removed(draft, member, reason)
    if draft.live.leader == member.member:
        _elect_leader(draft)


def tell_removed(draft: Draft, member: Member, reason: str) -> None:
    """Whoever this member was: history, the member itself, readers of assignments."""
    draft.record(
        stored.EVENT_MEMBER_REMOVED,
        member=member.member,
        reason=reason,
        detail={"client": member.client},
    )
    draft.emit(
        fx.Notify(
            member.reply,
            rs.MemberRemoved(
                group=draft.name, cause=draft.at.coordinate, member=member.member, reason=reason
            ),
        )
    )
    draft.emit(fx.Assign(draft.name, member.member, None))


def _elect_leader_among_joined(draft: Draft) -> None:
    """A static member that leads and did not rejoin cannot assign."""
    group = draft.live
    if group.leader is not None and not group.members[group.leader].is_joining:
        _elect_leader(draft)


def _elect_leader(draft: Draft) -> None:
    """The first who has joined already, else the longest-standing member."""
    members = list(draft.live.members.values())
    joined = [member for member in members if member.is_joining]
    draft.change(leader=next((member.member for member in joined or members), None))

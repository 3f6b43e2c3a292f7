"""The deadlines of a classic group, and what follows from each.

    session   a member was not heard for its session timeout
    newcomer  a parked first join that was not answered in time (KAFKA-7610)
    initial   the initial rebalance delay is over (KIP-134)
    join      the rebalance timeout: members that have not joined again are removed
    pending   an announced id that never joined (KIP-394)
    guard     a former owner must have stopped by now (rule 14)
    sync      a member never asked for the assignment: remove it and start over (KAFKA-9752)

Parked members have no session: they wait for the coordinator's answer and owe no heartbeat.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from coordlib.core.engine.time import NEVER, Due, rerun
from coordlib.core.groups.classic import leave, rebalance
from coordlib.core.groups.classic.group import Group, Member, State
from coordlib.core.groups.classic.members import Step
from coordlib.limits import NEW_MEMBER_JOIN_TIMEOUT_MS

JOIN_PHASE: Final = "join"
INITIAL_DELAY: Final = "initial"
SYNC_PHASE: Final = "sync"
SESSION: Final = "session"
NEWCOMER: Final = "newcomer"
PENDING: Final = "pending"
GUARD: Final = "guard"


def next_due(group: Group, heard: Mapping[str, int]) -> Due:
    """The earliest deadline of the group; NEVER when it waits for nothing.

    `heard`: when each member was last heard, on the shard's clock.
    """
    earliest = min(_of_the_group(group), default=Due(NEVER))
    # A loop without calls: it runs over all members whenever one of them changes.
    earliest_ms = earliest.due_ms
    for name, member in group.members.items():
        if member.awaits_cover is not None:
            continue
        if member.parked is None:
            due_ms, kind = heard[name] + member.session_timeout_ms, SESSION
        elif member.is_new:
            due_ms, kind = heard[name] + NEW_MEMBER_JOIN_TIMEOUT_MS, NEWCOMER
        else:
            continue
        if due_ms <= earliest_ms:
            earliest = min(earliest, Due(due_ms, kind, name))
            earliest_ms = due_ms
    return earliest


def _of_the_group(group: Group) -> Iterator[Due]:
    """Running deadlines that belong to no member."""
    if group.join_timer is not None and group.join_timer.due_ms is not None:
        yield Due(group.join_timer.due_ms, INITIAL_DELAY if group.is_initial else JOIN_PHASE)
    if group.sync_timer is not None and group.sync_timer.due_ms is not None:
        yield Due(group.sync_timer.due_ms, SYNC_PHASE)
    for name, announced in group.pending.items():
        if announced.timer.due_ms is not None:
            yield Due(announced.timer.due_ms, PENDING, name)
    for name, guard in group.guards.items():
        told_ms = NEVER if guard.told.due_ms is None else guard.told.due_ms
        yield Due(min(guard.due_ms, told_ms), GUARD, name)


def fire(step: Step, due: Due) -> None:
    """Do what follows from one deadline."""
    step.cause = due.name
    if due.kind == JOIN_PHASE:
        rebalance.complete(step)
    elif due.kind == INITIAL_DELAY:
        rebalance.initial_delay_over(step)
    elif due.kind == SYNC_PHASE:
        _drop_who_did_not_sync(step)
    elif due.kind == GUARD:
        leave.lift_guard(step, due.member)
    elif due.kind == PENDING:
        rebalance.drop_announced(step, due.member)
    else:
        reason = "session expired" if due.kind == SESSION else "never answered while joining"
        _expire(step, step.live.members[due.member], reason)


def _expire(step: Step, member: Member, reason: str) -> None:
    rebalance.remove(step, member, reason)
    if step.live.state is State.PREPARING_REBALANCE:
        # Other than a leave, an expiry may cut the initial delay short, as in Kafka.
        if step.live.all_joined:
            rebalance.complete(step)
    else:
        rebalance.prepare(step, reason, {"member": member.member, "client": member.client})


def _drop_who_did_not_sync(step: Step) -> None:
    step.change(sync_timer=None)
    for member in [m for m in step.live.members.values() if not m.has_synced]:
        rebalance.remove(step, member, "did not sync in time")
    rebalance.prepare(step, "member did not sync in time")


def cover(group: Group, published: int, clock_ms: int) -> tuple[Group, list[str]]:
    """Start what waited for outputs up to `published` to be visible (rule 3).

    Returns the group, and the members whose session starts now.
    """
    heard_now = [
        member
        for member in group.members.values()
        if member.awaits_cover is not None and member.awaits_cover <= published
    ]
    members = group.members | {m.member: replace(m, awaits_cover=None) for m in heard_now}
    return replace(
        group,
        members=members,
        join_timer=group.join_timer and group.join_timer.covered_by(published, clock_ms),
        sync_timer=group.sync_timer and group.sync_timer.covered_by(published, clock_ms),
        pending={
            name: replace(announced, timer=announced.timer.covered_by(published, clock_ms))
            for name, announced in group.pending.items()
        },
        guards={
            name: replace(guard, told=guard.told.covered_by(published, clock_ms))
            for name, guard in group.guards.items()
        },
    ), [member.member for member in heard_now]


def restart(group: Group, clock_ms: int) -> Group:
    """Give every running deadline its full time again, as after a rebuild or a quarantine."""
    return replace(
        group,
        join_timer=group.join_timer and rerun(group.join_timer, clock_ms),
        sync_timer=group.sync_timer and rerun(group.sync_timer, clock_ms),
        pending={
            name: replace(announced, timer=rerun(announced.timer, clock_ms))
            for name, announced in group.pending.items()
        },
        guards={
            name: replace(
                guard,
                due_ms=clock_ms + guard.session_timeout_ms,
                told=rerun(guard.told, clock_ms),
            )
            for name, guard in group.guards.items()
        },
    )

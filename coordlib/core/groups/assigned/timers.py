"""The deadlines of a server-assigned group, and what follows from each.

    session   a member was not heard for its session timeout
    release   a member has not met a demand within its rebalance timeout
    guard     a former owner must have stopped by now (rule 14)

A heartbeat puts off its member's session, and nothing else: a slow member that shows that it lives
must let go in time all the same.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from coordlib.core.engine.time import NEVER, Due, rerun
from coordlib.core.groups.assigned import division, leave, reconciliation
from coordlib.core.groups.assigned.group import Demand, Group, Guard, Member
from coordlib.core.groups.assigned.members import Step, remove

SESSION: Final = "session"
RELEASE: Final = "release"
GUARD: Final = "guard"


def next_due(group: Group, heard: Mapping[str, int]) -> Due:
    """The earliest deadline of the group; NEVER when it waits for nothing."""
    return min(_dues(group, heard), default=Due(NEVER))


def _dues(group: Group, heard: Mapping[str, int]) -> Iterator[Due]:
    for name, guard in group.guards.items():
        told_ms = NEVER if guard.told.due_ms is None else guard.told.due_ms
        yield Due(min(guard.due_ms, told_ms), GUARD, name)
    for name, member in group.members.items():
        if member.awaits_cover is None:
            yield Due(heard[name] + member.session_timeout_ms, SESSION, name)
        for demand in member.demands:
            if demand.timer.due_ms is not None:
                yield Due(demand.timer.due_ms, RELEASE, name)


def fire(step: Step, due: Due) -> None:
    """Do what follows from a deadline, and from all others of the group that are due by now.

    One division for all of them: partitions of a dead member must not go to another dead one, nor
    be demanded from live members for its sake.
    """
    before = step.live.members
    dues = [each for each in _dues(step.live, step.heard) if each.due_ms <= step.at.clock_ms]
    removed: list[tuple[Member, str]] = []
    for each in sorted(dues):
        step.cause = each.name
        if each.kind == GUARD:
            leave.drop_guard(step, each.member)
        elif each.member in step.live.members:
            reason = "session expired" if each.kind == SESSION else "did not let go in time"
            removed.append((before[each.member], reason))
            remove(step, before[each.member], reason)
    step.cause = due.name
    if not removed:
        leave.conclude_guards(step, before)
        return
    member, reason = removed[0]
    detail = {"member": member.member, "client": member.client}
    division.renew(step, reason, detail if len(removed) == 1 else {"removed": len(removed)})
    reconciliation.tell(step, before)


def cover(group: Group, published: int, clock_ms: int) -> tuple[Group, list[str]]:
    """Start what waited for outputs up to `published` to be visible (rule 3).

    Returns the group, and the members whose session starts now.
    """
    heard_now: list[str] = []
    changed: dict[str, Member] = {}
    for name, member in group.members.items():
        is_heard = member.awaits_cover is not None and member.awaits_cover <= published
        demands = tuple(_covered(demand, published, clock_ms) for demand in member.demands)
        if is_heard:
            heard_now.append(name)
        if is_heard or demands != member.demands:
            awaits = None if is_heard else member.awaits_cover
            changed[name] = replace(member, demands=demands, awaits_cover=awaits)
    guarded = {
        name: replace(guard, told=guard.told.covered_by(published, clock_ms))
        for name, guard in group.guards.items()
    }
    return replace(group, members=group.members | changed, guards=guarded), heard_now


def _covered(demand: Demand, published: int, clock_ms: int) -> Demand:
    return replace(demand, timer=demand.timer.covered_by(published, clock_ms))


def restart(group: Group, clock_ms: int) -> Group:
    """Give every running deadline its full time again, as after a quarantine."""
    members = {
        name: replace(
            member,
            demands=tuple(replace(d, timer=rerun(d.timer, clock_ms)) for d in member.demands),
        )
        for name, member in group.members.items()
    }
    guarded = {name: _rerun(guard, clock_ms) for name, guard in group.guards.items()}
    return replace(group, members=members, guards=guarded)


def _rerun(guard: Guard, clock_ms: int) -> Guard:
    due_ms = clock_ms + guard.session_timeout_ms
    return replace(guard, due_ms=due_ms, told=rerun(guard.told, clock_ms))

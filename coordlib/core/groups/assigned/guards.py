"""A member that was removed may still be at work: its partitions wait (rule 14).

Its own fence stops it one session after its last heartbeat that the log took (rule 8), or because
it cannot read that it was removed (rule 9). The guard ends earlier when it reports that it stopped.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from coordlib.core.engine import clock as deadlines
from coordlib.core.groups.assigned import division, reconciliation
from coordlib.core.groups.assigned.group import Guard, Member, State
from coordlib.core.groups.assigned.step import Step
from coordlib.core.wire import stored


def place(step: Step, owner: Member, reason: str) -> None:
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
        told=deadlines.reaction(owner.rebalance_timeout_ms, step.at.offset),
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


def renew(step: Step, member_id: str) -> None:
    """It heartbeats: by its own clock it may go on for one session from now."""
    guard = step.value.guards.get(member_id) if step.value else None
    if guard is not None:
        due_ms = step.at.clock_ms + guard.session_timeout_ms
        step.change(guards={**step.live.guards, member_id: replace(guard, due_ms=due_ms)})


def drop(step: Step, member_id: str) -> None:
    """Remove a guard whose owner has stopped. Call `conclude` next, or make a new division."""
    step.change(guards={name: g for name, g in step.live.guards.items() if name != member_id})


def conclude(step: Step, before: Mapping[str, Member]) -> None:
    """Grant the partitions of ended guards. `before`: the members before this step."""
    if not step.live.members and not step.live.guards:
        step.enter(State.EMPTY)
        step.record(stored.EVENT_GROUP_EMPTIED, reason="former owner stopped")
        return
    division.go_on(step)
    reconciliation.tell(step, before)

"""Hand-overs that the owner was not asked for: nothing is given on before it must have stopped.

A static member is replaced by a newer process of its instance id, or a member is made to leave by
somebody else. It may be alive and working, and hear of it late. Its own fence stops it one session
after its last heartbeat that the log took (rule 8), and every such heartbeat stands in this shard's
log. So a guard is placed: until then no join phase completes, and a static successor waits for its
assignment. The guard ends earlier when the former owner says itself that it has stopped: by a
LeaveGroup for its own id, which coordlib's client sends when it is fenced. Source: rule 14.
"""

from msgspec.structs import replace

from coordlib.coordinators.classic import rebalance
from coordlib.coordinators.classic.draft import Draft
from coordlib.coordinators.classic.group import Guard, Member, State
from coordlib.coordinators.classic.sync_answer import issue, send_assignment


def place(draft: Draft, owner: Member, successor: str | None = None) -> None:
    """Guard what this owner had, unless it has never had anything, or has let go of it."""
    has_worked = draft.live.fence >= 0 and not owner.is_new and not owner.has_let_go
    guards = {name: g for name, g in draft.live.guards.items() if name != owner.member}
    # A successor that is replaced itself hands its own wait on.
    guards = {
        name: replace(guard, successor=successor) if guard.successor == owner.member else guard
        for name, guard in guards.items()
    }
    if has_worked:
        heard_ms = draft.heard.get(owner.member, draft.at.clock_ms)
        guards[owner.member] = Guard(
            member=owner.member,
            client=owner.client,
            session_timeout_ms=owner.session_timeout_ms,
            due_ms=heard_ms + owner.session_timeout_ms,
            successor=successor,
            was_replaced=successor is not None,
        )
    draft.change(guards=guards)


def renew(draft: Draft, member_id: str) -> None:
    """A former owner heartbeats: by its own clock it may go on for one session from now."""
    guard = draft.group.guards.get(member_id) if draft.group else None
    if guard is not None:
        due_ms = draft.at.clock_ms + guard.session_timeout_ms
        draft.change(guards={**draft.live.guards, member_id: replace(guard, due_ms=due_ms)})


def is_waited_for(draft: Draft, member: Member) -> bool:
    """Whether this static member must wait for the one that it replaced."""
    return any(guard.successor == member.member for guard in draft.live.guards.values())


def lift(draft: Draft, member_id: str) -> None:
    """The former owner has stopped: go on with whatever waited for that."""
    draft.change(guards={name: g for name, g in draft.live.guards.items() if name != member_id})
    if draft.live.state is State.STABLE:
        for member in list(draft.live.members.values()):
            if member.is_syncing and not is_waited_for(draft, member):
                _hand_over(draft, member)
    rebalance.complete_if_all_joined(draft)
    rebalance.complete_if_overdue(draft)


def _hand_over(draft: Draft, member: Member) -> None:
    issue(draft, member)
    send_assignment(draft, member, member.parked)
    draft.put(replace(member, parked=None, awaits_cover=draft.at.offset))

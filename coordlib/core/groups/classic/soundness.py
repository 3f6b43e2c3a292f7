"""What must always hold of a classic group.

A step that would break one of these sentences is undone, and its group is quarantined.  # INV-42
"""

from collections.abc import Iterator

from coordlib.core.engine.step import BrokenInvariant
from coordlib.core.groups.classic.group import Group, State


def check_invariants(group: Group) -> None:
    """Raise BrokenInvariant when the group contradicts itself. On in every test."""
    for sentence, holds in _invariants(group):
        if not holds:
            raise BrokenInvariant(f"{group.group}: {sentence}")


def _invariants(group: Group) -> Iterator[tuple[str, bool]]:
    members = list(group.members.values())
    empty = group.state is State.EMPTY
    joining = group.state is State.PREPARING_REBALANCE
    completing = group.state is State.COMPLETING_REBALANCE
    # INV-13
    yield "members have a leader among them", not members or group.leader in group.members
    yield "a group without members has no leader", bool(members) or group.leader is None
    yield "an Empty group has no members", not (empty and members)
    yield "a group without members is Empty or preparing", bool(members) or empty or joining
    # INV-14
    yield (
        "the protocol is supported by every member",
        joining or empty or group.protocol is not None,
    )
    yield (
        "the protocol is offered by all",
        not (completing or group.state is State.STABLE) or group.supports(group.protocol or ""),
    )
    yield "joins are parked only while preparing", joining or not any(m.is_joining for m in members)
    guarded = {guard.successor for guard in group.guards.values()}
    yield "who waits for a former owner is a member", guarded - {None} <= group.members.keys()
    yield (
        "guards hold up a join phase, or a successor",
        joining or not group.guards or (group.state is State.STABLE and None not in guarded),
    )
    yield (
        "syncs are parked only while completing, or behind a guard",
        (completing or all(m.member in guarded for m in members if m.is_syncing)),
    )
    yield "announced ids are no members", not group.pending.keys() & group.members.keys()
    yield "former owners are no members", not group.guards.keys() & group.members.keys()
    yield (
        "the join timer runs while preparing, until it is overdue",
        (group.join_timer is not None) == (joining and not group.is_overdue),
    )
    yield "only guards keep an overdue join phase open", not group.is_overdue or bool(group.guards)
    yield (
        "the sync timer runs only after a join phase",
        (group.sync_timer is None or completing or group.state is State.STABLE),
    )
    yield (
        "the sync timer runs while somebody has not synced",
        (
            not (completing or group.state is State.STABLE)
            or (group.sync_timer is not None) == any(not m.has_synced for m in members)
        ),
    )
    yield "the initial delay belongs to preparing", joining or not group.is_initial
    failed = group.failure is not None
    yield "an assignment has failed in Stable only", not failed or group.state is State.STABLE
    yield (
        "a failed assignment gives nobody anything",
        not (failed and any(m.assignment for m in members)),
    )
    # INV-15
    yield "the size is the members' sum", group.size_bytes == sum(m.size_bytes() for m in members)
    yield "members stand under their own id", all(k == m.member for k, m in group.members.items())
    yield "every member offers something", all(m.protocols for m in members)
    yield (
        "nobody is parked and awaits a cover but newcomers",
        not any(m.parked and m.awaits_cover is not None and not m.is_new for m in members),
    )
    yield "new members are parked", all(m.is_joining for m in members if m.is_new)
    instances = [m.instance for m in members if m.instance is not None]
    yield "an instance id has one member", len(set(instances)) == len(instances)

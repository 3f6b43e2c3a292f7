"""Classic groups as a kind: their requests, their deadlines, and what must always hold.

    session   a member was not heard for its session timeout
    newcomer  a parked first join that was not answered in time (KAFKA-7610)
    initial   the initial rebalance delay is over (KIP-134)
    join      the rebalance timeout: members that have not joined again are removed
    pending   an announced id that never joined (KIP-394)
    guard     a former owner must have stopped by now (rule 14)
    sync      a member never asked for the assignment: remove it and start over (KAFKA-9752)

Parked members have no session: they wait for the coordinator's answer and owe no heartbeat.

A step after which one of the sentences in `_invariants` does not hold is undone, and its group is
quarantined.  # INV-42
"""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import ClassVar, Final

from msgspec.structs import replace

from coordlib.core.engine.step import NO_GENERATION, Facts, Handler, Known
from coordlib.core.engine.time import NEVER, Due, rerun
from coordlib.core.groups.classic import members, rebalance
from coordlib.core.groups.classic.group import Group, Member, State, Step
from coordlib.core.groups.classic.join import join_group
from coordlib.core.groups.classic.members import describe_group, heartbeat, leave_group
from coordlib.core.groups.classic.sync import sync_group
from coordlib.core.groups.kind import OF_ALL_GROUPS, GroupKind
from coordlib.core.wire import api
from coordlib.limits import NEW_MEMBER_JOIN_TIMEOUT_MS

#: In these states a heartbeat of the current generation changes nothing but when it was heard.
_QUIET: Final = frozenset({State.STABLE, State.COMPLETING_REBALANCE})
_session_timeout_ms: Final = attrgetter("session_timeout_ms")
_rebalance_timeout_ms: Final = attrgetter("rebalance_timeout_ms")
_reply: Final = attrgetter("reply")


JOIN_PHASE: Final = "join"
INITIAL_DELAY: Final = "initial"
SYNC_PHASE: Final = "sync"
SESSION: Final = "session"
NEWCOMER: Final = "newcomer"
PENDING: Final = "pending"
GUARD: Final = "guard"


class Classic(GroupKind):
    """Groups whose leader assigns the partitions: JoinGroup and SyncGroup.

    Members look topics up themselves, and join again when they changed.
    """

    NAME = "classic"
    VALUE = Group
    STEP = Step
    APIS: ClassVar[Mapping[type[api.Request], Handler]] = {
        **OF_ALL_GROUPS,
        api.JoinGroup: join_group,
        api.SyncGroup: sync_group,
        api.Heartbeat: heartbeat,
        api.LeaveGroup: leave_group,
        api.DescribeGroup: describe_group,
    }

    def facts_of_members(self, value: Group, known: Known) -> Facts:
        members = value.members.values()
        return Facts(
            fast_path_generation=value.generation if value.state in _QUIET else NO_GENERATION,
            next_due_ms=self.next_due(value, known.row.heard).due_ms,
            timeout_ms=shortest_timeout_ms(value),
            replies=tuple(sorted(set(map(_reply, members)))),
            size_bytes=value.kept_bytes,
            instances={m.instance: m.member for m in members if m.instance is not None},
        )

    def next_due(self, value: Group, heard: Mapping[str, int]) -> Due:
        """The earliest deadline of the group; NEVER when it waits for nothing.

        `heard`: when each member was last heard, on the shard's clock.
        """
        earliest = min(_of_the_group(value), default=Due(NEVER))
        # A loop without calls: it runs over all members whenever one of them changes.
        earliest_ms = earliest.due_ms
        for name, member in value.members.items():
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

    def fire(self, step: Step, due: Due) -> None:
        """Do what follows from one deadline."""
        step.cause = due.name
        if due.kind == JOIN_PHASE:
            rebalance.complete(step)
        elif due.kind == INITIAL_DELAY:
            rebalance.initial_delay_over(step)
        elif due.kind == SYNC_PHASE:
            _drop_who_did_not_sync(step)
        elif due.kind == GUARD:
            members.lift_guard(step, due.member)
        elif due.kind == PENDING:
            rebalance.drop_announced(step, due.member)
        else:
            reason = "session expired" if due.kind == SESSION else "never answered while joining"
            _expire(step, step.live.members[due.member], reason)

    def outputs_visible(
        self, value: Group, published: int, clock_ms: int
    ) -> tuple[Group, list[str]]:
        """Start what waited for outputs up to `published` to be visible (rule 3).

        Returns the group, and the members whose session starts now.
        """
        heard_now = [
            member
            for member in value.members.values()
            if member.awaits_cover is not None and member.awaits_cover <= published
        ]
        members = value.members | {m.member: replace(m, awaits_cover=None) for m in heard_now}
        return replace(
            value,
            members=members,
            join_timer=value.join_timer and value.join_timer.covered_by(published, clock_ms),
            sync_timer=value.sync_timer and value.sync_timer.covered_by(published, clock_ms),
            pending={
                name: replace(announced, timer=announced.timer.covered_by(published, clock_ms))
                for name, announced in value.pending.items()
            },
            guards={
                name: replace(guard, notice=guard.notice.covered_by(published, clock_ms))
                for name, guard in value.guards.items()
            },
        ), [member.member for member in heard_now]

    def restart(self, value: Group, clock_ms: int) -> Group:
        """Give every running deadline its full time again, as after a rebuild or a quarantine."""
        return replace(
            value,
            join_timer=value.join_timer and rerun(value.join_timer, clock_ms),
            sync_timer=value.sync_timer and rerun(value.sync_timer, clock_ms),
            pending={
                name: replace(announced, timer=rerun(announced.timer, clock_ms))
                for name, announced in value.pending.items()
            },
            guards={
                name: replace(
                    guard,
                    due_ms=clock_ms + guard.session_timeout_ms,
                    notice=rerun(guard.notice, clock_ms),
                )
                for name, guard in value.guards.items()
            },
        )

    def invariants(self, value: Group) -> Iterator[tuple[str, bool]]:
        return _invariants(value)


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
        notice_ms = NEVER if guard.notice.due_ms is None else guard.notice.due_ms
        yield Due(min(guard.due_ms, notice_ms), GUARD, name)


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


def shortest_timeout_ms(group: Group) -> int:
    """The shortest session or rebalance timeout that the group waits for; 0: none (rule 1)."""
    members = group.members.values()
    # Former owners and announced ids count: a jump of the clock must not end their time early.
    others = [a.timer.duration_ms for a in group.pending.values()]
    for guard in group.guards.values():
        others += (guard.session_timeout_ms, guard.notice.duration_ms)
    if not members:
        return min(others, default=0)
    # Two passes in C are three times as fast as one in Python; this runs for every change.
    shortest_ms: int = min(
        min(map(_session_timeout_ms, members)), min(map(_rebalance_timeout_ms, members)), *others
    )
    return shortest_ms


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
    yield "the size is the members' sum", group.size_bytes == sum(m.size_bytes for m in members)
    yield "members stand under their own id", all(k == m.member for k, m in group.members.items())
    yield "every member offers something", all(m.protocols for m in members)
    yield (
        "nobody is parked and awaits a cover but newcomers",
        not any(m.parked and m.awaits_cover is not None and not m.is_new for m in members),
    )
    yield "new members are parked", all(m.is_joining for m in members if m.is_new)
    instances = [m.instance for m in members if m.instance is not None]
    yield "an instance id has one member", len(set(instances)) == len(instances)


CLASSIC: Final = Classic()

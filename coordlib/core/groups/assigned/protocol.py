"""Server-assigned groups as a kind: their requests, their deadlines, and what must always hold.

    session   a member was not heard for its session timeout
    release   a member has not met a demand within its rebalance timeout
    guard     a former owner must have stopped by now (rule 14)

A heartbeat puts off its member's session, and nothing else: a slow member that shows that it lives
must let go in time all the same.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine.step import ANY_GENERATION, NO_GENERATION, Facts, Handler, Known
from coordlib.core.engine.time import NEVER, Due, rerun
from coordlib.core.groups.assigned import division, reconciliation, subscriptions
from coordlib.core.groups.assigned.group import (
    Demand,
    Group,
    Guard,
    Member,
    State,
    Step,
    count,
    minus,
    remove_member,
)
from coordlib.core.groups.assigned.members import (
    conclude_guards,
    describe_group,
    drop_guard,
    heartbeat,
    leave_group,
)
from coordlib.core.groups.assigned.subscribe import release, subscribe
from coordlib.core.groups.kind import OF_ALL_GROUPS, GroupKind
from coordlib.core.wire import api


def _topics_changed(step: Step, changed: Collection[str]) -> None:
    """Make a new division if a member wants one of these topics; members do nothing for it."""
    group = step.live
    wanted = division.wanted_by_all(step)
    if not group.members or wanted == group.topics:
        return
    before = group.members
    named = [topic for topic in changed if topic in wanted or topic in group.topics]
    division.renew(step, "topics changed", {"topics": named[: division.MEMBERS_NAMED_MAX]})
    reconciliation.tell(step, before)


SESSION: Final = "session"
RELEASE: Final = "release"
GUARD: Final = "guard"


class Assigned(GroupKind):
    """Groups whose partitions the coordinator assigns: Subscribe and Release."""

    NAME = "assigned"
    VALUE = Group
    STEP = Step
    APIS: ClassVar[Mapping[type[api.Request], Handler]] = {
        **OF_ALL_GROUPS,
        api.Subscribe: subscribe,
        api.Release: release,
        api.Heartbeat: heartbeat,
        api.LeaveGroup: leave_group,
        api.DescribeGroup: describe_group,
    }
    topics_changed = staticmethod(_topics_changed)

    def facts_of_members(self, value: Group, known: Known) -> Facts:
        return Facts(
            # Rule 13: any heartbeat of a live member is a sign of life.
            fast_path_generation=ANY_GENERATION if value.members else NO_GENERATION,
            next_due_ms=self.next_due(value, known.row.heard).due_ms,
            timeout_ms=shortest_timeout_ms(value),
            replies=tuple(sorted({member.reply for member in value.members.values()})),
            size_bytes=value.kept_bytes,
        )

    def next_due(self, value: Group, heard: Mapping[str, int]) -> Due:
        """The earliest deadline of the group; NEVER when it waits for nothing."""
        return min(_dues(value, heard), default=Due(NEVER))

    def fire(self, step: Step, due: Due) -> None:
        """Do what follows from a deadline, and from all others of the group that are due by now.

        One division for all of them: partitions of a dead member must not go to another dead one,
        nor be demanded from live members for its sake.
        """
        before = step.live.members
        dues = [each for each in _dues(step.live, step.heard) if each.due_ms <= step.at.clock_ms]
        removed: list[tuple[Member, str]] = []
        for each in sorted(dues):
            step.cause = each.name
            if each.kind == GUARD:
                drop_guard(step, each.member)
            elif each.member in step.live.members:
                reason = "session expired" if each.kind == SESSION else "did not let go in time"
                removed.append((before[each.member], reason))
                remove_member(step, before[each.member], reason)
        step.cause = due.name
        if not removed:
            conclude_guards(step, before)
            return
        member, reason = removed[0]
        detail = {"member": member.member, "client": member.client}
        division.renew(step, reason, detail if len(removed) == 1 else {"removed": len(removed)})
        reconciliation.tell(step, before)

    def outputs_visible(
        self, value: Group, published: int, clock_ms: int
    ) -> tuple[Group, list[str]]:
        """Start what waited for outputs up to `published` to be visible (rule 3).

        Returns the group, and the members whose session starts now.
        """
        heard_now: list[str] = []
        changed: dict[str, Member] = {}
        for name, member in value.members.items():
            is_heard = member.awaits_cover is not None and member.awaits_cover <= published
            demands = tuple(_covered(demand, published, clock_ms) for demand in member.demands)
            if is_heard:
                heard_now.append(name)
            if is_heard or demands != member.demands:
                awaits = None if is_heard else member.awaits_cover
                changed[name] = replace(member, demands=demands, awaits_cover=awaits)
        guarded = {
            name: replace(guard, notice=guard.notice.covered_by(published, clock_ms))
            for name, guard in value.guards.items()
        }
        return replace(value, members=value.members | changed, guards=guarded), heard_now

    def restart(self, value: Group, clock_ms: int) -> Group:
        """Give every running deadline its full time again, as after a quarantine."""
        members = {
            name: replace(
                member,
                demands=tuple(replace(d, timer=rerun(d.timer, clock_ms)) for d in member.demands),
            )
            for name, member in value.members.items()
        }
        guarded = {name: _rerun(guard, clock_ms) for name, guard in value.guards.items()}
        return replace(value, members=members, guards=guarded)

    def invariants(self, value: Group) -> Iterator[tuple[str, bool]]:
        return _invariants(value)

    def known_topics(self, value: Group) -> Mapping[str, int]:
        """Those of the newest division."""
        return value.topics

    def topics_index(self, value: Group) -> msgspec.Raw:
        return subscriptions.index_of(value)

    def concerned(self, changed: Collection[str]) -> Callable[[msgspec.Raw], bool]:
        return subscriptions.concerned(changed)


def _dues(group: Group, heard: Mapping[str, int]) -> Iterator[Due]:
    for name, guard in group.guards.items():
        notice_ms = NEVER if guard.notice.due_ms is None else guard.notice.due_ms
        yield Due(min(guard.due_ms, notice_ms), GUARD, name)
    for name, member in group.members.items():
        if member.awaits_cover is None:
            yield Due(heard[name] + member.session_timeout_ms, SESSION, name)
        for demand in member.demands:
            if demand.timer.due_ms is not None:
                yield Due(demand.timer.due_ms, RELEASE, name)


def _covered(demand: Demand, published: int, clock_ms: int) -> Demand:
    return replace(demand, timer=demand.timer.covered_by(published, clock_ms))


def _rerun(guard: Guard, clock_ms: int) -> Guard:
    due_ms = clock_ms + guard.session_timeout_ms
    return replace(guard, due_ms=due_ms, notice=rerun(guard.notice, clock_ms))


def shortest_timeout_ms(group: Group) -> int:
    """The shortest session or rebalance timeout that the group waits for; 0: none (rule 1)."""
    timeouts = [
        each
        for member in group.members.values()
        for each in (member.session_timeout_ms, member.rebalance_timeout_ms)
    ]
    for guard in group.guards.values():
        timeouts += (guard.session_timeout_ms, guard.notice.duration_ms)
    return min(timeouts, default=0)


def _invariants(group: Group) -> Iterator[tuple[str, bool]]:
    members = list(group.members.values())
    empty = group.state is State.EMPTY
    # INV-13
    yield (
        "an Empty group has no members and waits for nobody",
        not (empty and (members or group.guards)),
    )
    yield "a group without members is Empty, or guarded", bool(members or group.guards) or empty
    yield "a group with members has a strategy", not members or group.protocol is not None
    # INV-09, INV-57: one owner, whatever is under way
    owned = [(topic, each) for held in group.held() for topic in held for each in held[topic]]
    yield "no partition has two owners", len(set(owned)) == len(owned)
    targets = [(t, each) for m in members for t, some in m.target.items() for each in some]
    yield "no partition has two targets", len(set(targets)) == len(targets)
    for member in members:
        demanded = member.asked_back
        yield "what is demanded is owned", not minus(demanded, member.owned)
        yield (
            "demands are disjoint",
            count(demanded) == sum(count(demand.partitions) for demand in member.demands),
        )
        kept = minus(member.owned, demanded)
        causes = {demand.timer.cause for demand in member.demands}
        yield "a cause names one demand", len(causes) == len(member.demands)
        yield (
            "what is not in the target is demanded, or will be when a demand is met",
            not minus(kept, member.target) or bool(causes),
        )
        yield "grants have partitions", all(map(count, (g.partitions for g in member.grants)))
    # INV-43
    yield "it can be written", group.size_bytes < limits.OUTPUT_BYTES_MAX
    # INV-15
    yield "members stand under their own id", all(k == m.member for k, m in group.members.items())
    yield "former owners are no members", not group.guards.keys() & group.members.keys()
    yield (
        "a Stable group has given everything that it divided",
        group.state is not State.STABLE or all(member.is_reconciled for member in members),
    )
    yield (
        "a Reconciling group waits for somebody",
        group.state is not State.RECONCILING
        or bool(group.guards)
        or any(member.demands for member in members),
    )


ASSIGNED: Final = Assigned()

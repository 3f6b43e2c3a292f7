"""Server-assigned groups as a kind: their requests, and the facts of a group."""

from collections.abc import Callable, Collection, Mapping
from typing import ClassVar, Final

import msgspec

from coordlib.core.engine.step import ANY_GENERATION, NO_GENERATION, Facts, Handler, Known
from coordlib.core.groups.assigned import division, members, reconciliation, timers
from coordlib.core.groups.assigned import subscriptions as wishes_of
from coordlib.core.groups.assigned.group import Group, check_invariants
from coordlib.core.groups.assigned.leave import describe_group, heartbeat, leave_group
from coordlib.core.groups.assigned.members import Step
from coordlib.core.groups.assigned.subscribe import release, subscribe
from coordlib.core.groups.group import uncovered
from coordlib.core.groups.kind import OF_ALL_GROUPS, GroupKind
from coordlib.core.wire import api as rq


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


class Assigned(GroupKind):
    """Groups whose partitions the coordinator assigns: Subscribe and Release."""

    NAME = "assigned"
    VALUE = Group
    STEP = Step
    TIMERS: ClassVar = timers
    APIS: ClassVar[Mapping[type[rq.Request], Handler]] = {
        **OF_ALL_GROUPS,
        rq.Subscribe: subscribe,
        rq.Release: release,
        rq.Heartbeat: heartbeat,
        rq.LeaveGroup: leave_group,
        rq.DescribeGroup: describe_group,
    }
    topics_changed = staticmethod(_topics_changed)

    def facts_of_members(self, value: Group, known: Known) -> Facts:
        waits_from, waits_to = uncovered(value) or (-1, -1)
        return Facts(
            # Rule 13: any heartbeat of a live member is a sign of life.
            quiet=ANY_GENERATION if value.members else NO_GENERATION,
            next_due_ms=self.next_due(value, known.row.heard).due_ms,
            waits_from=waits_from,
            waits_to=waits_to,
            timeout_ms=shortest_timeout_ms(value),
            replies=tuple(sorted({member.reply for member in value.members.values()})),
            size_bytes=members.kept_bytes(value),
        )

    def check(self, value: Group) -> None:
        check_invariants(value)

    def known_topics(self, value: Group) -> Mapping[str, int]:
        """Those of the newest division."""
        return value.topics

    def wishes(self, value: Group) -> msgspec.Raw:
        return wishes_of.index_of(value)

    def concerned(self, changed: Collection[str]) -> Callable[[msgspec.Raw], bool]:
        return wishes_of.concerned(changed)


def shortest_timeout_ms(group: Group) -> int:
    """The shortest session or rebalance timeout that the group waits for; 0: none (rule 1)."""
    timeouts = [
        each
        for member in group.members.values()
        for each in (member.session_timeout_ms, member.rebalance_timeout_ms)
    ]
    for guard in group.guards.values():
        timeouts += (guard.session_timeout_ms, guard.told.duration_ms)
    return min(timeouts, default=0)


ASSIGNED: Final = Assigned()

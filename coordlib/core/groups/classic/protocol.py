"""Classic groups as a kind: their requests, and the facts of a group."""

from collections.abc import Mapping
from operator import attrgetter
from typing import ClassVar, Final

from coordlib.core.engine.step import NO_GENERATION, Facts, Handler, Known
from coordlib.core.groups.classic import group as kept_bytes
from coordlib.core.groups.classic import timers
from coordlib.core.groups.classic.group import Group, State, check_invariants
from coordlib.core.groups.classic.join import join_group
from coordlib.core.groups.classic.leave import heartbeat, leave_group
from coordlib.core.groups.classic.members import (
    Step,
    describe_group,
)
from coordlib.core.groups.classic.sync import sync_group
from coordlib.core.groups.group import uncovered
from coordlib.core.groups.kind import OF_ALL_GROUPS, GroupKind
from coordlib.core.wire import api as rq

#: In these states a heartbeat of the current generation changes nothing but when it was heard.
_QUIET: Final = frozenset({State.STABLE, State.COMPLETING_REBALANCE})
_session_timeout_ms: Final = attrgetter("session_timeout_ms")
_rebalance_timeout_ms: Final = attrgetter("rebalance_timeout_ms")
_reply: Final = attrgetter("reply")


class Classic(GroupKind):
    """Groups whose leader assigns the partitions: JoinGroup and SyncGroup.

    Members look topics up themselves, and join again when they changed.
    """

    NAME = "classic"
    VALUE = Group
    STEP = Step
    TIMERS: ClassVar = timers
    APIS: ClassVar[Mapping[type[rq.Request], Handler]] = {
        **OF_ALL_GROUPS,
        rq.JoinGroup: join_group,
        rq.SyncGroup: sync_group,
        rq.Heartbeat: heartbeat,
        rq.LeaveGroup: leave_group,
        rq.DescribeGroup: describe_group,
    }

    def facts_of_members(self, value: Group, known: Known) -> Facts:
        waits_from, waits_to = uncovered(value) or (-1, -1)
        members = value.members.values()
        return Facts(
            quiet=value.generation if value.state in _QUIET else NO_GENERATION,
            next_due_ms=self.next_due(value, known.row.heard).due_ms,
            waits_from=waits_from,
            waits_to=waits_to,
            timeout_ms=shortest_timeout_ms(value),
            replies=tuple(sorted(set(map(_reply, members)))),
            size_bytes=kept_bytes.kept_bytes(value),
            instances={m.instance: m.member for m in members if m.instance is not None},
        )

    def check(self, value: Group) -> None:
        check_invariants(value)


def shortest_timeout_ms(group: Group) -> int:
    """The shortest session or rebalance timeout that the group waits for; 0: none (rule 1)."""
    members = group.members.values()
    # Former owners and announced ids count: a jump of the clock must not end their time early.
    others = [a.timer.duration_ms for a in group.pending.values()]
    for guard in group.guards.values():
        others += (guard.session_timeout_ms, guard.told.duration_ms)
    if not members:
        return min(others, default=0)
    # Two passes in C are three times as fast as one in Python; this runs for every change.
    shortest_ms: int = min(
        min(map(_session_timeout_ms, members)), min(map(_rebalance_timeout_ms, members)), *others
    )
    return shortest_ms


CLASSIC: Final = Classic()

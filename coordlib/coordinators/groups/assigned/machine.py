"""Server-assigned groups as the shard sees them: which requests they judge, and how."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from coordlib.coordinators.groups.assigned import division, kept_bytes, reconciliation, timers
from coordlib.coordinators.groups.assigned import wishes as wishes_of
from coordlib.coordinators.groups.assigned.describe_group import describe_group
from coordlib.coordinators.groups.assigned.group import Group, check_invariants
from coordlib.coordinators.groups.assigned.heartbeat import heartbeat
from coordlib.coordinators.groups.assigned.leave_group import leave_group
from coordlib.coordinators.groups.assigned.offset_commit import offset_commit
from coordlib.coordinators.groups.assigned.release import release
from coordlib.coordinators.groups.assigned.step import Step
from coordlib.coordinators.groups.assigned.subscribe import subscribe
from coordlib.coordinators.groups.offsets.delete_group import delete_group
from coordlib.coordinators.groups.offsets.find_coordinator import find_coordinator
from coordlib.coordinators.groups.offsets.offset_delete import offset_delete
from coordlib.coordinators.groups.offsets.offset_fetch import offset_fetch
from coordlib.coordinators.shard.kind import (
    ANY_GENERATION,
    NO_GENERATION,
    Handler,
    check_saved,
)
from coordlib.records import requests as rq

KIND: str = Step.KIND
#: Of a group's value in `coord.groups`.
SAVED_VERSION: Final = 1

HANDLERS: dict[type[rq.Request], Handler] = {
    rq.Subscribe: subscribe,
    rq.Release: release,
    rq.Heartbeat: heartbeat,
    rq.LeaveGroup: leave_group,
    rq.OffsetCommit: offset_commit,
    rq.OffsetFetch: offset_fetch,
    rq.OffsetDelete: offset_delete,
    rq.DescribeGroup: describe_group,
    rq.DeleteGroup: delete_group,
    rq.FindCoordinator: find_coordinator,
}


decode: Final = msgspec.msgpack.Decoder(Group).decode
encode: Final = msgspec.msgpack.Encoder().encode
_decode_saved: Final = msgspec.json.Decoder(Group).decode
encode_saved: Final = msgspec.json.Encoder().encode

step: Final = Step
adopt: Final = Step.adopt
size_bytes: Final = kept_bytes.of_group
check: Final = check_invariants
next_due: Final = timers.next_due
fire: Final = timers.fire
cover: Final = timers.cover
uncovered: Final = timers.uncovered
restart: Final = timers.restart
wishes: Final = wishes_of.of_group
concerned: Final = wishes_of.concerned


def decode_saved(value: bytes) -> Group:
    """A group as it stands in `coord.groups`. Raises UnknownSavedVersion, msgspec.MsgspecError."""
    group = _decode_saved(value)
    check_saved(group.group, group.v, SAVED_VERSION)
    return group


def known_topics(group: Group, /) -> Mapping[str, int]:
    """Those of the newest division."""
    return group.topics


def _topics_changed(step: Step, changed: Collection[str]) -> None:
    """Divide anew if it concerns what somebody wants; members do nothing for it."""
    group = step.live
    wanted = division.wanted_by_all(step)
    if not group.members or wanted == group.topics:
        return
    before = group.members
    named = [topic for topic in changed if topic in wanted or topic in group.topics]
    division.renew(step, "topics changed", {"topics": named[: division.MEMBERS_NAMED_MAX]})
    reconciliation.tell(step, before)


topics_changed: Callable[[Any, Collection[str]], None] | None = _topics_changed


def quiet_generation(group: Group) -> int:
    """Rule 13: any heartbeat of a live member is a sign of life."""
    return ANY_GENERATION if group.members else NO_GENERATION


def shortest_timeout_ms(group: Group) -> int:
    """The shortest session or rebalance timeout of anybody waited for; 0: nobody (rule 1)."""
    timeouts = [
        each
        for member in group.members.values()
        for each in (member.session_timeout_ms, member.rebalance_timeout_ms)
    ]
    for guard in group.guards.values():
        timeouts += (guard.session_timeout_ms, guard.told.duration_ms)
    return min(timeouts, default=0)


def instances(_: Group) -> dict[str, str]:
    """There are no static members here."""
    return {}


def reply_partitions(group: Group) -> list[int]:
    """Where its members read answers."""
    return sorted({member.reply for member in group.members.values()})

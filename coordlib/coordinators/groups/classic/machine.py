"""The classic protocol as the shard sees it: which requests it judges, and how.

A new protocol is a package with a module like this one, named in `coordinators/registry.py`.
"""

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any, Final

import msgspec

from coordlib.coordinators.groups.classic import kept_bytes, timers
from coordlib.coordinators.groups.classic.describe_group import describe_group
from coordlib.coordinators.groups.classic.group import Group, State
from coordlib.coordinators.groups.classic.heartbeat import heartbeat
from coordlib.coordinators.groups.classic.join_group import join_group
from coordlib.coordinators.groups.classic.leave_group import leave_group
from coordlib.coordinators.groups.classic.offset_commit import offset_commit
from coordlib.coordinators.groups.classic.soundness import check_invariants
from coordlib.coordinators.groups.classic.step import Step
from coordlib.coordinators.groups.classic.sync_group import sync_group
from coordlib.coordinators.groups.offsets.delete_group import delete_group
from coordlib.coordinators.groups.offsets.find_coordinator import find_coordinator
from coordlib.coordinators.groups.offsets.offset_delete import offset_delete
from coordlib.coordinators.groups.offsets.offset_fetch import offset_fetch
from coordlib.coordinators.shard.kind import NO_GENERATION, NO_WISHES, Handler, check_saved
from coordlib.records import requests as rq

KIND: str = Step.KIND
#: Of a group's value in `coord.groups`.
SAVED_VERSION: Final = 1

HANDLERS: dict[type[rq.Request], Handler] = {
    rq.JoinGroup: join_group,
    rq.SyncGroup: sync_group,
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

next_due: Final = timers.next_due
fire: Final = timers.fire
cover: Final = timers.cover
uncovered: Final = timers.uncovered
restart: Final = timers.restart
step: Final = Step
adopt: Final = Step.adopt
size_bytes: Final = kept_bytes.of_group
check: Final = check_invariants
#: Its members look topics up themselves, and join again when they changed.
topics_changed: Callable[[Any, Collection[str]], None] | None = None


def known_topics(_: Group) -> Mapping[str, int]:
    """None: nobody but its leader knows."""
    return {}


def wishes(_: Group) -> msgspec.Raw:
    """None that the coordinator could serve."""
    return NO_WISHES


def concerned(_: Collection[str]) -> Callable[[msgspec.Raw], bool]:
    """Topics concern no group of this kind."""
    return lambda _: False


def decode_saved(value: bytes) -> Group:
    """A group as it stands in `coord.groups`. Raises UnknownSavedVersion, msgspec.MsgspecError."""
    group = _decode_saved(value)
    check_saved(group.group, group.v, SAVED_VERSION)
    return group


#: In these states a heartbeat of the current generation changes nothing but when it was heard.
_QUIET: Final = frozenset({State.STABLE, State.COMPLETING_REBALANCE})
_session_timeout_ms: Final = attrgetter("session_timeout_ms")
_rebalance_timeout_ms: Final = attrgetter("rebalance_timeout_ms")
_reply: Final = attrgetter("reply")


def quiet_generation(group: Group) -> int:
    """The generation whose heartbeats need no judging; -1: none."""
    return group.generation if group.state in _QUIET else NO_GENERATION


def shortest_timeout_ms(group: Group) -> int:
    """The shortest session or rebalance timeout of anybody waited for; 0: nobody (rule 1)."""
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


def instances(group: Group) -> dict[str, str]:
    """Instance id of each static member to its member id."""
    return {m.instance: m.member for m in group.members.values() if m.instance is not None}


def reply_partitions(group: Group) -> list[int]:
    """Where its members read answers."""
    return sorted(set(map(_reply, group.members.values())))

"""A new division: whenever a member comes, goes or changes its subscription, or topics change.

It is made at once, also while members still let go because of an older one. It stops no member.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from coordlib import limits
from coordlib.core.groups.assigned import reconciliation
from coordlib.core.groups.assigned.group import Group, Member, State, Step, count, text_bytes
from coordlib.core.groups.assigned.subscriptions import MATCHES, Expression
from coordlib.core.groups.assignors.registry import divide
from coordlib.core.groups.assignors.server_model import Subscriber
from coordlib.core.groups.group import next_generation
from coordlib.core.wire import stored

#: Members that one line of history names at most; the rest are only counted.
MEMBERS_NAMED_MAX: Final = 100


def renew(step: Step, reason: str, detail: Mapping[str, Any] | None = None) -> None:
    """Make a new division and notify the members that it concerns. Without members: to Empty."""
    group = step.live
    if not group.members:
        _empty(step, reason)
        return
    wanted = _wanted(group, step.topics)
    topics, left_out = _within_bounds(step, wanted)
    if left_out:
        wanted = _kept(wanted, topics)
    subscribers = {
        name: Subscriber(
            topics=wanted[name],
            share=member.target,
            capacity=member.capacity,
        )
        for name, member in group.members.items()
    }
    division = divide(step.strategies, group.protocol or "", subscribers, topics)
    step.change(
        generation=next_generation(group.generation),
        topics=topics,
        has_left_out=bool(left_out),
        strategy_fault=division.fault,
        rebalance_reason=reason,
        rebalance_started_ms=step.at.time_ms,
    )
    targets = {name: _without_empty(share) for name, share in division.shares.items()}
    step.put(
        *(
            replace(member, target=targets[name])
            for name, member in group.members.items()
            if member.target != targets[name]
        )
    )
    _record(step, left_out, detail or {})
    if division.fault is not None and division.fault != group.strategy_fault:
        step.record(stored.EVENT_STRATEGY_FAILED, reason=division.fault)
    reconciliation.go_on(step)


def _wanted(group: Group, topics: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """The wanted topics by member; equal subscriptions, as most are, are resolved once."""
    matched = _matched(group.members.values(), topics)
    found: dict[Any, tuple[str, ...]] = {}
    wanted = {}
    for name, member in group.members.items():
        subscription = (member.topics, member.pattern, member.exclude)
        if subscription not in found:
            found[subscription] = _wanted_by(member, topics, matched)
        wanted[name] = found[subscription]
    return wanted


def _matched(
    members: Iterable[Member], topics: Mapping[str, int]
) -> dict[Expression, tuple[str, ...]]:
    """The topics that they want by expression."""
    expressions = dict.fromkeys((m.pattern, m.exclude) for m in members if m.pattern is not None)
    return MATCHES.resolve(expressions, topics) if expressions else {}


def _wanted_by(
    member: Member, topics: Mapping[str, int], matched: Mapping[Expression, tuple[str, ...]]
) -> tuple[str, ...]:
    by_expression: tuple[str, ...] = ()
    if member.pattern is not None:
        by_expression = matched[member.pattern, member.exclude]
    if not member.topics:
        return by_expression
    return tuple(sorted({*by_expression, *(name for name in member.topics if name in topics)}))


def wanted_topics(member: Member, topics: Mapping[str, int]) -> tuple[str, ...]:
    """The topics that exist and that it wants, by name. Other named topics stay wishes."""
    return _wanted_by(member, topics, _matched([member], topics))


def go_on(step: Step) -> None:
    """Demand, grant and notify as `reconciliation`; then divide topics that were left out before.

    New topics may have been left out while members held demanded partitions. When the group has
    come to rest there is room, and no other event would lead to their division.
    """
    reconciliation.go_on(step)
    group = step.live
    if group.has_left_out and group.state is State.STABLE and wanted_by_all(step) != group.topics:
        renew(step, "room for more topics")


def wanted_by_all(step: Step) -> dict[str, int]:
    """All topics that exist and that a member wants, as far as the group has room."""
    return _within_bounds(step, _wanted(step.live, step.topics))[0]


def _within_bounds(
    step: Step, wanted: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, int], list[str]]:
    """The topics to divide, and those for which group or shard have no room; both by name.

    Topics of the division before come first: a newcomer's expression takes nothing from others.
    Held partitions count, wanted or not: or a member that changes its subscription again and again
    and lets go of nothing would fill the record with older divisions.
    """
    topics: dict[str, int] = {}
    left_out: list[str] = []
    held = _held(step.live)
    room, room_bytes = limits.PARTITIONS_PER_ASSIGNED_GROUP_MAX, _room_left(step, held)
    shard_bytes = max(step.members_room_bytes, 0)
    some = {topic for topics_of_one in dict.fromkeys(wanted.values()) for topic in topics_of_one}
    for topic in sorted(some, key=lambda each: (each not in step.live.topics, each)):
        count, known = step.topics[topic], held.get(topic, 0)
        grows_by = _bytes_of(step, topic, max(count, known)) - _bytes_of(step, topic, known)
        new_bytes = 0 if topic in step.live.topics else grows_by
        if count > room or grows_by > room_bytes or new_bytes > shard_bytes:
            left_out.append(topic)
            continue
        room, room_bytes = room - count, room_bytes - grows_by
        shard_bytes -= new_bytes
        topics[topic] = count
    return dict(sorted(topics.items())), sorted(left_out)


def _held(group: Group) -> dict[str, int]:
    """Topics with held partitions, or possibly held ones: one more than the highest partition."""
    found: dict[str, int] = {}
    for partitions in group.held():
        for topic, some in partitions.items():
            found[topic] = max(found.get(topic, 0), some[-1] + 1)
    return found


def _room_left(step: Step, held: Mapping[str, int]) -> int:
    """Bytes of the record that are left beside held partitions, which a group keeps."""
    held_bytes = sum(_bytes_of(step, topic, count) for topic, count in held.items())
    return max(limits.ASSIGNED_PARTITIONS_BYTES_MAX - held_bytes, 0)


def _bytes_of(step: Step, topic: str, count: int) -> int:
    """The bytes to store the owners of this topic in any division: targets, grants, demands.

    The name stands once among the topics, and once for each member, each of its grants and each of
    its demands that has something of it: nowhere more often than there are partitions.
    """
    members = step.family.config.max_size
    names = min(count, 1) + min(count, members)
    names += min(count, members * limits.GRANTS_PER_MEMBER_MAX)
    names += min(count, members * limits.DEMANDS_PER_MEMBER_MAX)
    return names * (text_bytes(topic) + 16) + 3 * 7 * count


def _kept(
    wanted: Mapping[str, tuple[str, ...]], topics: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """The topics of these that each member wants; equal ones, as most are, are found once."""
    kept = {
        some: tuple(topic for topic in some if topic in topics)
        for some in dict.fromkeys(wanted.values())
    }
    return {name: kept[some] for name, some in wanted.items()}


def _without_empty(share: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {topic: share[topic] for topic in sorted(share) if share[topic]}


def _record(step: Step, left_out: list[str], detail: Mapping[str, Any]) -> None:
    group = step.live
    step.record(
        stored.EVENT_GENERATION_STARTED,
        reason=group.rebalance_reason,
        detail={
            "protocol_type": group.protocol_type,
            "protocol": group.protocol,
            "leader": None,
            "members": list(group.members)[:MEMBERS_NAMED_MAX],
            "member_count": len(group.members),
            "partition_count": sum(count(m.target) for m in group.members.values()),
            **({"left_out": left_out[:MEMBERS_NAMED_MAX]} if left_out else {}),
            **detail,
        },
    )


def _empty(step: Step, reason: str) -> None:
    step.change(
        generation=next_generation(step.live.generation),
        protocol=None,
        topics={},
        strategy_fault=None,
        rebalance_reason=reason,
        rebalance_started_ms=step.at.time_ms,
    )
    if step.live.guards:
        step.enter(State.RECONCILING)
        return
    step.enter(State.EMPTY)
    step.record(stored.EVENT_GROUP_EMPTIED, reason=reason)

"""Brokers come, stop and go: what follows for the partitions that have a replica on them.

Brokers that are silent, replaced, removed, or that leave by themselves change their rows in one
step. A former leader that was not asked may still act: what it led has no leader meanwhile (rule
14). A guard ends when its own fence has stopped it, one session after it was last heard or its
release timeout after it could read that it is out, or when it reports itself that it has stopped.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from coordlib.core.controller import leadership, reassignment, topics
from coordlib.core.controller.states import Broker, BrokerState, Guard, Partition, ReplicaState
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine.tables import Place
from coordlib.core.engine.time import reaction
from coordlib.core.wire import stored

_WAITING = frozenset({ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED})


class Departure(NamedTuple):
    """One broker that goes."""

    broker: Broker
    reason: str
    #: The incarnation that may still lead what it led; -1: it has stopped, or must have.
    guard: int = -1
    #: Whether nothing of what it had is left.
    has_lost_storage: bool = False
    #: Whether it keeps a session: it reported itself that it stopped, and heartbeats on.
    keeps_session: bool = False


def apply_departures(step: ClusterStep, departures: Iterable[Departure]) -> None:
    """Let brokers go, in this order: of two that go at once the second stays in the ISR."""
    gone = list(departures)
    for each in gone:
        _enter_inactive(step, each)
    concerned: dict[Place, list[Departure]] = {}
    for each in gone:
        for place, _ in step.rows_of(each.broker.broker):
            concerned.setdefault(place, []).append(each)
    for place in sorted(concerned):
        for each in concerned[place]:
            row = _leave(step, place, each)
        # Most rows have a leader, and stay: who registers again and again has many of them.
        if row.leader < 0:
            leadership.fill(step, place)
        if row.adding or row.removing:
            reassignment.advance(step, place)


def _enter_inactive(step: ClusterStep, departure: Departure) -> None:
    broker = step.live.brokers[departure.broker.broker]
    fields: dict[str, Any] = {
        "demand": None,
        "has_session": departure.keeps_session and not broker.is_legacy,
        "awaits_cover": broker.awaits_cover if departure.keeps_session else None,
    }
    if broker.is_ready:
        step.enter(broker, BrokerState.INACTIVE, departure.reason, **fields)


def _leave(step: ClusterStep, place: Place, departure: Departure) -> Partition:
    row, number = step.at_place(place), departure.broker.broker
    fields: dict[str, Any] = {}
    if number in row.isr and (len(row.isr) > 1 or departure.has_lost_storage):
        fields["isr"] = _without(row.isr, number)
    if row.leader == number:
        fields |= {"leader": -1, "guard": departure.guard}
    elif row.guard == departure.broker.incarnation and departure.broker.is_ready:
        fields["guard"] = departure.guard  # it led what is being deleted
    if number in row.new:
        fields["new"] = _without(row.new, number)
    if row.deleting.get(number) in _WAITING:
        ineligible = int(ReplicaState.DELETION_INELIGIBLE)
        fields["deleting"] = {**row.deleting, number: ineligible}
    return step.alter(place, **fields) if fields else row


def _without(brokers: tuple[int, ...], number: int) -> tuple[int, ...]:
    return tuple(each for each in brokers if each != number)


def may_lead(step: ClusterStep, broker: Broker) -> bool:
    """Whether a broker leads anything, or did and has not read that it is being deleted."""
    return any(
        row.leader == broker.broker or row.guard == broker.incarnation
        for _, row in step.rows_of(broker.broker)
    )


def is_stopping_member(row: Partition, broker: int) -> bool:
    """Whether a broker follows, in an ISR that does without it."""
    return row.leader != broker and broker in row.isr and len(row.isr) > 1


def activate(step: ClusterStep, broker: Broker, reason: str) -> Broker:
    """Make an Inactive broker Active: it follows again, and leads what has no leader."""
    after = _activated(step, broker, reason)
    for place, row in step.rows_of(broker.broker):
        topics.retry_deletion(step, place, (broker.broker,))
        if broker.broker in row.new:
            step.alter(place, new=tuple(each for each in row.new if each != broker.broker))
        leadership.fill(step, place)
        reassignment.advance(step, place)
    return after


def _activated(step: ClusterStep, broker: Broker, reason: str) -> Broker:
    """Its session runs once it can read the answer, which may be long under way (rule 3)."""
    fields: dict[str, Any] = {}
    if not broker.is_legacy:
        fields = {"has_session": True, "awaits_cover": step.at.offset}
    return step.enter(broker, BrokerState.ACTIVE, reason, **fields)


def resume(step: ClusterStep, broker: Broker, reason: str) -> Broker:
    """Cancel the stop of a broker. It still releases what was demanded of it. It leads again what
    had no leader meanwhile, and moves that waited for it continue."""
    after = step.enter(broker, BrokerState.ACTIVE, reason)
    for place, row in step.rows_of(broker.broker):
        is_own = row.leader == broker.broker and row.move == leadership.SHUTDOWN
        if is_own and row.asked < 0:
            step.alter(place, move="")
        leadership.fill(step, place)
        reassignment.advance(step, place)
    return after


def begin_shutdown(step: ClusterStep, broker: Broker, reason: str) -> Broker:
    """Stop a broker: it leaves in-sync replicas, and releases what another broker can lead."""
    after = step.enter(broker, BrokerState.STOPPING, reason)
    for place, row in step.rows_of(broker.broker):
        if is_stopping_member(row, broker.broker):
            step.alter(place, isr=tuple(each for each in row.isr if each != broker.broker))
        elif must_move(step, row):
            leadership.want(step, place, leadership.SHUTDOWN)
    return after


def must_move(step: ClusterStep, row: Partition) -> bool:
    """Whether the leader stops, and another broker could lead."""
    leader = step.broker(row.leader) if row.leader >= 0 else None
    if (
        leader is None
        or leader.state is not BrokerState.STOPPING
        or row.move == leadership.SHUTDOWN
    ):
        return False
    return any(each != row.leader and each in step.active for each in row.isr)


def place_guard(step: ClusterStep, former: Broker, reason: str, successor: str | None) -> int:
    """Guard what a broker leads. Returns the incarnation, or -1 where nothing is to be guarded."""
    clock_ms = step.at.clock_ms
    # Until a tick covers its newest answer its session has not begun to run.
    heard_ms = clock_ms
    if former.awaits_cover is None:
        heard_ms = step.heard.get(former.member, clock_ms)
    due_ms = heard_ms + former.session_timeout_ms
    if former.is_legacy or due_ms <= clock_ms:
        return -1
    notice = reaction(former.release_timeout_ms, step.at.offset)
    guard = Guard(
        broker=former.broker,
        incarnation=former.incarnation,
        client=former.client,
        session_timeout_ms=former.session_timeout_ms,
        due_ms=due_ms,
        notice=notice,
    )
    step.change(guards={**step.live.guards, former.member: guard})
    step.record(
        stored.EVENT_HAND_OVER_DELAYED,
        member=former.member,
        reason=reason,
        detail={
            "client": former.client,
            "broker": former.broker,
            "successor": successor,
            "wait_ms": min(due_ms - clock_ms, former.release_timeout_ms),
            "wait_max_ms": former.release_timeout_ms,
        },
    )
    return former.incarnation


def renew_guard(step: ClusterStep, member: str) -> None:
    """A former leader heartbeats: by its own clock it may act for one session from now."""
    guard = step.value.guards.get(member) if step.value else None
    if guard is not None:
        due_ms = step.at.clock_ms + guard.session_timeout_ms
        step.change(guards={**step.live.guards, member: replace(guard, due_ms=due_ms)})


def end_guards(step: ClusterStep, members: Iterable[str]) -> None:
    """These have stopped: what they led may be led by others."""
    ended = [step.live.guards[name] for name in members]
    over = {each.incarnation for each in ended}
    rest = {name: g for name, g in step.live.guards.items() if g.incarnation not in over}
    step.change(guards=rest)
    places = {
        at
        for guard in ended
        for at, row in step.rows_of(guard.broker)
        if row.guard == guard.incarnation
    }
    for at in sorted(places):
        step.alter(at, guard=-1)
        leadership.fill(step, at)
        reassignment.advance(step, at)
    topics.conclude_deletion(step, [topic for topic, _ in places])


def guards_of(step: ClusterStep, incarnation: int) -> list[str]:
    """The guard of an incarnation, if there is one."""
    guards = step.cluster.guards.items()
    return [name for name, guard in guards if guard.incarnation == incarnation]

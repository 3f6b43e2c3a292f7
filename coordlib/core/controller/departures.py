"""Brokers go: silent, replaced, put out, or by their own word. Their rows change in one step.

A broker that goes leaves every ISR but as its last member, or wholly where its storage is lost.
What it led is elected at once, unless it may still act: then it is guarded.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from coordlib.core.controller import leadership, reassignment
from coordlib.core.controller.cluster import Broker
from coordlib.core.controller.rows import Partition
from coordlib.core.controller.states import BrokerState, ReplicaState
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine.table import Place

_WAITING = frozenset({ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED})


class Departure(NamedTuple):
    """One broker that goes."""

    broker: Broker
    reason: str
    #: The incarnation that may still lead what it led; -1: it has stopped, or must have.
    guard: int = -1
    #: Whether nothing of what it had is left.
    has_lost_storage: bool = False
    #: Whether it keeps a session: it said itself that it has stopped, and heartbeats on.
    keeps_session: bool = False


def apply(step: ClusterStep, departures: Iterable[Departure]) -> None:
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

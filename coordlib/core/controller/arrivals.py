"""Brokers come, and brokers stop: what follows for the partitions that have a replica on them."""

from typing import Any

from coordlib.core.controller import deletion, elections, leadership, reassignment
from coordlib.core.controller.cluster import Broker
from coordlib.core.controller.departures import is_stopping_member
from coordlib.core.controller.rows import Partition
from coordlib.core.controller.states import BrokerState
from coordlib.core.controller.step import ClusterStep


def come(step: ClusterStep, broker: Broker, reason: str) -> Broker:
    """An Inactive broker is Active: it follows again, and leads what nobody leads."""
    after = _active(step, broker, reason)
    for place, row in step.rows_of(broker.broker):
        deletion.retry(step, place, (broker.broker,))
        if broker.broker in row.new:
            step.alter(place, new=tuple(each for each in row.new if each != broker.broker))
        leadership.fill(step, place)
        reassignment.advance(step, place)
    return after


def _active(step: ClusterStep, broker: Broker, reason: str) -> Broker:
    """Its session runs once it can read so: an answer may be long under way (rule 3)."""
    fields: dict[str, Any] = {}
    if not broker.is_legacy:
        fields = {"has_session": True, "awaits_cover": step.at.offset}
    return step.enter(broker, BrokerState.ACTIVE, reason, **fields)


def go_on(step: ClusterStep, broker: Broker, reason: str) -> Broker:
    """A broker that was to stop goes on. What it was asked for it must let go of all the same. It
    leads again what nobody could lead meanwhile, and moves that waited for it go on, too."""
    after = step.enter(broker, BrokerState.ACTIVE, reason)
    for place, row in step.rows_of(broker.broker):
        is_own = row.leader == broker.broker and row.move == elections.SHUTDOWN
        if is_own and row.asked < 0:
            step.alter(place, move="")
        leadership.fill(step, place)
        reassignment.advance(step, place)
    return after


def stop(step: ClusterStep, broker: Broker, reason: str) -> Broker:
    """A broker stops: it follows nobody any more, and lets go of what another can lead."""
    after = step.enter(broker, BrokerState.STOPPING, reason)
    for place, row in step.rows_of(broker.broker):
        if is_stopping_member(row, broker.broker):
            step.alter(place, isr=tuple(each for each in row.isr if each != broker.broker))
        elif must_move(step, row):
            leadership.want(step, place, elections.SHUTDOWN)
    return after


def must_move(step: ClusterStep, row: Partition) -> bool:
    """Whether the leader stops, and another broker could lead."""
    leader = step.broker(row.leader) if row.leader >= 0 else None
    if leader is None or leader.state is not BrokerState.STOPPING or row.move == elections.SHUTDOWN:
        return False
    return any(each != row.leader and each in step.active for each in row.isr)

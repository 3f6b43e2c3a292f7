"""The deadlines of a cluster, and what follows from each.

    session   a broker was not heard for its session timeout: it goes
    release   a broker has not let go within its release timeout: it is put out
    guard     a former leader must have stopped by now (rule 14)

A heartbeat puts off its broker's session, and nothing else. What a silent broker led is led again
in the step of its deadline, if somebody in sync is Active.  # INV-81
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from coordlib.core.controller import departures, guards
from coordlib.core.controller.broker_heartbeat import forget_session
from coordlib.core.controller.cluster import Broker, Cluster, Demand, Guard
from coordlib.core.controller.demands import finish
from coordlib.core.controller.departures import Departure
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine.clock import NEVER, Due, rerun

SESSION: Final = "session"
RELEASE: Final = "release"
GUARD: Final = "guard"
REASONS: Final = {SESSION: "session expired", RELEASE: "did not let go in time"}


def next_due(cluster: Cluster, heard: Mapping[str, int]) -> Due:
    """The earliest deadline of the cluster; NEVER when it waits for nothing."""
    return min(_dues(cluster, heard), default=Due(NEVER))


def _dues(cluster: Cluster, heard: Mapping[str, int]) -> Iterator[Due]:
    for name, guard in cluster.guards.items():
        told_ms = NEVER if guard.told.due_ms is None else guard.told.due_ms
        yield Due(min(guard.due_ms, told_ms), GUARD, name)
    for broker in cluster.brokers.values():
        if broker.has_session and broker.awaits_cover is None:
            yield Due(heard[broker.member] + broker.session_timeout_ms, SESSION, broker.member)
        if broker.demand is not None and broker.demand.timer.due_ms is not None:
            yield Due(broker.demand.timer.due_ms, RELEASE, broker.member)


def fire(step: ClusterStep, due: Due) -> None:
    """Do what follows from a deadline, and from all others of the cluster that are due by now.

    In one step: what a dead broker led must not go to another dead one, and each row is written
    once.
    """
    dues = [each for each in _dues(step.live, step.heard) if each.due_ms <= step.at.clock_ms]
    gone: dict[int, Departure] = {}
    for each in sorted(dues):
        broker = step.live.by_member(each.member) if each.kind != GUARD else None
        if broker is None:
            continue
        step.cause = each.name
        step.reason = REASONS[each.kind]
        if broker.is_ready:
            gone.setdefault(broker.broker, Departure(broker, step.reason))
        else:
            forget_session(step, broker)
    step.cause = due.name
    departures.apply(step, gone.values())
    ended = [each.member for each in sorted(dues) if each.kind == GUARD]
    if ended:
        step.reason = step.reason or "former leader must have stopped"
        guards.end(step, ended)
    finish(step)


def cover(cluster: Cluster, published: int, clock_ms: int) -> tuple[Cluster, list[str]]:
    """Start what waited for outputs up to `published` to be visible (rule 3).

    Returns the cluster, and the members whose session starts now.
    """
    heard_now: list[str] = []
    changed: dict[int, Broker] = {}
    for number, broker in cluster.brokers.items():
        is_heard = broker.awaits_cover is not None and broker.awaits_cover <= published
        demand = _covered(broker.demand, published, clock_ms)
        if is_heard:
            heard_now.append(broker.member)
        if is_heard or demand is not broker.demand:
            awaits = None if is_heard else broker.awaits_cover
            changed[number] = replace(broker, demand=demand, awaits_cover=awaits)
    guarded = {
        name: replace(guard, told=guard.told.covered_by(published, clock_ms))
        for name, guard in cluster.guards.items()
    }
    return replace(cluster, brokers=cluster.brokers | changed, guards=guarded), heard_now


def _covered(demand: Demand | None, published: int, clock_ms: int) -> Demand | None:
    if demand is None:
        return None
    timer = demand.timer.covered_by(published, clock_ms)
    return demand if timer is demand.timer else replace(demand, timer=timer)


def restart(cluster: Cluster, clock_ms: int) -> Cluster:
    """Give every running deadline its full time again, as after a quarantine."""
    brokers = {number: _rerun(each, clock_ms) for number, each in cluster.brokers.items()}
    guarded = {name: _rerun_guard(each, clock_ms) for name, each in cluster.guards.items()}
    return replace(cluster, brokers=brokers, guards=guarded)


def _rerun(broker: Broker, clock_ms: int) -> Broker:
    if broker.demand is None:
        return broker
    timer = rerun(broker.demand.timer, clock_ms)
    return replace(broker, demand=replace(broker.demand, timer=timer))


def _rerun_guard(guard: Guard, clock_ms: int) -> Guard:
    due_ms = clock_ms + guard.session_timeout_ms
    return replace(guard, due_ms=due_ms, told=rerun(guard.told, clock_ms))


def uncovered(cluster: Cluster) -> tuple[int, int] | None:
    """The lowest and the highest record whose answers somebody must be able to read first."""
    causes = [b.awaits_cover for b in cluster.brokers.values() if b.awaits_cover is not None]
    for broker in cluster.brokers.values():
        if broker.demand is not None and broker.demand.timer.due_ms is None:
            causes.append(broker.demand.timer.cause)
    causes += [g.told.cause for g in cluster.guards.values() if g.told.due_ms is None]
    return (min(causes), max(causes)) if causes else None


def shortest_timeout_ms(cluster: Cluster) -> int:
    """The shortest timeout of anybody who is waited for; 0: nobody (rule 1)."""
    brokers = cluster.brokers.values()  # a thousand: they are asked for whenever one has changed
    timeouts = [each.session_timeout_ms for each in brokers if each.has_session]
    timeouts += [
        each.release_timeout_ms for each in brokers if each.has_session or each.demand is not None
    ]
    for guard in cluster.guards.values():
        timeouts += (guard.session_timeout_ms, guard.told.duration_ms)
    return min(timeouts, default=0)

"""A former leader that was not asked may still act: what it led has no leader meanwhile (rule 14).

A guard ends when its own fence has stopped it, one session after it was last heard or its release
timeout after it could read that it is out, or when it says itself that it has stopped.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from coordlib.core.controller import deletion, leadership, reassignment
from coordlib.core.controller.cluster import Broker, Guard
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine import clock as deadlines
from coordlib.core.wire import stored


def place(step: ClusterStep, former: Broker, reason: str, successor: str | None) -> int:
    """Guard what a broker leads. Returns the incarnation, or -1 where nothing is to be guarded."""
    clock_ms = step.at.clock_ms
    # Until a tick covers its newest answer its session has not begun to run.
    heard_ms = clock_ms
    if former.awaits_cover is None:
        heard_ms = step.heard.get(former.member, clock_ms)
    due_ms = heard_ms + former.session_timeout_ms
    if former.is_legacy or due_ms <= clock_ms:
        return -1
    told = deadlines.reaction(former.release_timeout_ms, step.at.offset)
    guard = Guard(
        broker=former.broker,
        incarnation=former.incarnation,
        client=former.client,
        session_timeout_ms=former.session_timeout_ms,
        due_ms=due_ms,
        told=told,
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


def renew(step: ClusterStep, member: str) -> None:
    """It heartbeats: by its own clock it may go on for one session from now."""
    guard = step.value.guards.get(member) if step.value else None
    if guard is not None:
        due_ms = step.at.clock_ms + guard.session_timeout_ms
        step.change(guards={**step.live.guards, member: replace(guard, due_ms=due_ms)})


def end(step: ClusterStep, members: Iterable[str]) -> None:
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
    deletion.conclude(step, [topic for topic, _ in places])


def of_incarnation(step: ClusterStep, incarnation: int) -> list[str]:
    """The guard of an incarnation, if there is one."""
    guards = step.cluster.guards.items()
    return [name for name, guard in guards if guard.incarnation == incarnation]

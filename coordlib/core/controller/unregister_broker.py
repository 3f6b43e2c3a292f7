"""UnregisterBroker: a broker that is gone for ever is forgotten.

What it had counts as lost: it leaves every ISR, as its last member too, since nobody could tell
later whether a process of its id has the same storage. No deletion waits for it any more.
"""

from coordlib.core.controller import deletion
from coordlib.core.controller.cluster import Broker
from coordlib.core.controller.demands import finish
from coordlib.core.controller.states import ReplicaState
from coordlib.core.controller.step import ClusterStep
from coordlib.core.wire import requests as rq
from coordlib.core.wire import stored
from coordlib.errors import ErrorCode

NOT_THERE = "Check the broker's id: none of this id is registered in the cluster."
STILL_THERE = "Stop it first, or remove it: it is Active, or its session runs."
MAY_STILL_LEAD = "Wait: a process of it that led may still act."


def unregister_broker(step: ClusterStep, request: rq.UnregisterBroker) -> None:
    """Judge one UnregisterBroker."""
    broker = step.broker(request.broker)
    if broker is None:
        return step.refuse(request, ErrorCode.BROKER_ID_NOT_REGISTERED, NOT_THERE)
    if broker.is_ready or broker.has_session:
        return step.refuse(request, ErrorCode.NON_EMPTY_GROUP, STILL_THERE)
    if any(guard.broker == request.broker for guard in step.cluster.guards.values()):
        return step.refuse(request, ErrorCode.NON_EMPTY_GROUP, MAY_STILL_LEAD)
    step.reason = f"unregistered by {request.client}"
    _forget(step, broker)
    finish(step)
    return step.answer(request)


def _forget(step: ClusterStep, broker: Broker) -> None:
    number = broker.broker
    rows = step.rows_of(number)
    brokers = {n: each for n, each in step.live.brokers.items() if n != number}
    step.change(brokers=brokers)
    step.record(
        stored.EVENT_BROKER_UNREGISTERED,
        member=broker.member,
        reason=step.reason,
        detail={"broker": number, "incarnation": broker.incarnation},
    )
    for place, row in rows:
        if number in row.isr:
            step.alter(place, isr=tuple(each for each in row.isr if each != number))
        if row.deleting.get(number) == ReplicaState.DELETION_INELIGIBLE:
            deletion.succeed(step, place, (number,))
    deletion.conclude(step, [place[0] for place, _ in rows])

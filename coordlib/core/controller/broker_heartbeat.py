"""BrokerHeartbeat: the state that a broker wants to be in, judged by the table of targets.

It counts only if `since` names the record that gave the present state: a late one does nothing
(rule 12), and nobody is Active again before it has read that it was not.
"""

from msgspec.structs import replace

from coordlib.core.controller import arrivals, departures, guards
from coordlib.core.controller.cluster import Broker
from coordlib.core.controller.demands import finish
from coordlib.core.controller.departures import Departure
from coordlib.core.controller.membership import find_own
from coordlib.core.controller.states import TARGETS, BrokerState
from coordlib.core.controller.step import ClusterStep
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode

COMES, GOES, STOPS, GOES_ON = "broker comes", "broker goes", "broker stops", "broker goes on"
NO_TARGET = "A broker registered with a version below 5 has no target: register it with 5."


def broker_heartbeat(step: ClusterStep, request: rq.BrokerHeartbeat) -> None:
    """Judge one BrokerHeartbeat."""
    broker = find_own(step, request)
    if not isinstance(broker, Broker):
        return step.refuse(request, *broker)
    if broker.is_legacy:
        return step.refuse(request, ErrorCode.INVALID_REQUEST, NO_TARGET)
    if broker.has_session:
        step.touched.append(broker.member)
    if request.since == broker.since:
        _judge(step, request, broker)
    finish(step)
    return _answer(step, request, step.live.brokers[broker.broker])


def _judge(step: ClusterStep, request: rq.BrokerHeartbeat, broker: Broker) -> None:
    """The sender knows its state. If it is out it has read so, and leads nothing any more."""
    target = BrokerState(request.target_state)
    after = TARGETS[broker.state][target]
    _set_reason(step, request, broker.state, after)
    guards.end(step, guards.of_incarnation(step, broker.incarnation))
    if after is broker.state:
        return
    if after is BrokerState.STOPPING:
        arrivals.stop(step, broker, step.reason)
    elif after is BrokerState.INACTIVE:
        departures.apply(step, [Departure(broker, step.reason, keeps_session=True)])
    elif broker.state is BrokerState.STOPPING:
        arrivals.go_on(step, broker, step.reason)
    else:
        arrivals.come(step, broker, step.reason)


def _set_reason(
    step: ClusterStep, request: rq.BrokerHeartbeat, before: BrokerState, after: BrokerState
) -> None:
    what = {
        BrokerState.STOPPING: STOPS,
        BrokerState.INACTIVE: GOES,
        BrokerState.ACTIVE: GOES_ON if before is BrokerState.STOPPING else COMES,
    }[after]
    step.reason = f"{what}: {request.reason}" if request.reason else what


def _answer(step: ClusterStep, request: rq.BrokerHeartbeat, broker: Broker) -> None:
    step.answer(
        request,
        broker=broker.broker,
        incarnation=broker.incarnation,
        current_state=broker.state.value,
        since=broker.since,
        may_stop=may_stop(broker),
    )


def may_stop(broker: Broker) -> bool:
    """Whether a broker that wants to stop has nothing left that another could lead."""
    if broker.state is BrokerState.STOPPING:
        return broker.moving == 0 and broker.demand is None
    return broker.state is BrokerState.INACTIVE


def forget_session(step: ClusterStep, broker: Broker) -> None:
    """An Inactive broker is silent: it stays registered, and a BrokerHeartbeat finds it again."""
    step.put(replace(broker, has_session=False, awaits_cover=None))

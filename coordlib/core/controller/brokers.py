"""Requests of brokers about themselves: RegisterBroker, BrokerHeartbeat, LeaveGroup, and their end.

RegisterBroker: the newest registration of an id wins, at once. BrokerHeartbeat has the state that a
broker wants to be in, judged by the table of targets. It counts only if `since` names the record
that gave the present state: a late one does nothing (rule 12), and nobody is Active again before it
has read that it was not. UnregisterBroker: a broker that is gone for ever is forgotten.

Keeps INV-31.
"""

from typing import Final

from msgspec.structs import replace

from coordlib import limits
from coordlib.core.controller import arrivals, topics
from coordlib.core.controller.arrivals import Departure
from coordlib.core.controller.leadership import finish
from coordlib.core.controller.states import TARGETS, Broker, BrokerState, ReplicaState
from coordlib.core.controller.step import ClusterStep, find_own, record_parts, replica_row
from coordlib.core.engine.step import SHARD_IS_FULL, SHARD_IS_TOO_LARGE, reply_of
from coordlib.core.engine.time import Rate
from coordlib.core.wire import api, stored
from coordlib.core.wire.controller import VERSION_WITH_HEARTBEATS
from coordlib.errors import ErrorCode

COMES, GOES, STOPS, GOES_ON = "broker comes", "broker goes", "broker stops", "broker goes on"
NO_TARGET = "A broker registered with a version below 5 has no target: register it with 5."


def broker_heartbeat(step: ClusterStep, request: api.BrokerHeartbeat) -> None:
    """Judge one BrokerHeartbeat."""
    broker = find_own(step, request)
    if not isinstance(broker, Broker):
        return step.refuse(request, *broker)
    if broker.is_legacy:
        return step.refuse(request, ErrorCode.INVALID_REQUEST, NO_TARGET)
    if broker.has_session:
        step.touched.append(broker.member)
    if request.since == broker.since:
        _follow_target(step, request, broker)
    finish(step)
    return _answer_heartbeat(step, request, step.live.brokers[broker.broker])


def _follow_target(step: ClusterStep, request: api.BrokerHeartbeat, broker: Broker) -> None:
    """The sender has read its state. If it is out, it leads nothing any more."""
    target = BrokerState(request.target_state)
    after = TARGETS[broker.state][target]
    _set_reason(step, request, broker.state, after)
    arrivals.end_guards(step, arrivals.guards_of(step, broker.incarnation))
    if after is broker.state:
        return
    if after is BrokerState.STOPPING:
        arrivals.begin_shutdown(step, broker, step.reason)
    elif after is BrokerState.INACTIVE:
        arrivals.apply_departures(step, [Departure(broker, step.reason, keeps_session=True)])
    elif broker.state is BrokerState.STOPPING:
        arrivals.resume(step, broker, step.reason)
    else:
        arrivals.activate(step, broker, step.reason)


def _set_reason(
    step: ClusterStep, request: api.BrokerHeartbeat, before: BrokerState, after: BrokerState
) -> None:
    what = {
        BrokerState.STOPPING: STOPS,
        BrokerState.INACTIVE: GOES,
        BrokerState.ACTIVE: GOES_ON if before is BrokerState.STOPPING else COMES,
    }[after]
    step.reason = f"{what}: {request.reason}" if request.reason else what


def _answer_heartbeat(step: ClusterStep, request: api.BrokerHeartbeat, broker: Broker) -> None:
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


def heartbeat(step: ClusterStep, request: api.Heartbeat) -> None:
    """Judge one Heartbeat."""
    broker = step.cluster.by_member(request.member)
    if broker is not None and broker.has_session:
        step.touched.append(request.member)  # it named an instance; brokers have none
        return
    arrivals.renew_guard(step, request.member)
    step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)


SUPERSEDED = "superseded by a newer registration"
#: For the sender of a registration that comes too soon after others of its id.
BROKER_IS_THROTTLED: Final = (
    "Try again: this broker id has been registered too often of late. If another process has the "
    "same id, give each an id of its own."
)
#: With the bounds of the session, then those of the release timeout.
WRONG_TIMEOUTS: Final = (
    "Choose a session_timeout_ms of {} to {}, and a release_timeout_ms of {} to {}."
)


def register_broker(step: ClusterStep, request: api.RegisterBroker) -> None:
    """Judge one RegisterBroker."""
    if wrong := _wrong_timeouts(step, request):
        return step.refuse(request, ErrorCode.INVALID_SESSION_TIMEOUT, wrong)
    known = step.broker(request.broker)
    sender = (request.client, request.id)
    if known is not None and sender == (known.client, known.first_id):
        return _answer_registration(step, request, known)  # the same record once more
    if known is not None and sender in known.superseded:
        return step.refuse(request, ErrorCode.STALE_BROKER_EPOCH)
    rate = Rate(known.free_us if known else 0, limits.REGISTRATIONS_PER_SECOND_MAX)
    if wait_ms := rate.wait_ms(step.at.clock_ms):
        code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return step.refuse(request, code, BROKER_IS_THROTTLED, throttle_time_ms=wait_ms)
    if refused := _is_full(step, known):
        return step.refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED, refused)
    replicas = len(step.rows_of(request.broker)) if known else 0
    rate.book(step.at.clock_ms, 1 + replicas // limits.REPLICAS_PER_REGISTRATION)
    broker = _made(step, request, known, rate.free_us)
    if not step.room_of(broker):
        return step.refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED, SHARD_IS_TOO_LARGE)
    if step.value is None:
        step.create("first broker")
    step.reason = "broker registered" if known is None else SUPERSEDED
    if known is not None:
        _supersede(step, request, known)
    step.put(broker)
    _record(step, request, broker, known)
    if broker.is_legacy:
        arrivals.activate(step, broker, "legacy registration")
    finish(step)
    return _answer_registration(step, request, step.live.brokers[broker.broker])


def _wrong_timeouts(step: ClusterStep, request: api.RegisterBroker) -> str | None:
    bounds = step.config
    session = bounds.session_timeout_min_ms, bounds.session_timeout_max_ms
    release = bounds.release_timeout_min_ms, bounds.release_timeout_max_ms
    is_session = session[0] <= request.session_timeout_ms <= session[1]
    is_release = release[0] <= request.release_timeout_ms <= release[1]
    return None if is_session and is_release else WRONG_TIMEOUTS.format(*session, *release)


def _made(
    step: ClusterStep, request: api.RegisterBroker, known: Broker | None, free_us: int
) -> Broker:
    at = step.at
    past = () if known is None else (*known.superseded, (known.client, known.first_id))
    is_legacy = request.version < VERSION_WITH_HEARTBEATS
    return Broker(
        broker=request.broker,
        incarnation=at.offset,
        member=f"{request.client}-{at.incarnation}-{at.shard}-{at.offset}",
        client=request.client,
        reply=reply_of(request, at),
        since=at.offset,
        since_ms=at.time_ms,
        endpoints=request.endpoints,
        rack=request.rack,
        storage=request.storage,
        session_timeout_ms=request.session_timeout_ms,
        release_timeout_ms=request.release_timeout_ms,
        is_legacy=is_legacy,
        first_id=request.id,
        superseded=past[-limits.SUPERSEDED_MAX :],
        has_session=not is_legacy,
        awaits_cover=None if is_legacy else at.offset,
        free_us=free_us,
    )


def _is_full(step: ClusterStep, known: Broker | None) -> str | None:
    """Why no further broker may come, whatever it has; None: one may."""
    if not step.may_create:
        return SHARD_IS_FULL
    if known is None and len(step.cluster.brokers) >= step.config.brokers_max:
        return "Unregister brokers that are gone for ever, or raise brokers.brokers_max."
    return None


def _supersede(step: ClusterStep, request: api.RegisterBroker, known: Broker) -> None:
    """The older process goes. Its leaderships are guarded unless it has certainly ended."""
    is_same_storage = bool(known.storage) and known.storage == request.storage
    has_ended = is_same_storage and request.previous == known.incarnation
    guard = -1
    if has_ended:
        arrivals.end_guards(step, arrivals.guards_of(step, known.incarnation))
    elif known.is_ready and arrivals.may_lead(step, known):
        guard = arrivals.place_guard(step, known, SUPERSEDED, request.client)
    arrivals.apply_departures(step, [Departure(known, SUPERSEDED, guard, not is_same_storage)])
    step.notify_removed(known.reply, known.member, SUPERSEDED)


def _record(
    step: ClusterStep, request: api.RegisterBroker, broker: Broker, known: Broker | None
) -> None:
    step.record(
        stored.EVENT_BROKER_REGISTERED,
        member=broker.member,
        reason=request.reason or "",
        detail={
            "broker": broker.broker,
            "incarnation": broker.incarnation,
            "client": broker.client,
            "endpoints": broker.endpoints,
            "rack": broker.rack,
            "storage": broker.storage,
            "session_timeout_ms": broker.session_timeout_ms,
            "release_timeout_ms": broker.release_timeout_ms,
            "is_legacy": broker.is_legacy,
            "superseded": None if known is None else known.incarnation,
        },
    )


def _answer_registration(step: ClusterStep, request: api.RegisterBroker, broker: Broker) -> None:
    rows = (replica_row(place, row) for place, row in step.rows_of(broker.broker))
    parts = list(record_parts(partitions=rows))
    for number, part in enumerate(parts):
        step.answer(
            request,
            broker=broker.broker,
            incarnation=broker.incarnation,
            member=broker.member,
            current_state=broker.state.value,
            since=broker.since,
            generation=step.live.generation,
            part=number,
            parts=len(parts),
            **part.fields,
        )


def leave_group(step: ClusterStep, request: api.LeaveGroup) -> None:
    """Judge one LeaveGroup. An absent cluster answers UNKNOWN_MEMBER_ID in every row."""
    rows = tuple(leaver.left(_judge_leaver(step, request, leaver)) for leaver in request.members)
    finish(step)
    step.answer(request, members=rows)


def _judge_leaver(step: ClusterStep, request: api.LeaveGroup, leaver: api.Leaver) -> ErrorCode:
    guard = step.cluster.guards.get(leaver.member)
    if guard is not None and guard.client == request.client:
        step.reason = "former leader has stopped"
        arrivals.end_guards(step, [leaver.member])
    broker = step.cluster.by_member(leaver.member)
    if broker is None or leaver.instance is not None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_itself = broker.client == request.client
    if request.remain and not is_itself:
        return ErrorCode.INVALID_REQUEST
    step.reason = request.why(is_itself)
    _remove(step, broker, is_itself)
    return ErrorCode.NONE


def _remove(step: ClusterStep, broker: Broker, is_itself: bool) -> None:
    if not broker.is_ready:
        forget_session(step, broker)
        return
    guard = -1
    if not is_itself and arrivals.may_lead(step, broker):
        guard = arrivals.place_guard(step, broker, step.reason, None)
    arrivals.apply_departures(step, [Departure(broker, step.reason, guard)])
    step.notify_removed(broker.reply, broker.member, step.reason)


NOT_THERE = "Check the broker's id: none of this id is registered in the cluster."
STILL_THERE = "Stop it first, or remove it: it is Active, or its session runs."
MAY_STILL_LEAD = "Wait: a process of it that led may still act."


def unregister_broker(step: ClusterStep, request: api.UnregisterBroker) -> None:
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
            topics.succeed_deletion(step, place, (number,))
    topics.conclude_deletion(step, [place[0] for place, _ in rows])

"""RegisterBroker: a broker process is there. The newest registration of an id wins, at once.

Its incarnation is the record's offset (KRaft; KIP-343 took the czxid). What the older process led
has no leader until that process must have stopped, or the newer one proves that it has.

Each broker id has a rate: a process that a supervisor starts again and again, or two with one id,
must not fill history and metadata, nor hold up the shard's other entities. A registration of very
many replicas counts as several: its answer names them all.  # INV-31
"""

from typing import Final

from coordlib import limits
from coordlib.core.controller import arrivals, departures, guards, telling
from coordlib.core.controller.cluster import Broker
from coordlib.core.controller.demands import finish
from coordlib.core.controller.departures import Departure
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine import effect as fx
from coordlib.core.engine.step import SHARD_IS_FULL, SHARD_IS_TOO_LARGE
from coordlib.core.engine.throttle import Rate
from coordlib.core.engine.transition import reply_of
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.core.wire import stored
from coordlib.core.wire.brokers import VERSION_WITH_HEARTBEATS
from coordlib.errors import ErrorCode

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


def register_broker(step: ClusterStep, request: rq.RegisterBroker) -> None:
    """Judge one RegisterBroker."""
    if wrong := _wrong_timeouts(step, request):
        return step.refuse(request, ErrorCode.INVALID_SESSION_TIMEOUT, wrong)
    known = step.broker(request.broker)
    sender = (request.client, request.id)
    if known is not None and sender == (known.client, known.first_id):
        return _answer(step, request, known)  # the same record once more
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
        arrivals.come(step, broker, "legacy registration")
    finish(step)
    return _answer(step, request, step.live.brokers[broker.broker])


def _wrong_timeouts(step: ClusterStep, request: rq.RegisterBroker) -> str | None:
    bounds = step.config
    session = bounds.session_timeout_min_ms, bounds.session_timeout_max_ms
    release = bounds.release_timeout_min_ms, bounds.release_timeout_max_ms
    is_session = session[0] <= request.session_timeout_ms <= session[1]
    is_release = release[0] <= request.release_timeout_ms <= release[1]
    return None if is_session and is_release else WRONG_TIMEOUTS.format(*session, *release)


def _made(
    step: ClusterStep, request: rq.RegisterBroker, known: Broker | None, free_us: int
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


def _supersede(step: ClusterStep, request: rq.RegisterBroker, known: Broker) -> None:
    """The older process goes. Its leaderships are guarded unless it has certainly ended."""
    is_same_storage = bool(known.storage) and known.storage == request.storage
    has_ended = is_same_storage and request.previous == known.incarnation
    guard = -1
    if has_ended:
        guards.end(step, guards.of_incarnation(step, known.incarnation))
    elif known.is_ready and departures.may_lead(step, known):
        guard = guards.place(step, known, SUPERSEDED, request.client)
    departures.apply(step, [Departure(known, SUPERSEDED, guard, not is_same_storage)])
    notice = rs.MemberRemoved(
        group=step.name, cause=step.at.coordinate, member=known.member, reason=SUPERSEDED
    )
    step.emit(fx.Notify(known.reply, notice))


def _record(
    step: ClusterStep, request: rq.RegisterBroker, broker: Broker, known: Broker | None
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


def _answer(step: ClusterStep, request: rq.RegisterBroker, broker: Broker) -> None:
    rows = (telling.replica_row(place, row) for place, row in step.rows_of(broker.broker))
    parts = list(telling.parts(partitions=rows))
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

"""LeaveGroup: brokers go, by their own word or an operator's; each has a row in the answer.

Who leaves by itself has stopped. Whom an operator removes may still act: what it led is guarded.
Either stays registered, and Inactive, until it is unregistered.
"""

from coordlib.core.controller import departures, guards
from coordlib.core.controller.broker_heartbeat import forget_session
from coordlib.core.controller.cluster import Broker
from coordlib.core.controller.demands import finish
from coordlib.core.controller.departures import Departure
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine import effect as fx
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.errors import ErrorCode


def leave_group(step: ClusterStep, request: rq.LeaveGroup) -> None:
    """Judge one LeaveGroup. An absent cluster answers UNKNOWN_MEMBER_ID in every row."""
    rows = tuple(_leave(step, request, leaver) for leaver in request.members)
    finish(step)
    step.answer(request, members=rows)


def _leave(step: ClusterStep, request: rq.LeaveGroup, leaver: rq.Leaver) -> rs.LeftMember:
    code = _judge(step, request, leaver)
    return rs.LeftMember(member=leaver.member, instance=leaver.instance, error=code.name)


def _judge(step: ClusterStep, request: rq.LeaveGroup, leaver: rq.Leaver) -> ErrorCode:
    guard = step.cluster.guards.get(leaver.member)
    if guard is not None and guard.client == request.client:
        step.reason = "former leader has stopped"
        guards.end(step, [leaver.member])
    broker = step.cluster.by_member(leaver.member)
    if broker is None or leaver.instance is not None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_itself = broker.client == request.client
    if request.remain and not is_itself:
        return ErrorCode.INVALID_REQUEST
    what = "left" if is_itself else f"removed by {request.client}"
    step.reason = f"{what}: {request.reason}" if request.reason else what
    _remove(step, broker, is_itself)
    return ErrorCode.NONE


def _remove(step: ClusterStep, broker: Broker, is_itself: bool) -> None:
    if not broker.is_ready:
        forget_session(step, broker)
        return
    guard = -1
    if not is_itself and departures.may_lead(step, broker):
        guard = guards.place(step, broker, step.reason, None)
    departures.apply(step, [Departure(broker, step.reason, guard)])
    notice = rs.MemberRemoved(
        group=step.name, cause=step.at.coordinate, member=broker.member, reason=step.reason
    )
    step.emit(fx.Notify(broker.reply, notice))

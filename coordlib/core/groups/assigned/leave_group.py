"""LeaveGroup: members give up their place; each has a row of its own in the answer.

A member that leaves by itself has stopped working, so its partitions are granted to others at once.
A member that an operator removes may still be at work: its partitions are guarded (guards.py, rule
14).
"""

from coordlib.core.groups.assigned import division, guards, reconciliation
from coordlib.core.groups.assigned.membership import remove
from coordlib.core.groups.assigned.step import Step
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.errors import ErrorCode


def leave_group(step: Step, request: rq.LeaveGroup) -> None:
    """Judge one LeaveGroup. An absent group answers UNKNOWN_MEMBER_ID in every row."""
    start = step.value
    rows = tuple(_leave(step, request, leaver) for leaver in request.members)
    step.answer(request, members=rows)
    if start is None:
        return
    if step.live.members.keys() != start.members.keys():
        detail = {"client": request.client}
        if request.reason:
            detail["client_reason"] = request.reason
        division.renew(step, "member left", detail)
        reconciliation.tell(step, start.members)
    elif step.live.guards.keys() != start.guards.keys():
        guards.conclude(step, start.members)


def _leave(step: Step, request: rq.LeaveGroup, leaver: rq.Leaver) -> rs.LeftMember:
    code = _judge(step, request, leaver)
    return rs.LeftMember(member=leaver.member, instance=leaver.instance, error=code.name)


def _judge(step: Step, request: rq.LeaveGroup, leaver: rq.Leaver) -> ErrorCode:
    if step.value is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    guard = step.live.guards.get(leaver.member)
    if guard is not None and guard.client == request.client:
        guards.drop(step, leaver.member)  # the former owner itself says that it stopped
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = step.live.members.get(leaver.member)
    if member is None or leaver.instance is not None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_itself = member.client == request.client
    if request.remain and not is_itself:
        return ErrorCode.INVALID_REQUEST  # only the member itself can tell that it has stopped
    what = "left" if is_itself else f"removed by {request.client}"
    reason = f"{what}: {request.reason}" if request.reason else what
    if not is_itself:
        guards.place(step, member, reason)
    remove(step, member, reason)
    return ErrorCode.NONE

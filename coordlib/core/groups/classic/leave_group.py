"""LeaveGroup: members give up their place, each with a row of its own in the answer.

A member that leaves by itself has stopped working. A member that is removed (by an operator, by
member or instance id) may still be at work, so its partitions are guarded (guards.py). Differs from
Kafka's Java coordinator, as its Scala one did: an announced id that leaves begins no rebalance.
"""

from msgspec.structs import replace

from coordlib.core.groups.classic import guards, pending, rebalance
from coordlib.core.groups.classic.group import Member
from coordlib.core.groups.classic.membership import find_member
from coordlib.core.groups.classic.step import Step
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.errors import ErrorCode


def leave_group(step: Step, request: rq.LeaveGroup) -> None:
    """Judge one LeaveGroup. An absent group answers UNKNOWN_MEMBER_ID in every row."""
    before = step.value
    rows = tuple(_leave(step, request, leaver) for leaver in request.members)
    step.answer(request, members=rows)
    if before is None:
        return
    if step.live.members.keys() != before.members.keys():
        detail = {"client": request.client}
        if request.reason:
            detail["client_reason"] = request.reason
        rebalance.membership_changed(step, "member left", detail)
    rebalance.go_on(step)


def _leave(step: Step, request: rq.LeaveGroup, leaver: rq.Leaver) -> rs.LeftMember:
    return rs.LeftMember(
        member=leaver.member,
        instance=leaver.instance,
        error=_judge(step, request, leaver).name,
    )


def _judge(step: Step, request: rq.LeaveGroup, leaver: rq.Leaver) -> ErrorCode:
    if step.value is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if leaver.member in step.live.pending:
        pending.forget(step, leaver.member)
        return ErrorCode.NONE
    member = _find(step, leaver)
    if isinstance(member, ErrorCode):
        guard = step.live.guards.get(leaver.member)
        if guard is not None and guard.client == request.client:
            guards.end(step, leaver.member)  # the former owner itself says that it stopped
        return member
    # A newer process of the same configuration has the client id too, but not the member id.
    is_itself = member.client == request.client and member.member == leaver.member
    if request.remain and not is_itself:
        return ErrorCode.INVALID_REQUEST  # only the member itself can tell that it has stopped
    if request.remain and member.instance is not None:
        step.put(replace(member, has_let_go=True))
        return ErrorCode.NONE
    reason = _reason(request, is_itself)
    if not is_itself:
        guards.place(step, member, reason)
    rebalance.remove(step, member, reason)
    return ErrorCode.NONE


def _find(step: Step, leaver: rq.Leaver) -> Member | ErrorCode:
    """By member id, or (an operator) by instance id alone."""
    if leaver.member == "" and leaver.instance is not None:
        return step.live.static_member(leaver.instance) or ErrorCode.UNKNOWN_MEMBER_ID
    return find_member(step, leaver.member, leaver.instance)


def _reason(request: rq.LeaveGroup, is_itself: bool) -> str:
    what = "left" if is_itself else f"removed by {request.client}"
    return f"{what}: {request.reason}" if request.reason else what

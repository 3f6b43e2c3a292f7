"""LeaveGroup: members give up their place, each with a row of its own in the answer.

Who leaves by itself has stopped working. Who is made to leave by somebody else (an operator, by
member or instance id) may still be at it, so what it had is guarded (guards.py). Differs from
Kafka's Java coordinator, as its Scala one did: an announced id that leaves begins no rebalance.
"""

from msgspec.structs import replace

from coordlib.coordinators.groups.classic import guards, pending, rebalance
from coordlib.coordinators.groups.classic.draft import Draft
from coordlib.coordinators.groups.classic.group import Member
from coordlib.coordinators.groups.classic.membership import find_member
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import responses as rs


def leave_group(draft: Draft, request: rq.LeaveGroup) -> None:
    """Judge one LeaveGroup. An absent group answers UNKNOWN_MEMBER_ID in every row."""
    before = draft.group
    rows = tuple(_leave(draft, request, leaver) for leaver in request.members)
    draft.answer(request, members=rows)
    if before is None:
        return
    if draft.live.members.keys() != before.members.keys():
        detail = {"client": request.client}
        if request.reason:
            detail["client_reason"] = request.reason
        rebalance.membership_changed(draft, "member left", detail)
    rebalance.go_on(draft)


def _leave(draft: Draft, request: rq.LeaveGroup, leaver: rq.Leaver) -> rs.LeftMember:
    return rs.LeftMember(
        member=leaver.member,
        instance=leaver.instance,
        error=_judge(draft, request, leaver).name,
    )


def _judge(draft: Draft, request: rq.LeaveGroup, leaver: rq.Leaver) -> ErrorCode:
    if draft.group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if leaver.member in draft.live.pending:
        pending.forget(draft, leaver.member)
        return ErrorCode.NONE
    member = _find(draft, leaver)
    if isinstance(member, ErrorCode):
        guard = draft.live.guards.get(leaver.member)
        if guard is not None and guard.client == request.client:
            guards.end(draft, leaver.member)  # the former owner itself says that it stopped
        return member
    # A newer process of the same configuration has the client id too, but not the member id.
    is_itself = member.client == request.client and member.member == leaver.member
    if request.remain and not is_itself:
        return ErrorCode.INVALID_REQUEST  # nobody else knows whether it has stopped
    if request.remain and member.instance is not None:
        draft.put(replace(member, has_let_go=True))
        return ErrorCode.NONE
    reason = _reason(request, is_itself)
    if not is_itself:
        guards.place(draft, member, reason)
    rebalance.remove(draft, member, reason)
    return ErrorCode.NONE


def _find(draft: Draft, leaver: rq.Leaver) -> Member | ErrorCode:
    """By member id, or (an operator) by instance id alone."""
    if leaver.member == "" and leaver.instance is not None:
        return draft.live.static_member(leaver.instance) or ErrorCode.UNKNOWN_MEMBER_ID
    return find_member(draft, leaver.member, leaver.instance)


def _reason(request: rq.LeaveGroup, is_itself: bool) -> str:
    what = "left" if is_itself else f"removed by {request.client}"
    return f"{what}: {request.reason}" if request.reason else what

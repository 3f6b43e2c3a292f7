"""LeaveGroup: members give up their place, each with a row of its own in the answer.

Who leaves by itself has stopped working. Who is made to leave by somebody else (an operator, by
member or instance id) may still be at it, so what it had is guarded (guards.py). Differs from
Kafka's Java coordinator, as its Scala one did: an announced id that leaves begins no rebalance.
"""

from msgspec.structs import replace

from coordlib.coordinators.classic import guards, pending, rebalance
from coordlib.coordinators.classic.draft import Draft
from coordlib.coordinators.classic.group import Member
from coordlib.coordinators.classic.membership import find_member
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import responses as rs


def leave_group(draft: Draft, request: rq.LeaveGroup) -> None:
    """Judge one LeaveGroup. An absent group answers UNKNOWN_MEMBER_ID in every row."""
    before = draft.group
    rows = tuple(_leave(draft, request, leaver) for leaver in request.members)
    draft.answer(request, rs.LeaveGroupResponse, members=rows)
    if before is None or draft.live.members.keys() == before.members.keys():
        return
    detail = {"client": request.client}
    if request.reason:
        detail["client_reason"] = request.reason
    rebalance.membership_changed(draft, "member left", detail)


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
        pending.drop(draft, leaver.member)
        return ErrorCode.NONE
    member = _find(draft, leaver)
    if isinstance(member, ErrorCode):
        guard = draft.live.guards.get(leaver.member)
        if guard is not None and guard.client == request.client:
            guards.lift(draft, leaver.member)  # the former owner itself says that it stopped
        return member
    is_itself = member.client == request.client
    if is_itself and request.remain and member.instance is not None:
        draft.put(replace(member, has_let_go=True))
        return ErrorCode.NONE
    if not is_itself:
        guards.place(draft, member)
    _remove(draft, request, member)
    return ErrorCode.NONE


def _find(draft: Draft, leaver: rq.Leaver) -> Member | ErrorCode:
    """By member id, or (an operator) by instance id alone."""
    if leaver.member == "" and leaver.instance is not None:
        return draft.live.static_member(leaver.instance) or ErrorCode.UNKNOWN_MEMBER_ID
    return find_member(draft, leaver.member, leaver.instance)


def _remove(draft: Draft, request: rq.LeaveGroup, member: Member) -> None:
    reason = f"left: {request.reason}" if request.reason else "left"
    rebalance.remove(draft, member, reason)

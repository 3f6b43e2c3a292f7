"""LeaveGroup: members give up their place, each with a row of its own in the answer."""

from coordlib.coordinators.classic import rebalance
from coordlib.coordinators.classic.draft import Draft
from coordlib.coordinators.classic.group import Member
from coordlib.coordinators.classic.membership import find_member
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import responses as rs


def leave_group(draft: Draft, request: rq.LeaveGroup) -> None:
    """Judge one LeaveGroup. An absent group answers UNKNOWN_MEMBER_ID in every row."""
    rows = tuple(_leave(draft, request, leaver) for leaver in request.members)
    draft.answer(request, rs.LeaveGroupResponse, members=rows)
    if any(row.error == ErrorCode.NONE.name for row in rows):
        detail = {"client": request.client}
        if request.reason:
            detail["client_reason"] = request.reason
        rebalance.membership_changed(draft, "member left", detail)


def _leave(draft: Draft, request: rq.LeaveGroup, leaver: rq.Leaver) -> rs.LeftMember:
    member = find_member(draft, leaver.member, leaver.instance)
    if isinstance(member, ErrorCode):
        code = member
    elif member.client != request.client:
        # Rule 14: who is made to leave by somebody else may still be working; handing its share
        # on at once would let two own it.
        code = ErrorCode.UNSUPPORTED_VERSION
    else:
        code = ErrorCode.NONE
        _remove(draft, request, member)
    return rs.LeftMember(member=leaver.member, instance=leaver.instance, error=code.name)


def _remove(draft: Draft, request: rq.LeaveGroup, member: Member) -> None:
    reason = f"left: {request.reason}" if request.reason else "left"
    rebalance.remove(draft, member, reason)

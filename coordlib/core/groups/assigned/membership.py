"""The checks that several requests share, and the removal of members.  # INV-18"""

from coordlib.core.engine import effect as fx
from coordlib.core.groups.assigned.group import Member
from coordlib.core.groups.assigned.step import Step
from coordlib.core.groups.generations import is_older
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.core.wire import stored
from coordlib.errors import ErrorCode


def find_member(step: Step, member_id: str, generation: int) -> Member | ErrorCode:
    """The live member of this id, or why the request must not be judged for it.

    An older generation than the group's is accepted: members that a division did not concern get no
    notice of it (rule 13). A newer one than there ever was is a defect of its sender.
    """
    if step.value is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = step.value.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_newer = is_older(step.value.generation, generation)
    return ErrorCode.ILLEGAL_GENERATION if is_newer else member


def find_own(
    step: Step, request: rq.Subscribe | rq.Release
) -> Member | tuple[ErrorCode, str | None]:
    """The member that sent this request itself, or why it is not judged, and a sentence.

    Only the member itself can tell which topics it wants, or that it has let go. Its own requests
    are recognised by the client id, as in LeaveGroup.
    """
    member = find_member(step, request.member, request.generation)
    if isinstance(member, ErrorCode):
        return member, None
    if member.client != request.client:
        return ErrorCode.INVALID_REQUEST, "Only the member itself can say that: it is not yours."
    return member


def remove(step: Step, member: Member, reason: str) -> None:
    """Take a member out; notify it, and record that for history and readers of assignments.

    The caller decides about its partitions.
    """
    step.drop(member)
    step.record(
        stored.EVENT_MEMBER_REMOVED,
        member=member.member,
        reason=reason,
        detail={"client": member.client},
    )
    notice = rs.MemberRemoved(
        group=step.name, cause=step.at.coordinate, member=member.member, reason=reason
    )
    step.emit(fx.Notify(member.reply, notice))
    step.assign(member.member, None)

"""OffsetCommit of a member: each row is checked against the grant of its partition.

The group's generation proves little here: members that a division did not concern do not know it.
So three rows are refused, and disturb no others: one of another member's partition, one of a
released partition, and a late one from before the partition came back.
"""

from coordlib.core.groups.assigned.group import Member
from coordlib.core.groups.assigned.membership import find_member
from coordlib.core.groups.assigned.step import Step
from coordlib.core.groups.generations import is_older
from coordlib.core.groups.offsets import offset_commit as offsets
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode


def offset_commit(step: Step, request: rq.OffsetCommit) -> None:
    """Judge one OffsetCommit."""
    member = step.value.members.get(request.member) if step.value else None
    of_row = fault_of_row(step, member) if member is not None else None
    offsets.offset_commit(step, request, _refused, of_row)


def _refused(step: Step, request: rq.OffsetCommit) -> offsets.Refused:
    code = fault_of_member(step, request.member, request.generation)
    return None if code is ErrorCode.NONE else (code, None)


def fault_of_member(step: Step, member_id: str, generation: int) -> ErrorCode:
    """Why this member may not commit anything; NONE: it may."""
    member = find_member(step, member_id, generation)
    if isinstance(member, ErrorCode):
        return member
    # As in Kafka: a commit that names a member must name a generation. Only requests have a place
    # among the joins, and only they may renew a session.
    return ErrorCode.ILLEGAL_GENERATION if generation < 0 else ErrorCode.NONE


def fault_of_row(step: Step, member: Member) -> offsets.OfRow:
    """Check rows of a commit against the grants of the member."""

    def judge(request: rq.OffsetCommit | rq.Release, row: rq.CommittedOffset) -> ErrorCode:
        return fault_of_grant(step, member, request.generation, row)

    return judge


def fault_of_grant(step: Step, member: Member, named: int, row: rq.CommittedOffset) -> ErrorCode:
    """Why a row under the generation `named` is not the member's to commit; NONE: it is."""
    grant, newest = member.grant_of(row.topic, row.partition), step.live.generation
    if grant is None or is_older(named, grant.generation) or is_older(newest, named):
        return ErrorCode.PARTITION_NOT_OWNED
    return ErrorCode.NONE

"""OffsetCommit of a member: partition by partition, what it owns, and since when.

A generation of the group's says little here: members that a division did not concern do not know
it. So each row is held against the grant: another member's partition, one that was let go of, and
a late commit from before the partition came back are all refused, and disturb nothing else.
"""

from coordlib.coordinators.groups.assigned.group import Member
from coordlib.coordinators.groups.assigned.membership import find_member
from coordlib.coordinators.groups.assigned.step import Step
from coordlib.coordinators.groups.generations import is_older
from coordlib.coordinators.groups.offsets import offset_commit as offsets
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq


def offset_commit(step: Step, request: rq.OffsetCommit) -> None:
    """Judge one OffsetCommit."""
    member = step.value.members.get(request.member) if step.value else None
    of_row = fault_of_row(step, member) if member is not None else None
    offsets.offset_commit(step, request, _refused, of_row)


def _refused(step: Step, request: rq.OffsetCommit) -> offsets.Refused:
    member = find_member(step, request.member, request.generation)
    if isinstance(member, ErrorCode):
        return member, None
    # As in Kafka: who names a member must name a generation, too. Only the requests have a place
    # among the joins, and only they may renew a session.
    return (ErrorCode.ILLEGAL_GENERATION, None) if request.generation < 0 else None


def fault_of_row(step: Step, member: Member) -> offsets.OfRow:
    """Holds rows of a commit against what the member owns."""
    newest = step.live.generation

    def judge(request: rq.OffsetCommit | rq.Release, row: rq.CommittedOffset) -> ErrorCode:
        grant = member.grant_of(row.topic, row.partition)
        named = request.generation
        if grant is None or is_older(named, grant.generation) or is_older(newest, named):
            return ErrorCode.PARTITION_NOT_OWNED
        return ErrorCode.NONE

    return judge

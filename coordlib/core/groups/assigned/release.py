"""Release: a member meets a demand, and commits its offsets there, in one record.

The demand is named by its cause (rule 12). A repeated Release, or one of a demand that is not open,
changes nothing and is no error: the demand was met already.
"""

from coordlib.core.groups.assigned import division, reconciliation
from coordlib.core.groups.assigned.group import Demand, Member
from coordlib.core.groups.assigned.membership import find_own
from coordlib.core.groups.assigned.offset_commit import fault_of_row
from coordlib.core.groups.assigned.search import includes
from coordlib.core.groups.assigned.step import Step
from coordlib.core.groups.offsets import offset_commit as offsets
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode


def release(step: Step, request: rq.Release) -> None:
    """Judge one Release."""
    member = find_own(step, request)
    if not isinstance(member, Member):
        code, message = member
        step.refuse(request, code, message)
        return
    before = step.live.members
    step.touched.append(member.member)
    demand = member.demand(request.cause)
    # The offsets first: the partitions are still the member's own.
    of_row = _of_demand(step, member, demand)
    room_bytes = step.room_for(is_known=True)
    offsets.store(step, request, room_bytes, of_row)
    if demand is not None:
        reconciliation.let_go(step, member, demand)
        division.go_on(step)
        reconciliation.tell(step, before)


def _of_demand(step: Step, member: Member, demand: Demand | None) -> offsets.OfRow:
    """Store offsets of this demand only: a late duplicate must restore none (rule 12)."""
    as_commit = fault_of_row(step, member)
    partitions = demand.partitions if demand is not None else {}

    def judge(request: rq.Release, row: rq.CommittedOffset) -> ErrorCode:
        if not includes(partitions, row.topic, row.partition):
            return ErrorCode.PARTITION_NOT_OWNED
        return as_commit(request, row)

    return judge

"""Release: a member lets go of what it was asked for, and commits what it did there, in one go.

The demand is named by its cause (rule 12). A Release that comes once more, or of a demand that is
not open, changes nothing and is no fault: it has happened already.
"""

from coordlib.coordinators.assigned import reconciliation
from coordlib.coordinators.assigned.draft import Draft
from coordlib.coordinators.assigned.membership import find_member
from coordlib.coordinators.assigned.offset_commit import fault_of_row
from coordlib.coordinators.offsets import offset_commit as offsets
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import responses as rs


def release(draft: Draft, request: rq.Release) -> None:
    """Judge one Release."""
    member = find_member(draft, request.member, request.generation)
    if isinstance(member, ErrorCode):
        draft.refuse(request, rs.ReleaseResponse, member)
        return
    before = draft.live.members
    draft.touched.append(member.member)
    # The offsets first: the partitions are still the member's own.
    of_row = fault_of_row(draft, member)
    offsets.store(draft, request, rs.ReleaseResponse, of_row)
    demand = member.demand(request.cause)
    if demand is not None:
        reconciliation.let_go(draft, member, demand)
        reconciliation.go_on(draft)
        reconciliation.tell(draft, before)

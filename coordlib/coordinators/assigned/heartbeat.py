"""Heartbeat: a live member's is accepted in bulk by the shard, whatever its generation (rule 13).

What comes here is of nobody, or of a former owner that others made to leave.
"""

from coordlib.coordinators.assigned import guards
from coordlib.coordinators.assigned.draft import Draft
from coordlib.coordinators.assigned.membership import find_member
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import responses as rs


def heartbeat(draft: Draft, request: rq.Heartbeat) -> None:
    """Judge one Heartbeat."""
    member = find_member(draft, request.member, request.generation)
    if isinstance(member, ErrorCode):
        guards.renew(draft, request.member)
        draft.refuse(request, rs.HeartbeatResponse, member)
        return
    draft.touched.append(member.member)

"""Heartbeat: a sign of life.

Healthy ones never get here: the shard accepts them in bulk (shard.py). What comes here is a
heartbeat in a rebalance, of another generation, or of nobody.
"""

from coordlib.coordinators.groups.classic import guards
from coordlib.coordinators.groups.classic.draft import Draft
from coordlib.coordinators.groups.classic.group import State
from coordlib.coordinators.groups.classic.membership import find_in_generation
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq


def heartbeat(draft: Draft, request: rq.Heartbeat) -> None:
    """Judge one Heartbeat. Accepted in CompletingRebalance too (KAFKA-10134)."""
    member = find_in_generation(draft, request.member, request.instance, request.generation)
    if isinstance(member, ErrorCode):
        guards.renew(draft, request.member)
        draft.refuse(request, member)
        return
    draft.touched.append(member.member)
    if draft.live.state is State.PREPARING_REBALANCE:
        draft.refuse(request, ErrorCode.REBALANCE_IN_PROGRESS)

"""Heartbeat: a sign of life.

Healthy ones never get here: the shard accepts them in bulk (shard.py). What comes here is a
heartbeat in a rebalance, of another generation, or of an unknown member.
"""

from coordlib.core.groups.classic import guards
from coordlib.core.groups.classic.group import State
from coordlib.core.groups.classic.membership import find_in_generation
from coordlib.core.groups.classic.step import Step
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode


def heartbeat(step: Step, request: rq.Heartbeat) -> None:
    """Judge one Heartbeat. Accepted in CompletingRebalance too (KAFKA-10134)."""
    member = find_in_generation(step, request.member, request.instance, request.generation)
    if isinstance(member, ErrorCode):
        guards.renew(step, request.member)
        step.refuse(request, member)
        return
    step.touched.append(member.member)
    if step.live.state is State.PREPARING_REBALANCE:
        step.refuse(request, ErrorCode.REBALANCE_IN_PROGRESS)

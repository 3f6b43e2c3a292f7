"""Heartbeat: a live member's is accepted in bulk by the shard, whatever its generation (rule 13).

What comes here is of nobody, or of a former owner that others made to leave.
"""

from coordlib.coordinators.groups.assigned import guards
from coordlib.coordinators.groups.assigned.step import Step
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq


def heartbeat(step: Step, request: rq.Heartbeat) -> None:
    """Judge one Heartbeat."""
    if step.value is not None and request.member in step.value.members:
        step.touched.append(request.member)  # it named an instance, which nobody has here
        return
    guards.renew(step, request.member)
    step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)

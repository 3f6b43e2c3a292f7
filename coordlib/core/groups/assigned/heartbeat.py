"""Heartbeat: a live member's is accepted in bulk by the shard, whatever its generation (rule 13).

Those that come here are of unknown members, or of former owners that were removed.
"""

from coordlib.core.groups.assigned import guards
from coordlib.core.groups.assigned.step import Step
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode


def heartbeat(step: Step, request: rq.Heartbeat) -> None:
    """Judge one Heartbeat."""
    if step.value is not None and request.member in step.value.members:
        step.touched.append(request.member)  # it named an instance; these groups have none
        return
    guards.renew(step, request.member)
    step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)

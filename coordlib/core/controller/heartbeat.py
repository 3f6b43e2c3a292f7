"""Heartbeat: a broker with a session is accepted in bulk by the shard (rule 13).

Those that come here are of brokers without one, of strangers, or of superseded incarnations.
"""

from coordlib.core.controller import guards
from coordlib.core.controller.step import ClusterStep
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode


def heartbeat(step: ClusterStep, request: rq.Heartbeat) -> None:
    """Judge one Heartbeat."""
    broker = step.cluster.by_member(request.member)
    if broker is not None and broker.has_session:
        step.touched.append(request.member)  # it named an instance; brokers have none
        return
    guards.renew(step, request.member)
    step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)

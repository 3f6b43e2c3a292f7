"""Release: a broker lets go of the leaderships that one demand named.

The demand is named by its cause (rule 12): a repeated Release, or one of a demand that is not open,
changes nothing and is no error.
"""

from msgspec.structs import replace

from coordlib.core.controller import leadership, reassignment
from coordlib.core.controller.cluster import Broker
from coordlib.core.controller.demands import finish
from coordlib.core.controller.membership import NOT_ITS_OWN_WORD
from coordlib.core.controller.step import ClusterStep
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode


def release(step: ClusterStep, request: rq.Release) -> None:
    """Judge one Release."""
    broker = step.cluster.by_member(request.member)
    if broker is None or not broker.is_ready:
        return step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
    if broker.client != request.client:
        return step.refuse(request, ErrorCode.INVALID_REQUEST, NOT_ITS_OWN_WORD)
    if request.offsets:
        why = "offsets must be empty: a broker has none."
        return step.refuse(request, ErrorCode.INVALID_REQUEST, why)
    step.touched.append(broker.member)
    if broker.demand is not None and broker.demand.timer.cause == request.cause:
        _let_go(step, broker, request.cause)
    finish(step)
    return step.answer(request)


def _let_go(step: ClusterStep, broker: Broker, cause: int) -> None:
    step.reason = "leader let go"
    step.put(replace(broker, demand=None))
    step.asking.add(broker.broker)
    for place, row in step.rows_of(broker.broker):
        if row.leader == broker.broker and row.asked == cause:
            leadership.hand_over(step, place)
            reassignment.advance(step, place)

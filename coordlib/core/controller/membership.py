"""The checks that several requests of brokers share, in the order in which they are made."""

from coordlib.core.controller.cluster import Broker
from coordlib.core.controller.step import ClusterStep
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode

NOT_ITS_OWN_WORD = "Only the broker itself can say that: it is not yours."


def find_own(
    step: ClusterStep, request: "rq.BrokerHeartbeat | rq.AlterPartition | rq.ReplicasDeleted"
) -> Broker | tuple[ErrorCode, str | None]:
    """The broker that sent this request, in its registered incarnation, or why it is not judged."""
    broker = step.broker(request.broker)
    if broker is None:
        return ErrorCode.BROKER_ID_NOT_REGISTERED, None
    if broker.incarnation != request.incarnation:
        return ErrorCode.STALE_BROKER_EPOCH, None
    if broker.client != request.client:
        return ErrorCode.INVALID_REQUEST, NOT_ITS_OWN_WORD
    return broker

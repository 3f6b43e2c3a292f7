"""ReplicasDeleted: a broker has deleted replicas, or cannot; rows are judged in order."""

from coordlib.core.controller import deletion
from coordlib.core.controller.cluster import Broker
from coordlib.core.controller.demands import finish
from coordlib.core.controller.membership import find_own
from coordlib.core.controller.results import partition_result
from coordlib.core.controller.states import ReplicaState
from coordlib.core.controller.step import ClusterStep
from coordlib.core.wire import requests as rq
from coordlib.core.wire import stored
from coordlib.errors import ErrorCode

NOT_ASKED = "Delete only what the newest metadata tell you to delete: this replica is not of that."


def replicas_deleted(step: ClusterStep, request: rq.ReplicasDeleted) -> None:
    """Judge one ReplicasDeleted."""
    broker = find_own(step, request)
    if not isinstance(broker, Broker):
        return step.refuse(request, *broker)
    step.reason = "replicas deleted"
    judged = [(row, _judge(step, broker, row)) for row in request.results]
    failed = [
        {"topic": row.topic, "partition": row.partition}
        for row, code in judged
        if code is ErrorCode.NONE and row.error != ErrorCode.NONE.name
    ]
    if failed:
        step.record(
            stored.EVENT_REPLICA_DELETION_FAILED,
            member=broker.member,
            detail={"broker": broker.broker, "partitions": failed},
        )
    deletion.conclude(step, [row.topic for row, code in judged if code is ErrorCode.NONE])
    finish(step)
    results = (
        partition_result(row.topic, row.partition, code, _sentence(code)) for row, code in judged
    )
    return step.answer(request, results=tuple(results))


def _sentence(code: ErrorCode) -> str | None:
    return NOT_ASKED if code is ErrorCode.INVALID_REQUEST else None


def _judge(step: ClusterStep, broker: Broker, told: rq.DeletedReplica) -> ErrorCode:
    """What a late report says of a topic made anew, or of a deletion that is over, is nothing."""
    place = (told.topic, told.partition)
    row = step.row(*place)
    if row is None or row.topic_id != told.topic_id:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if row.deleting.get(broker.broker) != ReplicaState.DELETION_STARTED:
        return ErrorCode.INVALID_REQUEST
    if row.guard == broker.incarnation:
        step.alter(place, guard=-1)  # it has read that it leads no more
    if told.error == ErrorCode.NONE.name:
        deletion.succeed(step, place, (broker.broker,))
    else:
        deletion.fail(step, place, broker.broker)
    return ErrorCode.NONE

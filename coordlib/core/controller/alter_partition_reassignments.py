"""AlterPartitionReassignments: partitions move to other brokers, or stay after all (KIP-455)."""

from coordlib.core.controller import reassignment
from coordlib.core.controller.demands import finish
from coordlib.core.controller.leadership import GUARDED
from coordlib.core.controller.new_partitions import Fault, replicas_fault
from coordlib.core.controller.results import partition_result
from coordlib.core.controller.rows import Partition
from coordlib.core.controller.states import ReplicaState
from coordlib.core.controller.step import ClusterStep
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.errors import ErrorCode

#: Only phase A can be cancelled.
IS_ENDING = "Wait: all new replicas are in sync, and the leader is being moved."
LEADS = "Elect another leader first: a replica that is being added leads."
IS_DELETED_THERE = "Wait: a former replica is being deleted on one of these brokers."


def alter_partition_reassignments(
    step: ClusterStep, request: rq.AlterPartitionReassignments
) -> None:
    """Judge one AlterPartitionReassignments."""
    step.reason = f"reassigned by {request.client}"
    results = tuple(_result(step, row) for row in request.partitions)
    finish(step)
    step.answer(request, results=results)


def _result(step: ClusterStep, wanted: rq.Reassignment) -> rs.PartitionResult:
    place = (wanted.topic, wanted.partition)
    row, topic = step.row(*place), step.topic(wanted.topic)
    if row is None or topic is None or topic.is_deleting:
        return partition_result(*place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    is_moving = bool(row.adding or row.removing)
    if wanted.replicas is None:
        code, why = _fault_of_cancel(row, is_moving)
        if code is ErrorCode.NONE:
            reassignment.cancel(step, place)
    else:
        code, why = _fault(step, row, is_moving, wanted.replicas)
        if code is ErrorCode.NONE:
            reassignment.start(step, place, wanted.replicas)
    return partition_result(*place, code, why)


def _fault_of_cancel(row: Partition, is_moving: bool) -> Fault:
    if not is_moving:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    if row.guard >= 0:
        # Perhaps of a replica that would go: a guard ends in the rows that its broker still has.
        return ErrorCode.REASSIGNMENT_IN_PROGRESS, GUARDED
    if row.leader >= 0 and set(row.target) <= set(row.isr):
        return ErrorCode.REASSIGNMENT_IN_PROGRESS, IS_ENDING
    if row.leader in row.adding or (row.isr and set(row.isr) <= set(row.adding)):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, LEADS
    return ErrorCode.NONE, None


def _fault(step: ClusterStep, row: Partition, is_moving: bool, replicas: tuple[int, ...]) -> Fault:
    if is_moving:
        return ErrorCode.REASSIGNMENT_IN_PROGRESS, None
    if why := replicas_fault(step, replicas):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, why
    if any(row.deleting.get(each) == ReplicaState.DELETION_STARTED for each in replicas):
        return ErrorCode.REASSIGNMENT_IN_PROGRESS, IS_DELETED_THERE
    return ErrorCode.NONE, None

"""Partitions move to other brokers in Kafka's phases (KIP-455), and leaders are elected anew.

A  the replicas are the target and those that are to go; those that are added follow
B  the whole target is in sync: a leader outside it is asked to let go; then the target alone stays,
   a new leader epoch begins, and what is removed is deleted

ElectLeaders: preferred replicas lead again, or replicas that are not in sync (KIP-460). Release: a
broker lets go of the leaderships that one demand named. The demand is named by its cause (rule 12):
a repeated Release, or one of a demand that is not open, changes nothing and is no error.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from coordlib import limits
from coordlib.core.controller import leadership, topics
from coordlib.core.controller.leadership import GUARDED, finish
from coordlib.core.controller.states import Broker, Partition, ReplicaState
from coordlib.core.controller.step import NOT_ITS_OWN_WORD, ClusterStep
from coordlib.core.controller.topics import ASK_IN_PARTS, Fault, partition_result, replicas_fault
from coordlib.core.engine.tables import Place
from coordlib.core.wire import api, stored
from coordlib.errors import ErrorCode


def start_reassignment(step: ClusterStep, place: Place, target: tuple[int, ...]) -> None:
    """Phase A; phase B at once where no replica has to catch up."""
    row = step.at_place(place)
    adding = tuple(each for each in target if each not in row.replicas)
    removing = tuple(each for each in row.replicas if each not in target)
    # A replica whose deletion failed comes back as it is; it was not made anew.
    kept = {broker: state for broker, state in row.deleting.items() if broker not in target}
    step.alter(
        place,
        replicas=(*target, *removing),
        adding=adding,
        removing=removing,
        new=(*row.new, *(each for each in adding if each not in row.deleting)),
        deleting=kept,
    )
    if adding or removing:
        detail = {"topic": place[0], "partition": place[1], "replicas": target}
        step.record(stored.EVENT_REASSIGNMENT_STARTED, reason=step.reason, detail=detail)
        if row.leader_epoch < 0:
            leadership.fill(step, place)  # nothing is written yet: who is added lacks nothing
        advance(step, place)


def advance(step: ClusterStep, place: Place) -> None:
    """Go on with a move, if the whole target is in sync by now."""
    row = step.at_place(place)
    if not (row.adding or row.removing) or row.leader < 0 or not set(row.target) <= set(row.isr):
        return
    if row.leader not in row.target:
        if row.move != leadership.REASSIGN:
            leadership.want(step, place, leadership.REASSIGN)
        row = step.at_place(place)
        if row.leader not in row.target:
            return
    _complete(step, place, row)


def _complete(step: ClusterStep, place: Place, row: Partition) -> None:
    """The target alone stays. Its leader leads on under a new epoch: followers have changed."""
    target = row.target
    detail = {"topic": place[0], "partition": place[1], "replicas": target}
    step.record(stored.EVENT_REASSIGNMENT_COMPLETED, reason=step.reason, detail=detail)
    # What its leader is asked for by now is of the former epoch: it is asked anew for this one.
    # Else it might read of the new epoch, lead, and lose it to the Release that it sent before.
    move = "" if row.move == leadership.REASSIGN else row.move
    step.asking.add(row.leader)
    step.alter(
        place,
        is_new_epoch=True,
        move=move,
        replicas=target,
        isr=tuple(each for each in row.isr if each in target),
        adding=(),
        removing=(),
        new=tuple(each for each in row.new if each in target),
        deleting={**row.deleting, **dict.fromkeys(row.removing, int(ReplicaState.OFFLINE))},
    )
    topics.start_deletion(step, place)


def cancel_reassignment(step: ClusterStep, place: Place) -> None:
    """The replicas that it had stay, and what was added is deleted."""
    row = step.at_place(place)
    added = row.adding
    detail = {"topic": place[0], "partition": place[1], "removed": added}
    step.record(stored.EVENT_REASSIGNMENT_CANCELLED, reason=step.reason, detail=detail)
    step.alter(
        place,
        replicas=tuple(each for each in row.replicas if each not in added),
        isr=tuple(each for each in row.isr if each not in added),
        adding=(),
        removing=(),
        new=tuple(each for each in row.new if each not in added),
        deleting={**row.deleting, **dict.fromkeys(added, int(ReplicaState.OFFLINE))},
    )
    topics.start_deletion(step, place)


#: Only phase A can be cancelled.
IS_ENDING = "Wait: all new replicas are in sync, and the leader is being moved."
LEADS = "Elect another leader first: a replica that is being added leads."
IS_DELETED_THERE = "Wait: a former replica is being deleted on one of these brokers."


def alter_partition_reassignments(
    step: ClusterStep, request: api.AlterPartitionReassignments
) -> None:
    """Judge one AlterPartitionReassignments."""
    step.reason = f"reassigned by {request.client}"
    results = tuple(_reassign_result(step, row) for row in request.partitions)
    finish(step)
    step.answer(request, results=results)


def _reassign_result(step: ClusterStep, wanted: api.Reassignment) -> api.PartitionResult:
    place = (wanted.topic, wanted.partition)
    row, topic = step.row(*place), step.topic(wanted.topic)
    if row is None or topic is None or topic.is_deleting:
        return partition_result(*place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    is_moving = bool(row.adding or row.removing)
    if wanted.replicas is None:
        code, why = _fault_of_cancel(row, is_moving)
        if code is ErrorCode.NONE:
            cancel_reassignment(step, place)
    else:
        code, why = _reassign_fault(step, row, is_moving, wanted.replicas)
        if code is ErrorCode.NONE:
            start_reassignment(step, place, wanted.replicas)
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


def _reassign_fault(
    step: ClusterStep, row: Partition, is_moving: bool, replicas: tuple[int, ...]
) -> Fault:
    if is_moving:
        return ErrorCode.REASSIGNMENT_IN_PROGRESS, None
    if why := replicas_fault(step, replicas):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, why
    if any(row.deleting.get(each) == ReplicaState.DELETION_STARTED for each in replicas):
        return ErrorCode.REASSIGNMENT_IN_PROGRESS, IS_DELETED_THERE
    return ErrorCode.NONE, None


def elect_leaders(step: ClusterStep, request: api.ElectLeaders) -> None:
    """Judge one ElectLeaders."""
    step.reason = f"{request.election} election by {request.client}"
    if request.partitions is None:
        places = list(_needing(step, request.election))
        if len(places) > limits.ROWS_PER_REQUEST_MAX:
            return step.refuse(request, ErrorCode.POLICY_VIOLATION, ASK_IN_PARTS)
    else:
        places = [(row.topic, row.partition) for row in request.partitions]
    results = tuple(_elect_result(step, place, request.election) for place in places)
    finish(step)
    return step.answer(request, results=results)


def _needing(step: ClusterStep, election: str) -> Iterator[Place]:
    """The partitions of a cluster for which such an election would change something."""
    for place, row in step.all_rows():
        topic = step.topic(place[0])
        is_there = topic is not None and not topic.is_deleting
        if is_there and _elect_fault(step, row, election)[0] is not ErrorCode.ELECTION_NOT_NEEDED:
            yield place


def _elect_result(step: ClusterStep, place: Place, election: str) -> api.PartitionResult:
    row, topic = step.row(*place), step.topic(place[0])
    if row is None or topic is None or topic.is_deleting:
        return partition_result(*place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    code, why = _elect_fault(step, row, election)
    if code is ErrorCode.NONE:
        _elect(step, place, row, election)
    return partition_result(*place, code, why)


def _elect_fault(step: ClusterStep, row: Partition, election: str) -> tuple[ErrorCode, str | None]:
    if election == leadership.PREFERRED:
        if row.leader == row.target[0]:
            return ErrorCode.ELECTION_NOT_NEEDED, None
        if row.guard >= 0:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, GUARDED
        found = leadership.elect_preferred(row.target, row.isr, step.active)
        return (ErrorCode.NONE if found else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), None
    if row.leader >= 0:
        return ErrorCode.ELECTION_NOT_NEEDED, None
    if row.guard >= 0:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, GUARDED
    found = leadership.elect_unclean(row.replicas, row.isr, step.active)
    return (ErrorCode.NONE if found else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE), None


def _elect(step: ClusterStep, place: Place, row: Partition, election: str) -> None:
    active = step.active
    if row.leader >= 0:
        if row.move == "":  # what is wanted already goes first
            leadership.want(step, place, leadership.PREFERRED)
    elif election == leadership.PREFERRED:
        leadership.fill(step, place)
    elif found := leadership.elect_unclean(row.replicas, row.isr, active):
        leadership.install(step, place, found)
    advance(step, place)


def release(step: ClusterStep, request: api.Release) -> None:
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
            advance(step, place)

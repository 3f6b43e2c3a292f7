"""ElectLeaders: preferred replicas lead again, or replicas that are not in sync (KIP-460).

A live leader is asked to let go first: NONE says that the election is done, or under way.
"""

from collections.abc import Iterator

from coordlib import limits
from coordlib.core.controller import elections, leadership, reassignment
from coordlib.core.controller.demands import finish
from coordlib.core.controller.leadership import GUARDED
from coordlib.core.controller.new_partitions import ASK_IN_PARTS
from coordlib.core.controller.results import partition_result
from coordlib.core.controller.rows import Partition
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine.table import Place
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.errors import ErrorCode


def elect_leaders(step: ClusterStep, request: rq.ElectLeaders) -> None:
    """Judge one ElectLeaders."""
    step.reason = f"{request.election} election by {request.client}"
    if request.partitions is None:
        places = list(_needing(step, request.election))
        if len(places) > limits.ROWS_PER_REQUEST_MAX:
            return step.refuse(request, ErrorCode.POLICY_VIOLATION, ASK_IN_PARTS)
    else:
        places = [(row.topic, row.partition) for row in request.partitions]
    results = tuple(_result(step, place, request.election) for place in places)
    finish(step)
    return step.answer(request, results=results)


def _needing(step: ClusterStep, election: str) -> Iterator[Place]:
    """The partitions of a cluster for which such an election would change something."""
    for place, row in step.all_rows():
        topic = step.topic(place[0])
        is_there = topic is not None and not topic.is_deleting
        if is_there and _fault(step, row, election)[0] is not ErrorCode.ELECTION_NOT_NEEDED:
            yield place


def _result(step: ClusterStep, place: Place, election: str) -> rs.PartitionResult:
    row, topic = step.row(*place), step.topic(place[0])
    if row is None or topic is None or topic.is_deleting:
        return partition_result(*place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    code, why = _fault(step, row, election)
    if code is ErrorCode.NONE:
        _elect(step, place, row, election)
    return partition_result(*place, code, why)


def _fault(step: ClusterStep, row: Partition, election: str) -> tuple[ErrorCode, str | None]:
    """Why there is no such election."""
    if election == elections.PREFERRED:
        if row.leader == row.target[0]:
            return ErrorCode.ELECTION_NOT_NEEDED, None
        if row.guard >= 0:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, GUARDED
        found = elections.preferred(row.target, row.isr, step.active)
        return (ErrorCode.NONE if found else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), None
    if row.leader >= 0:
        return ErrorCode.ELECTION_NOT_NEEDED, None
    if row.guard >= 0:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, GUARDED
    found = elections.unclean(row.replicas, row.isr, step.active)
    return (ErrorCode.NONE if found else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE), None


def _elect(step: ClusterStep, place: Place, row: Partition, election: str) -> None:
    active = step.active
    if row.leader >= 0:
        if row.move == "":  # what is wanted already goes first
            leadership.want(step, place, elections.PREFERRED)
    elif election == elections.PREFERRED:
        leadership.fill(step, place)
    elif found := elections.unclean(row.replicas, row.isr, active):
        leadership.install(step, place, found)
    reassignment.advance(step, place)

"""CreatePartitions: a topic gets more partitions; those that are there stay where they are."""

from msgspec.structs import replace

from coordlib.core.controller import new_partitions
from coordlib.core.controller.demands import finish
from coordlib.core.controller.new_partitions import Assignment, Fault, Room
from coordlib.core.controller.results import topic_result
from coordlib.core.controller.rows import Topic
from coordlib.core.controller.step import ClusterStep
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode


def create_partitions(step: ClusterStep, request: rq.CreatePartitions) -> None:
    """Judge one CreatePartitions."""
    step.reason = "partitions created"
    topic = step.topic(request.topic)
    fault = _extend(step, request, topic) or (ErrorCode.NONE, None)
    finish(step)
    step.answer(request, results=(topic_result(request.topic, *fault),))


def _extend(step: ClusterStep, request: rq.CreatePartitions, topic: Topic | None) -> Fault | None:
    if topic is None or topic.is_deleting:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    assignment = _judge(step, request, topic)
    if isinstance(assignment, tuple):
        return assignment
    step.put_topic(request.topic, replace(topic, partitions=request.count))
    new_partitions.make(step, request.topic, topic.topic_id, assignment)
    return None


def _judge(step: ClusterStep, request: rq.CreatePartitions, topic: Topic) -> Assignment | Fault:
    numbers = range(topic.partitions, request.count)
    if not numbers:
        return ErrorCode.INVALID_PARTITIONS, None
    replicas = len(step.at_place((request.topic, 0)).target)
    if fault := Room(step).fault(len(numbers), replicas):
        return fault
    if request.assignment is not None:
        return new_partitions.assigned(step, request.assignment, numbers)
    return new_partitions.placed(step, numbers, replicas, step.at.offset)

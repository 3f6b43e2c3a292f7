"""CreateTopics: topics with so many partitions and replicas, or with an assignment of one's own."""

from typing import Final

from coordlib import limits
from coordlib.core.controller import new_partitions
from coordlib.core.controller.demands import finish
from coordlib.core.controller.new_partitions import Assignment, Fault, Room
from coordlib.core.controller.results import topic_result
from coordlib.core.controller.rows import Topic
from coordlib.core.controller.step import ClusterStep
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.core.wire import stored
from coordlib.core.wire.checks import is_topic
from coordlib.errors import ErrorCode

BEING_DELETED: Final = "Wait until the topic of this name is deleted, or use another name."
#: Between the ids of topics that one record makes. A JSON reader may keep 53 bits of a number: 39
#: are left for the record's offset.
_IDS_APART: Final = 2**39
assert limits.ROWS_PER_REQUEST_MAX <= 2**53 // _IDS_APART
EITHER_OR: Final = "Give partitions and replication_factor, or an assignment, and not both."


def create_topics(step: ClusterStep, request: rq.CreateTopics) -> None:
    """Judge one CreateTopics."""
    step.reason = "topic created"
    room = Room(step)
    results = tuple(
        _create(step, request, topic, room, index) for index, topic in enumerate(request.topics)
    )
    finish(step)
    step.answer(request, results=results)


def _create(
    step: ClusterStep, request: rq.CreateTopics, wanted: rq.NewTopic, room: Room, index: int
) -> rs.TopicResult:
    assignment = _judge(step, wanted, room, step.at.offset + index)
    if isinstance(assignment, tuple):
        return topic_result(wanted.topic, *assignment)
    room.take(len(assignment), len(assignment[0]))
    if not request.validate_only:
        topic_id = step.at.offset + index * _IDS_APART
        _make(step, wanted, assignment, topic_id, request.client)
    return topic_result(wanted.topic, ErrorCode.NONE)


def _judge(step: ClusterStep, wanted: rq.NewTopic, room: Room, seed: int) -> Assignment | Fault:
    """Where its partitions lie, or why it is not made."""
    if not is_topic(wanted.topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, None
    if (topic := step.topic(wanted.topic)) is not None:
        return ErrorCode.TOPIC_ALREADY_EXISTS, BEING_DELETED if topic.is_deleting else None
    if wanted.assignment is None:
        count, replicas = wanted.partitions, wanted.replication_factor
    else:
        if wanted.partitions != -1 or wanted.replication_factor != -1:
            return ErrorCode.INVALID_REQUEST, EITHER_OR
        count, replicas = len(wanted.assignment), 1
    if count < 1:
        return ErrorCode.INVALID_PARTITIONS, None
    if fault := room.fault(count, min(max(replicas, 1), limits.REPLICAS_MAX)):
        return fault  # before anything is computed for millions of partitions
    if wanted.assignment is None:
        return new_partitions.placed(step, range(count), replicas, seed)
    return new_partitions.assigned(step, wanted.assignment, range(count))


def _make(
    step: ClusterStep, wanted: rq.NewTopic, assignment: Assignment, topic_id: int, client: str
) -> None:
    step.put_topic(wanted.topic, Topic(topic_id, len(assignment), wanted.min_isr, wanted.unclean))
    step.change(topic_count=step.live.topic_count + 1)
    step.record(
        stored.EVENT_TOPIC_CREATED,
        reason=step.reason,
        detail={
            "topic": wanted.topic,
            "topic_id": topic_id,
            "partitions": len(assignment),
            "replicas": len(assignment[0]),
            "min_isr": wanted.min_isr,
            "unclean": wanted.unclean,
            "client": client,
        },
    )
    new_partitions.make(step, wanted.topic, topic_id, assignment)

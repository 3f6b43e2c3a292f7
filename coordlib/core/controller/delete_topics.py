"""DeleteTopics: nobody leads or follows their partitions any more, and all replicas are deleted.

They stay, and no topic of the name can be made, until every broker has deleted what it has, or is
unregistered. Said again, the request tries again what failed.
"""

from coordlib import limits
from coordlib.core.controller import deletion
from coordlib.core.controller.demands import finish
from coordlib.core.controller.new_partitions import ASK_IN_PARTS
from coordlib.core.controller.results import topic_result
from coordlib.core.controller.step import ClusterStep
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.errors import ErrorCode


def delete_topics(step: ClusterStep, request: rq.DeleteTopics) -> None:
    """Judge one DeleteTopics."""
    step.reason = f"deleted by {request.client}"
    left = limits.ROWS_PER_REQUEST_MAX
    results: list[rs.TopicResult] = []
    for name in request.topics:
        topic = step.topic(name)
        if topic is None:
            results.append(topic_result(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif topic.partitions > left and left < limits.ROWS_PER_REQUEST_MAX:
            results.append(topic_result(name, ErrorCode.POLICY_VIOLATION, ASK_IN_PARTS))
        else:
            left -= topic.partitions
            deletion.delete_topic(step, name)
            results.append(topic_result(name, ErrorCode.NONE))
    finish(step)
    step.answer(request, results=tuple(results))

"""Rows of answers: how one topic or partition of a request was judged, in its order.  # INV-82"""

from msgspec import UNSET

from coordlib.core.wire import responses as rs
from coordlib.errors import ErrorCode


def partition_result(
    topic: str, partition: int, code: ErrorCode, why: str | None = None
) -> rs.PartitionResult:
    """The row of a partition; `why`: where the error's own sentence does not do."""
    message = UNSET if code is ErrorCode.NONE else why or code.what_to_do
    return rs.PartitionResult(topic=topic, partition=partition, error=code.name, message=message)


def topic_result(topic: str, code: ErrorCode, why: str | None = None) -> rs.TopicResult:
    """The row of a topic."""
    message = UNSET if code is ErrorCode.NONE else why or code.what_to_do
    return rs.TopicResult(topic=topic, error=code.name, message=message)

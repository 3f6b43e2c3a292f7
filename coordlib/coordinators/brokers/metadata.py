"""Metadata: brokers, topics and partitions, all as of this place of the log."""

from collections.abc import Iterator

from coordlib import limits
from coordlib.coordinators.brokers import telling
from coordlib.coordinators.brokers.rows import TOPICS, Topic
from coordlib.coordinators.brokers.step import ClusterStep
from coordlib.errors import ErrorCode
from coordlib.records import codec
from coordlib.records import requests as rq
from coordlib.records import responses as rs

TOO_MUCH = "Ask for some topics at a time, or read coord.metadata: that is more than 16 MiB."


def metadata(step: ClusterStep, request: rq.Metadata) -> None:
    """Judge one Metadata."""
    topics = list(_topics(step, request))
    parts = list(_bounded(telling.parts(_rows(step, [name for name, _ in topics]))))
    if sum(map(len, map(codec.encode, parts))) > limits.ANSWER_BYTES_MAX:
        return step.refuse(request, ErrorCode.INVALID_REQUEST, TOO_MUCH)
    brokers = step.cluster.brokers.values()
    for number, part in enumerate(parts):
        step.answer(
            request,
            generation=step.cluster.generation,
            brokers=tuple(telling.broker_row(e) for e in brokers if e.is_ready and not number),
            topics=() if number else tuple(telling.topic_row(*each) for each in topics),
            partitions=tuple(part),
            part=number,
            parts=len(parts),
        )
    return None


def _topics(step: ClusterStep, request: rq.Metadata) -> Iterator[tuple[str, Topic]]:
    names = step.entries(TOPICS).names() if request.topics is None else sorted(request.topics)
    for name in names:
        topic = step.topic(name)
        if topic is not None:
            yield name, topic


def _rows(step: ClusterStep, names: list[str]) -> Iterator[rs.ReplicaRow]:
    for name in names:
        for place, row in step.rows_of_topic(name):
            yield telling.replica_row(place, row)


def _bounded(parts: Iterator[list[rs.ReplicaRow]]) -> Iterator[list[rs.ReplicaRow]]:
    """One part more than an answer may have is enough to refuse it."""
    for number, part in enumerate(parts):
        yield part
        if number > limits.ANSWER_BYTES_MAX // limits.METADATA_PART_BYTES_MAX:
            return

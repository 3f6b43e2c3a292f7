"""Metadata: brokers, topics and partitions, all as of this place of the log."""

from collections.abc import Iterable, Iterator

from coordlib import limits
from coordlib.core.controller import telling
from coordlib.core.controller.rows import TOPICS, Topic
from coordlib.core.controller.step import ClusterStep
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.errors import ErrorCode

TOO_MUCH = "Ask for some topics at a time, or read coord.metadata: that is more than 16 MiB."


def metadata(step: ClusterStep, request: rq.Metadata) -> None:
    """Judge one Metadata."""
    topics = list(_topics(step, request))
    parts = telling.parts(
        brokers=(telling.broker_row(e) for e in step.cluster.brokers.values() if e.is_ready),
        topics=(telling.topic_row(*each) for each in topics),
        partitions=_rows(step, [name for name, _ in topics]),
    )
    whole = _bounded(parts)
    if whole is None:
        return step.refuse(request, ErrorCode.INVALID_REQUEST, TOO_MUCH)
    for number, part in enumerate(whole):
        step.answer(
            request,
            generation=step.cluster.generation,
            part=number,
            parts=len(whole),
            **part.fields,
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


def _bounded(parts: Iterable[telling.Part]) -> list[telling.Part] | None:
    """All parts of an answer; None: they are too much, and no more of them were made."""
    found, size_bytes = [], 0
    for part in parts:
        found.append(part)
        size_bytes += part.size_bytes
        if size_bytes > limits.ANSWER_BYTES_MAX:
            return None
    return found

"""Metadata and DescribeGroup: brokers, topics and partitions, as of this place of the log.

Keeps INV-80.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from coordlib import limits
from coordlib.core.controller.states import (
    DELETING,
    PARTITIONS,
    TO_BE_DELETED,
    TOPICS,
    Cluster,
    Partition,
    ReplicaState,
    Topic,
)
from coordlib.core.controller.step import (
    ClusterStep,
    Part,
    broker_row,
    record_parts,
    replica_row,
    topic_row,
)
from coordlib.core.wire import api
from coordlib.errors import ErrorCode

RECONCILING: Final = "Reconciling"


def describe_group(step: ClusterStep, request: api.DescribeGroup) -> None:
    """Answer with the registered brokers, Inactive ones included."""
    cluster = step.value
    rows = (row for _, row in step.entries(PARTITIONS).marked(DELETING))
    waits_for = tuple(awaited(cluster, rows)) if cluster else ()
    step.answer(
        request,
        kind=step.kind.NAME,
        state=state(cluster, waits_for),
        generation=cluster.generation if cluster else -1,
        protocol_type=None,
        protocol=None,
        leader=None,
        members=tuple(
            api.DescribedMember(each.member, None, each.client, each.state.value.encode())
            for each in (cluster.brokers.values() if cluster else ())
        ),
        waits_for=waits_for,
    )


def state(cluster: Cluster | None, waits_for: tuple[api.AwaitedMember, ...]) -> str:
    """A cluster's state, in the words that groups have.

    Moves, and partitions without leader, are none of it: to find them, all rows would have to be
    read. `coord cluster describe` reads them, and says for which brokers they wait.
    """
    if cluster is None:
        return "Dead"
    if not cluster.brokers:
        return "Empty"
    return RECONCILING if waits_for else "Stable"


def awaited(cluster: Cluster, rows: Iterable[Partition]) -> Iterator[api.AwaitedMember]:
    """The brokers that others wait for. `rows`: at least those with replicas to delete."""
    for name, guard in cluster.guards.items():
        yield api.AwaitedMember(name, guard.client, api.NOT_STOPPED)
    for broker in cluster.brokers.values():
        if broker.demand is not None:
            yield api.AwaitedMember(broker.member, broker.client, api.NOT_RELEASED)
    for number in sorted({each for row in rows for each in undeleted(row)}):
        each = cluster.brokers.get(number)
        if each is not None:
            yield api.AwaitedMember(each.member, each.client, api.NOT_DELETED)


def undeleted(row: Partition) -> Iterator[int]:
    """The brokers whose replicas of a partition are to be deleted and are not."""
    waiting = TO_BE_DELETED - {ReplicaState.DELETION_SUCCESSFUL}
    return (broker for broker, replica in row.deleting.items() if replica in waiting)


TOO_MUCH = "Ask for some topics at a time, or read coord.metadata: that is more than 16 MiB."


def metadata(step: ClusterStep, request: api.Metadata) -> None:
    """Judge one Metadata."""
    topics = list(_topics(step, request))
    parts = record_parts(
        brokers=(broker_row(e) for e in step.cluster.brokers.values() if e.is_ready),
        topics=(topic_row(*each) for each in topics),
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


def _topics(step: ClusterStep, request: api.Metadata) -> Iterator[tuple[str, Topic]]:
    names = step.entries(TOPICS).names() if request.topics is None else sorted(request.topics)
    for name in names:
        topic = step.topic(name)
        if topic is not None:
            yield name, topic


def _rows(step: ClusterStep, names: list[str]) -> Iterator[api.ReplicaRow]:
    for name in names:
        for place, row in step.rows_of_topic(name):
            yield replica_row(place, row)


def _bounded(parts: Iterable[Part]) -> list[Part] | None:
    """All parts of an answer; None: they are too much, and no more of them were made."""
    found, size_bytes = [], 0
    for part in parts:
        found.append(part)
        size_bytes += part.size_bytes
        if size_bytes > limits.ANSWER_BYTES_MAX:
            return None
    return found

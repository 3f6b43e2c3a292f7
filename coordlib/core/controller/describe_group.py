"""DescribeGroup: the brokers of a cluster, and for whom somebody waits.  # INV-80"""

from collections.abc import Iterable, Iterator
from typing import Final

from coordlib.core.controller.cluster import Cluster
from coordlib.core.controller.rows import DELETING, PARTITIONS, Partition
from coordlib.core.controller.states import TO_BE_DELETED, ReplicaState
from coordlib.core.controller.step import ClusterStep
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs

RECONCILING: Final = "Reconciling"


def describe_group(step: ClusterStep, request: rq.DescribeGroup) -> None:
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
            rs.DescribedMember(each.member, None, each.client, each.state.value.encode())
            for each in (cluster.brokers.values() if cluster else ())
        ),
        waits_for=waits_for,
    )


def state(cluster: Cluster | None, waits_for: tuple[rs.AwaitedMember, ...]) -> str:
    """A cluster's state, in the words that groups have.

    Moves, and partitions that nobody leads, are none of it: to find them, all rows would have to be
    read. `coord cluster describe` reads them, and says for which brokers they wait.
    """
    if cluster is None:
        return "Dead"
    if not cluster.brokers:
        return "Empty"
    return RECONCILING if waits_for else "Stable"


def awaited(cluster: Cluster, rows: Iterable[Partition]) -> Iterator[rs.AwaitedMember]:
    """For whom somebody waits. `rows`: at least those with replicas that are to be deleted."""
    for name, guard in cluster.guards.items():
        yield rs.AwaitedMember(name, guard.client, rs.NOT_STOPPED)
    for broker in cluster.brokers.values():
        if broker.demand is not None:
            yield rs.AwaitedMember(broker.member, broker.client, rs.NOT_RELEASED)
    for number in sorted({each for row in rows for each in undeleted(row)}):
        each = cluster.brokers.get(number)
        if each is not None:
            yield rs.AwaitedMember(each.member, each.client, rs.NOT_DELETED)


def undeleted(row: Partition) -> Iterator[int]:
    """The brokers whose replicas of a partition are to be deleted and are not."""
    waiting = TO_BE_DELETED - {ReplicaState.DELETION_SUCCESSFUL}
    return (broker for broker, replica in row.deleting.items() if replica in waiting)

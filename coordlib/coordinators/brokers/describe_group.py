"""DescribeGroup: the brokers of a cluster, and for whom somebody waits.  # INV-80"""

from collections.abc import Iterator

from coordlib.coordinators.brokers.cluster import Cluster
from coordlib.coordinators.brokers.rows import DELETING, PARTITIONS
from coordlib.coordinators.brokers.states import TO_BE_DELETED, ReplicaState
from coordlib.coordinators.brokers.step import ClusterStep
from coordlib.records import requests as rq
from coordlib.records import responses as rs


def describe_group(step: ClusterStep, request: rq.DescribeGroup) -> None:
    """Answer with the registered brokers, Inactive ones included."""
    cluster = step.value
    waits_for = tuple(_awaited(step, cluster)) if cluster else ()
    step.answer(
        request,
        kind=step.kind.NAME,
        state=_state(cluster, waits_for),
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


def _state(cluster: Cluster | None, waits_for: tuple[rs.AwaitedMember, ...]) -> str:
    if cluster is None:
        return "Dead"
    if not cluster.brokers:
        return "Empty"
    return "Reconciling" if waits_for else "Stable"


def _awaited(step: ClusterStep, cluster: Cluster) -> Iterator[rs.AwaitedMember]:
    for name, guard in cluster.guards.items():
        yield rs.AwaitedMember(name, guard.client, rs.NOT_STOPPED)
    for broker in cluster.brokers.values():
        if broker.demand is not None:
            yield rs.AwaitedMember(broker.member, broker.client, rs.NOT_RELEASED)
    for number in sorted(_deleting(step)):
        each = cluster.brokers.get(number)
        if each is not None:
            yield rs.AwaitedMember(each.member, each.client, rs.NOT_DELETED)


def _deleting(step: ClusterStep) -> set[int]:
    """The brokers whose replicas are to be deleted and are not."""
    waiting = TO_BE_DELETED - {ReplicaState.DELETION_SUCCESSFUL}
    return {
        broker
        for _, row in step.entries(PARTITIONS).marked(DELETING)
        for broker, state in row.deleting.items()
        if state in waiting
    }

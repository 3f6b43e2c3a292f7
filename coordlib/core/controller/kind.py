"""Clusters of brokers as a kind: their requests, and the facts of a cluster."""

from collections.abc import Mapping, Set
from typing import ClassVar, Final

from coordlib.core.controller import timers
from coordlib.core.controller.alter_partition import alter_partition
from coordlib.core.controller.alter_partition_reassignments import alter_partition_reassignments
from coordlib.core.controller.broker_heartbeat import broker_heartbeat
from coordlib.core.controller.cluster import Cluster, check_invariants
from coordlib.core.controller.create_partitions import create_partitions
from coordlib.core.controller.create_topics import create_topics
from coordlib.core.controller.delete_topics import delete_topics
from coordlib.core.controller.describe_group import describe_group
from coordlib.core.controller.elect_leaders import elect_leaders
from coordlib.core.controller.heartbeat import heartbeat
from coordlib.core.controller.leave_group import leave_group
from coordlib.core.controller.metadata import metadata
from coordlib.core.controller.register_broker import register_broker
from coordlib.core.controller.release import release
from coordlib.core.controller.replicas_deleted import replicas_deleted
from coordlib.core.controller.rows import PARTITIONS, TOPICS
from coordlib.core.controller.step import ClusterStep
from coordlib.core.controller.unregister_broker import unregister_broker
from coordlib.core.engine.clock import Due
from coordlib.core.engine.kind import ANY_GENERATION, NO_GENERATION, Facts, Handler, Kind, Known
from coordlib.core.engine.transition import At
from coordlib.core.wire import requests as rq
from coordlib.core.wire.brokers import CLUSTER


class Brokers(Kind):
    """Clusters: their brokers in the head, topics and partitions in tables beside it."""

    NAME = "brokers"
    SPACE = CLUSTER
    VALUE = Cluster
    STEP = ClusterStep
    TABLES: ClassVar = (TOPICS, PARTITIONS)
    WHILE_NOT_EMPTY = "Delete the cluster's topics and unregister its brokers first."
    APIS: ClassVar[Mapping[type[rq.Request], Handler]] = {
        rq.RegisterBroker: register_broker,
        rq.BrokerHeartbeat: broker_heartbeat,
        rq.Heartbeat: heartbeat,
        rq.AlterPartition: alter_partition,
        rq.Release: release,
        rq.ReplicasDeleted: replicas_deleted,
        rq.LeaveGroup: leave_group,
        rq.CreateTopics: create_topics,
        rq.CreatePartitions: create_partitions,
        rq.DeleteTopics: delete_topics,
        rq.ElectLeaders: elect_leaders,
        rq.AlterPartitionReassignments: alter_partition_reassignments,
        rq.UnregisterBroker: unregister_broker,
        rq.Metadata: metadata,
        rq.DescribeGroup: describe_group,
    }

    def create(self, name: str, _at: At) -> Cluster:
        """A cluster without brokers."""
        return Cluster(group=name)

    def is_empty(self, value: Cluster) -> bool:
        return value.is_empty

    def sessions(self, value: Cluster) -> Set[str]:
        return {each.member for each in value.brokers.values() if each.has_session}

    def facts(self, value: Cluster, known: Known) -> Facts:
        if value is known.value:
            return known.facts  # rows alone have changed
        waits_from, waits_to = timers.uncovered(value) or (-1, -1)
        brokers = value.brokers.values()
        return Facts(
            quiet=ANY_GENERATION if any(each.has_session for each in brokers) else NO_GENERATION,
            next_due_ms=self.next_due(value, known.row.heard).due_ms,
            waits_from=waits_from,
            waits_to=waits_to,
            timeout_ms=timers.shortest_timeout_ms(value),
            replies=value.replies,
            size_bytes=value.size_bytes(),
        )

    def next_due(self, value: Cluster, heard: Mapping[str, int]) -> Due:
        return timers.next_due(value, heard)

    def fire(self, step: ClusterStep, due: Due) -> None:
        timers.fire(step, due)

    def cover(self, value: Cluster, published: int, clock_ms: int) -> tuple[Cluster, list[str]]:
        return timers.cover(value, published, clock_ms)

    def restart(self, value: Cluster, clock_ms: int) -> Cluster:
        return timers.restart(value, clock_ms)

    def check(self, value: Cluster) -> None:
        check_invariants(value)


BROKERS: Final = Brokers()

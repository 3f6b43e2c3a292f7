"""The racks of partitions' replicas, for assignors that place members near replicas.

Kafka's metadata name the brokers of replicas; where a broker stands is in the description of the
cluster. A rack is only a preference: a leader asks when it assigns, and no member watches racks.
Kafka's consumer joins again when racks change; here the next assignment, whatever its reason, uses
the new ones. A reassignment moves replicas one by one, and a group that joined again at each of
these steps would lose more than a read across racks costs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from coordlib.coordinators.groups.dividing.assignors.model import ReplicaRacks
from coordlib.errors import CannotReach

TIMEOUT_S = 10.0


def read_racks(
    config: Mapping[str, Any], topics: Sequence[str], timeout_s: float = TIMEOUT_S
) -> ReplicaRacks:
    """For those of the topics that exist: the racks of each partition's replicas.

    Raises CannotReach.
    """
    admin = AdminClient(dict(config))  # a name for it: the answer dies with the client
    try:
        nodes = admin.describe_cluster(request_timeout=timeout_s).result(timeout_s).nodes
        found = admin.list_topics(timeout=timeout_s).topics
    except (KafkaException, TimeoutError) as problem:
        raise CannotReach(f"No racks from Kafka: {problem}") from problem
    rack_of = {node.id: node.rack for node in nodes if node.rack}
    replicas = {
        name: {number: each.replicas for number, each in found[name].partitions.items()}
        for name in topics
        if name in found and found[name].error is None
    }
    return racks_of(replicas, rack_of)


def racks_of(
    replicas: Mapping[str, Mapping[int, Sequence[int]]], rack_of: Mapping[int, str]
) -> dict[str, tuple[frozenset[str], ...]]:
    """Brokers by topic and partition, as racks in the order of the partitions."""
    return {
        topic: tuple(
            frozenset(rack_of[broker] for broker in some.get(number, ()) if broker in rack_of)
            for number in range(max(some, default=-1) + 1)
        )
        for topic, some in replicas.items()
    }

"""What a group's leader asks Kafka: topics' partition counts, and the racks of their replicas.

Racks are for assignors that place members near replicas. Kafka's metadata name the brokers of
replicas; where a broker stands is in the description of the cluster. A rack is only a preference: a
leader asks when it assigns, and no member watches racks. Kafka's consumer joins again when racks
change; here the next assignment, whatever its reason, uses the new ones. A reassignment moves
replicas one by one, and a group that joined again at each of these steps would lose more than a
read across racks costs.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from coordlib.core.groups.assignors.model import ReplicaRacks
from coordlib.errors import CannotReach
from coordlib.kafka.clients import open_admin, reason_of
from coordlib.kafka.denied import hidden, missing, reading

_log = logging.getLogger("coordlib.client")

TIMEOUT_S = 10.0
_AGAIN: Final = "Check that the brokers run, then try again."


def read_counts(
    client: Any,
    options: Mapping[str, Any],
    topics: Sequence[str] | None,
    own: Collection[str] | None,
) -> dict[str, int]:
    """Those of the topics that exist, with their partition counts: `Transport.partition_counts`.

    Args:
        client: any of confluent-kafka's.
        options: librdkafka's.
    """
    try:
        found = client.list_topics(timeout=TIMEOUT_S).topics
        names = found if topics is None else topics
        known = {name: found[name] for name in names if name in found}
        # Topics that are not listed do not exist, or may not be seen.
        absent = [name for name in names if name not in known]
        unseen = hidden(open_admin(options), absent, TIMEOUT_S) if absent else []
    except (KafkaException, TimeoutError) as problem:
        asked = ", ".join(topics) if topics is not None else "all topics"
        what = f"No metadata from Kafka: {reason_of(problem)}"
        raise CannotReach(what, asked, _AGAIN) from problem
    if mine := [each for each in unseen if own is None or each in own]:
        raise missing(reading(mine[0]), options)
    if unseen:
        _log.warning(
            "Topics of other members may not be seen here: %s", ", ".join(map(ascii, unseen))
        )
    return {name: len(each.partitions) for name, each in known.items() if each.error is None}


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
        what = f"No racks from Kafka: {reason_of(problem)}"
        raise CannotReach(what, ", ".join(topics), _AGAIN) from problem
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

"""What must hold of a cluster's rows after every step, whatever was asked.

The head checks itself; these are the promises that need the rows, or what was before.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from coordlib.core.controller import states as kept
from coordlib.core.controller.states import Cluster, Partition, ReplicaState, Topic
from coordlib.core.engine.effects import METADATA, Output
from coordlib.core.engine.tables import Place
from coordlib.core.wire import codec
from coordlib.core.wire.stored import PartitionValue

Rows = Mapping[Place, Partition]


def faults(cluster: Cluster, topics: Mapping[str, Topic], rows: Rows) -> Iterator[str]:
    """What contradicts a promise."""
    yield from _of_counts(cluster, topics, rows)
    for place, row in rows.items():
        name = f"{place[0]}/{place[1]}"
        yield from (f"{name}: {why}" for why in _of_row(cluster, row))


def changes(before: dict[bytes, PartitionValue], outputs: Iterable[Output]) -> Iterator[str]:
    """What contradicts a promise in the changes of partitions, one step after the other.

    `before`: the newest values; they are brought up to date.
    """
    for output in outputs:
        if output.topic != METADATA or kept.PARTITIONS.place(output.key) is None:
            continue
        former = before.pop(output.key, None)
        if output.value is not None:
            row = before[output.key] = msgspec.json.decode(output.value, type=PartitionValue)
            if former is not None and former.topic_id == row.topic_id:
                yield from (f"{output.key!r}: {why}" for why in _of_change(former, row))


def _of_counts(cluster: Cluster, topics: Mapping[str, Topic], rows: Rows) -> Iterator[str]:
    moving = Counter(row.leader for row in rows.values() if row.move)
    for number, broker in cluster.brokers.items():
        if broker.moving != moving[number]:
            yield f"INV-15: broker {number} has {moving[number]} to move, not {broker.moving}"
    of_topic = Counter(topic for topic, _ in rows)
    if of_topic != {name: topic.partitions for name, topic in topics.items()}:
        yield "INV-15: topics and their partitions differ"
    if (cluster.topic_count, cluster.partition_count) != (len(topics), len(rows)):
        yield "INV-15: topics and partitions are miscounted"
    asked = Counter((row.leader, row.asked) for row in rows.values() if row.asked >= 0)
    for number, cause in asked:
        demand = cluster.brokers[number].demand
        if demand is None or demand.timer.cause != cause:
            yield f"INV-80: broker {number} is asked by {cause}, and nobody waits for it"
    guards = {guard.incarnation for guard in cluster.guards.values()} | {-1}
    if any(row.guard not in guards | set(_deleting(cluster, row)) for row in rows.values()):
        yield "INV-80: a partition waits for a guard that is over"


def _deleting(cluster: Cluster, row: Partition) -> Iterator[int]:
    """Incarnations that have been told to delete it: the leader leads until it has read so."""
    for number, state in row.deleting.items():
        if state == ReplicaState.DELETION_STARTED:
            yield cluster.brokers[number].incarnation


def _of_row(cluster: Cluster, row: Partition) -> Iterator[str]:
    ready = {number for number, each in cluster.brokers.items() if each.is_ready}
    if not set(row.isr) <= set(row.replicas) or len(set(row.isr)) < len(row.isr):
        yield "INV-73: the ISR is no part of the replicas"
    if row.leader >= 0 and row.leader not in row.isr:
        yield "INV-73: the leader is not in sync"
    if row.leader >= 0 and row.leader not in ready:
        yield "INV-74: an Inactive broker leads"
    if len(row.isr) > 1 and not set(row.isr) <= ready:
        yield "INV-74: an Inactive broker is in an ISR beside others"
    if row.guard >= 0 and row.leader >= 0:
        yield "INV-71: somebody leads what is guarded"
    if (row.asked >= 0 or row.move) and row.leader < 0:
        yield "INV-80: nobody leads what is asked back"


def _of_change(before: PartitionValue, after: PartitionValue) -> Iterator[str]:
    counted = (before.leader, before.isr, before.replicas) != (
        after.leader,
        after.isr,
        after.replicas,
    )
    rise = after.partition_epoch - before.partition_epoch
    if rise not in (0, 1) or (counted and rise != 1):
        yield f"INV-72: the partition epoch rose by {rise}"
    rise = after.leader_epoch - before.leader_epoch
    if rise not in (0, 1) or (before.leader != after.leader and rise != 1):
        yield f"INV-72: the leader epoch rose by {rise}"
    # A deadline that fires at a record, and the record itself, have one fence.
    if after.fence < before.fence or (not rise and after.fence != before.fence):
        yield "INV-72: the fence and the leader epoch do not rise together"


def published(outputs: list[Output]) -> dict[bytes, bytes]:
    """`coord.metadata` as compaction leaves it."""
    found: dict[bytes, bytes] = {}
    for output in outputs:
        if output.topic == METADATA:
            found.pop(output.key, None)
            if output.value is not None:
                found[output.key] = output.value
    return found


def expected_metadata(
    cluster: Cluster, topics: Mapping[str, Topic], rows: Rows
) -> dict[bytes, bytes]:
    """INV-79: what `coord.metadata` must have; of brokers only their incarnation and state."""
    found = {
        kept.TOPICS.key(cluster.group, (name, 0)): codec.encode(kept.saved_topic(topic))
        for name, topic in topics.items()
    }
    for place, row in rows.items():
        key = kept.PARTITIONS.key(cluster.group, place)
        found[key] = codec.encode(kept.saved_partition(row))
    for number, broker in cluster.brokers.items():
        if broker.is_ready:
            key = codec.encode(kept.key_of(cluster.group, kept.BROKER, number, 0))
            found[key] = codec.encode([broker.incarnation, broker.state])
    return found


def shortened(found: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """`published` in the form of `expected_metadata`."""
    return {
        key: _short(value) if kept.is_broker_key(key) else value for key, value in found.items()
    }


def _short(value: bytes) -> bytes:
    broker = msgspec.json.decode(value)
    return codec.encode([broker["incarnation"], broker["current_state"]])

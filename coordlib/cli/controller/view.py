"""A cluster as the topics tell it: brokers, topics, partitions; and plans of reassignments."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from coordlib.cli.kit.listing import AsOf
from coordlib.cli.kit.reading import (
    ClientOptions,
    load_head,
    read_as_of,
    read_shards,
)
from coordlib.client.kit.events import TopicPartition
from coordlib.core.controller import reads
from coordlib.core.controller.protocol import BROKERS, Clusters
from coordlib.core.controller.states import (
    PARTITIONS,
    TOPICS,
    Broker,
    Cluster,
    Partition,
    ReplicaState,
    Topic,
)
from coordlib.core.engine.effects import CLUSTERS, METADATA
from coordlib.core.engine.tables import Place
from coordlib.core.wire import api
from coordlib.core.wire.envelope import Int32, shard_of
from coordlib.errors import ErrorCode, GroupError, SetupError
from coordlib.kafka.reading import newest_by_key

PLAN_BYTES_MAX: Final = 16 * 1024 * 1024
_EXAMPLE: Final = (
    'For example {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}'
)


class _Row(msgspec.Struct):
    """A partition, and the brokers that it is to be on. Other fields of Kafka's are left alone."""

    topic: str
    partition: Int32
    replicas: tuple[Int32, ...]


class _Plan(msgspec.Struct):
    partitions: list[_Row]


def planned(file: str) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas that each partition of a plan is to have, in its order.

    Raises:
        SetupError: the file cannot be read, or is no plan.
    """
    where = f"--plan {file[:200]!r}"
    try:
        with Path(file).open("rb") as opened:
            text = opened.read(PLAN_BYTES_MAX + 1)
    except (OSError, ValueError) as problem:  # a name with a null byte is no OSError
        why = getattr(problem, "strerror", None) or str(problem)
        raise SetupError(f"The plan cannot be read: {why}.", where, _EXAMPLE) from problem
    if len(text) > PLAN_BYTES_MAX:
        raise SetupError("This is no plan: it is too large.", where, "Divide it into several.")
    try:
        plan = msgspec.json.decode(text, type=_Plan)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise SetupError(f"This is no plan: {problem}.", where, _EXAMPLE) from problem
    if not plan.partitions:
        raise SetupError("The plan has no partitions.", where, _EXAMPLE)
    found = {TopicPartition(row.topic, row.partition): row.replicas for row in plan.partitions}
    if len(found) < len(plan.partitions):
        raise SetupError("The plan names a partition twice.", where, "Name each once.")
    return found


#: Beside what DescribeGroup answers: moves, and partitions that nobody else may lead. They leave
#: the state Stable, as no request of the controller to a broker is open.
NOT_IN_SYNC: Final = "has not caught up with what it is to have"
#: In place of that it has not deleted them: it is there, and said that it could not. How it tries
#: again is not said here: a replica that a move has removed must not lead anybody to DeleteTopics.
NOT_DELETABLE: Final = "could not delete its replicas"
NOT_BACK: Final = "is not active, and no other broker may lead"


@dataclass(frozen=True, slots=True)
class Awaited:
    """A broker that somebody waits for."""

    broker: int
    #: Member id and client of the incarnation that is meant; None: no broker of this id is there.
    member: str | None
    client: str | None
    reason: str
    #: The partitions that wait.
    places: tuple[Place, ...]


@dataclass(frozen=True)
class SeenCluster:
    """A cluster as its values in the topics have it."""

    cluster: str
    #: None: this version cannot read it, and `unreadable` says why.
    value: Cluster | None
    topics: Mapping[str, Topic] = field(default_factory=dict)
    partitions: Mapping[Place, Partition] = field(default_factory=dict)
    unreadable: str | None = None

    @property
    def is_quarantined(self) -> bool:
        return self.value is not None and self.value.is_quarantined

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """By their ids, in order."""
        return {} if self.value is None else self.value.brokers

    @cached_property
    def state(self) -> str | None:
        """As DescribeGroup tells it."""
        if self.value is None:
            return None
        found = tuple(reads.awaited(self.value, self.partitions.values()))
        return reads.state(self.value, found)

    @property
    def is_reconciling(self) -> bool:
        """Whether a broker has to do what it was asked for; a partition may wait without that."""
        return self.state == reads.RECONCILING

    @property
    def leaderless(self) -> int:
        return sum(map(is_leaderless, self.partitions.values()))

    @property
    def under_replicated(self) -> int:
        return sum(map(is_under_replicated, self.partitions.values()))

    @property
    def lost(self) -> int:
        """Partitions whose last replica in sync is gone: nobody is left to be waited for."""
        rows = self.partitions.values()
        return sum(is_leaderless(row) and not row.isr and row.leader_epoch >= 0 for row in rows)

    @cached_property
    def waits_for(self) -> tuple[Awaited, ...]:
        """For whom somebody waits: guards, demands, deletions, moves, and leaderless partitions."""
        return () if self.value is None else tuple(_awaited(self.value, self.partitions))


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Everything about one cluster."""

    seen: SeenCluster
    shard: int
    as_of: AsOf | None


def is_leaderless(row: Partition) -> bool:
    """Whether nobody leads a partition; of one whose topic is deleted nobody shall."""
    return row.leader < 0 and not set(row.replicas) <= row.deleting.keys()


def is_under_replicated(row: Partition) -> bool:
    """Whether a replica that the partition is to keep is not in sync."""
    return not set(row.target) - row.deleting.keys() <= set(row.isr)


def read_clusters(
    client: ClientOptions, topics: Mapping[str, Any], prefix: str
) -> list[SeenCluster]:
    """Every cluster under a prefix, by name.

    Args:
        topics: metadata of all that Kafka's cluster has, by name.

    Raises:
        CannotReach, SetupError: the broker stopped answering, or there are no such topics.
    """
    shards, _ = read_shards(client, topics, prefix, CLUSTERS)
    found = [each for shard in range(shards) for each in _read_shard(client, prefix, shard)]
    return sorted(found, key=lambda each: each.cluster)


def read_cluster(
    client: ClientOptions, topics: Mapping[str, Any], prefix: str, name: str
) -> ClusterView:
    """One cluster. `topics` and Raises as `read_clusters`, and besides

    GroupError: GROUP_ID_NOT_FOUND.
    """
    shards, progress = read_shards(client, topics, prefix, CLUSTERS)
    shard = shard_of(name, shards)
    as_of = read_as_of(client, prefix, shard, progress)
    for each in _read_shard(client, prefix, shard):
        if each.cluster == name:
            return ClusterView(each, shard, as_of)
    raise GroupError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"cluster {name}, prefix {prefix}, shard {shard}",
        "Check its name: coord cluster list",
    )


def _read_shard(client: ClientOptions, prefix: str, shard: int) -> Iterator[SeenCluster]:
    heads = newest_by_key(client, f"{prefix}.{CLUSTERS}", shard)
    rows = newest_by_key(client, f"{prefix}.{METADATA}", shard) if heads else {}
    return seen_clusters(heads, rows)


def seen_clusters(
    heads: Mapping[bytes, bytes], rows: Mapping[bytes, bytes]
) -> Iterator[SeenCluster]:
    """The clusters of a shard, out of the live records of its two topics."""
    topics: dict[str, dict[str, Topic]] = {}
    partitions: dict[str, dict[Place, Partition]] = {}
    for key, value in rows.items():
        try:
            if (found := TOPICS.place(key)) is not None:
                topics.setdefault(found[0], {})[found[1][0]] = TOPICS.keep(TOPICS.load(value))
            elif (found := PARTITIONS.place(key)) is not None:
                row = PARTITIONS.keep(PARTITIONS.load(value))
                partitions.setdefault(found[0], {})[found[1]] = row
        except msgspec.MsgspecError:  # not ours
            continue
    for key, value in heads.items():
        try:
            name = Clusters.head_name(key)
        except msgspec.MsgspecError:  # not ours
            continue
        if name is not None:
            of_name = dict(sorted(partitions.get(name, {}).items()))
            cluster, unreadable = load_head(BROKERS, value)
            yield SeenCluster(name, cluster, topics.get(name, {}), of_name, unreadable)


def _awaited(cluster: Cluster, partitions: Mapping[Place, Partition]) -> Iterator[Awaited]:
    for member, guard in cluster.guards.items():
        places = tuple(at for at, row in partitions.items() if row.guard == guard.incarnation)
        yield Awaited(guard.broker, member, guard.client, api.NOT_STOPPED, places)
    for number, broker in cluster.brokers.items():
        if broker.demand is not None:
            cause = broker.demand.timer.cause
            asked = tuple(
                at for at, row in partitions.items() if (row.leader, row.asked) == (number, cause)
            )
            yield _of(cluster, number, api.NOT_RELEASED, asked)
    by_reason: dict[str, dict[int, list[Place]]] = {
        api.NOT_DELETED: {},
        NOT_DELETABLE: {},
        NOT_IN_SYNC: {},
        NOT_BACK: {},
    }
    for place, row in partitions.items():
        for reason, brokers in _held_up_by(cluster, row).items():
            for number in brokers:
                by_reason[reason].setdefault(number, []).append(place)
    for reason, held_up in by_reason.items():
        for number in sorted(held_up):
            yield _of(cluster, number, reason, tuple(held_up[number]))


def _held_up_by(cluster: Cluster, row: Partition) -> dict[str, tuple[int, ...]]:
    """Reason -> the brokers for which this partition waits."""
    undeleted = tuple(reads.undeleted(row))
    failed = tuple(each for each in undeleted if _has_failed(cluster.brokers.get(each), row))
    found = {
        api.NOT_DELETED: tuple(each for each in undeleted if each not in failed),
        NOT_DELETABLE: failed,
    }
    if row.adding or row.removing:
        found[NOT_IN_SYNC] = tuple(each for each in row.target if each not in row.isr)
    if is_leaderless(row) and row.guard < 0:
        found[NOT_BACK] = row.replicas if row.leader_epoch < 0 else row.isr
    return found


def _has_failed(broker: Broker | None, row: Partition) -> bool:
    """Whether it said that it cannot delete: one that was away is told when it comes."""
    ineligible = ReplicaState.DELETION_INELIGIBLE
    return broker is not None and broker.is_ready and row.deleting[broker.broker] == ineligible


def _of(cluster: Cluster, number: int, reason: str, places: tuple[Place, ...]) -> Awaited:
    broker = cluster.brokers.get(number)
    if broker is None:
        return Awaited(number, None, None, reason, places)
    return Awaited(number, broker.member, broker.client, reason, places)

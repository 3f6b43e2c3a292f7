"""Clusters of a shard: their requests, their deadlines, and what the shard keeps of a cluster.

    session   a broker was not heard for its session timeout: it goes
    release   a broker has not let go within its release timeout: it is removed
    guard     a former leader must have stopped by now (rule 14)

A heartbeat puts off its broker's session, and nothing else. What a silent broker led is led again
in the step of its deadline, if somebody in sync is Active.  # INV-81
"""

from collections.abc import Iterator, Mapping, Set
from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from coordlib.config import BrokersConfig
from coordlib.core.controller import arrivals
from coordlib.core.controller.arrivals import Departure
from coordlib.core.controller.brokers import (
    broker_heartbeat,
    forget_session,
    heartbeat,
    leave_group,
    register_broker,
    unregister_broker,
)
from coordlib.core.controller.isr import alter_partition
from coordlib.core.controller.leadership import finish
from coordlib.core.controller.reads import describe_group, metadata
from coordlib.core.controller.reassignment import (
    alter_partition_reassignments,
    elect_leaders,
    release,
)
from coordlib.core.controller.states import (
    PARTITIONS,
    TOPICS,
    Broker,
    Cluster,
    Demand,
    Guard,
    invariants,
    is_broker_key,
)
from coordlib.core.controller.step import ClusterStep
from coordlib.core.controller.topics import (
    create_partitions,
    create_topics,
    delete_topics,
    replicas_deleted,
)
from coordlib.core.engine.effects import CLUSTERS, METADATA, At
from coordlib.core.engine.protocol import Family
from coordlib.core.engine.step import ANY_GENERATION, NO_GENERATION, Facts, Handler, Kind, Known
from coordlib.core.engine.time import NEVER, Due, rerun
from coordlib.core.wire import api, codec
from coordlib.core.wire.controller import CLUSTER


class BrokersSettings(msgspec.Struct, frozen=True):
    """The settings of the family."""

    config: BrokersConfig = BrokersConfig()


SESSION: Final = "session"
RELEASE: Final = "release"
GUARD: Final = "guard"
REASONS: Final = {SESSION: "session expired", RELEASE: "did not let go in time"}


def _dues(cluster: Cluster, heard: Mapping[str, int]) -> Iterator[Due]:
    for name, guard in cluster.guards.items():
        notice_ms = NEVER if guard.notice.due_ms is None else guard.notice.due_ms
        yield Due(min(guard.due_ms, notice_ms), GUARD, name)
    for broker in cluster.brokers.values():
        if broker.has_session and broker.awaits_cover is None:
            yield Due(heard[broker.member] + broker.session_timeout_ms, SESSION, broker.member)
        if broker.demand is not None and broker.demand.timer.due_ms is not None:
            yield Due(broker.demand.timer.due_ms, RELEASE, broker.member)


def _covered(demand: Demand | None, published: int, clock_ms: int) -> Demand | None:
    if demand is None:
        return None
    timer = demand.timer.covered_by(published, clock_ms)
    return demand if timer is demand.timer else replace(demand, timer=timer)


def _rerun(broker: Broker, clock_ms: int) -> Broker:
    if broker.demand is None:
        return broker
    timer = rerun(broker.demand.timer, clock_ms)
    return replace(broker, demand=replace(broker.demand, timer=timer))


def _rerun_guard(guard: Guard, clock_ms: int) -> Guard:
    due_ms = clock_ms + guard.session_timeout_ms
    return replace(guard, due_ms=due_ms, notice=rerun(guard.notice, clock_ms))


def uncovered(cluster: Cluster) -> tuple[int, int] | None:
    """The lowest and the highest record whose answers a broker must be able to read first."""
    causes = [b.awaits_cover for b in cluster.brokers.values() if b.awaits_cover is not None]
    for broker in cluster.brokers.values():
        if broker.demand is not None and broker.demand.timer.due_ms is None:
            causes.append(broker.demand.timer.cause)
    causes += [g.notice.cause for g in cluster.guards.values() if g.notice.due_ms is None]
    return (min(causes), max(causes)) if causes else None


def shortest_timeout_ms(cluster: Cluster) -> int:
    """The shortest timeout that the cluster waits for; 0: none (rule 1)."""
    brokers = cluster.brokers.values()  # a thousand: they are asked for whenever one has changed
    timeouts = [each.session_timeout_ms for each in brokers if each.has_session]
    timeouts += [
        each.release_timeout_ms for each in brokers if each.has_session or each.demand is not None
    ]
    for guard in cluster.guards.values():
        timeouts += (guard.session_timeout_ms, guard.notice.duration_ms)
    return min(timeouts, default=0)


class Brokers(Kind):
    """Clusters: their brokers in the head, topics and partitions in tables beside it."""

    NAME = "brokers"
    SPACE = CLUSTER
    VALUE = Cluster
    STEP = ClusterStep
    TABLES: ClassVar = (TOPICS, PARTITIONS)
    WHILE_NOT_EMPTY = "Delete the cluster's topics and unregister its brokers first."
    APIS: ClassVar[Mapping[type[api.Request], Handler]] = {
        api.RegisterBroker: register_broker,
        api.BrokerHeartbeat: broker_heartbeat,
        api.Heartbeat: heartbeat,
        api.AlterPartition: alter_partition,
        api.Release: release,
        api.ReplicasDeleted: replicas_deleted,
        api.LeaveGroup: leave_group,
        api.CreateTopics: create_topics,
        api.CreatePartitions: create_partitions,
        api.DeleteTopics: delete_topics,
        api.ElectLeaders: elect_leaders,
        api.AlterPartitionReassignments: alter_partition_reassignments,
        api.UnregisterBroker: unregister_broker,
        api.Metadata: metadata,
        api.DescribeGroup: describe_group,
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
        first_unread_offset, last_unread_offset = uncovered(value) or (-1, -1)
        brokers = value.brokers.values()
        return Facts(
            fast_path_generation=ANY_GENERATION
            if any(each.has_session for each in brokers)
            else NO_GENERATION,
            next_due_ms=self.next_due(value, known.row.heard).due_ms,
            first_unread_offset=first_unread_offset,
            last_unread_offset=last_unread_offset,
            timeout_ms=shortest_timeout_ms(value),
            replies=value.replies,
            size_bytes=value.size_bytes(),
        )

    def next_due(self, value: Cluster, heard: Mapping[str, int]) -> Due:
        """The earliest deadline of the cluster; NEVER when it waits for nothing."""
        return min(_dues(value, heard), default=Due(NEVER))

    def fire(self, step: ClusterStep, due: Due) -> None:
        """Do what follows from a deadline, and from all others of the cluster that are due by now.

        In one step: what a dead broker led must not go to another dead one, and each row is written
        once.
        """
        dues = [each for each in _dues(step.live, step.heard) if each.due_ms <= step.at.clock_ms]
        gone: dict[int, Departure] = {}
        for each in sorted(dues):
            broker = step.live.by_member(each.member) if each.kind != GUARD else None
            if broker is None:
                continue
            step.cause = each.name
            step.reason = REASONS[each.kind]
            if broker.is_ready:
                gone.setdefault(broker.broker, Departure(broker, step.reason))
            else:
                forget_session(step, broker)
        step.cause = due.name
        arrivals.apply_departures(step, gone.values())
        ended = [each.member for each in sorted(dues) if each.kind == GUARD]
        if ended:
            step.reason = step.reason or "former leader must have stopped"
            arrivals.end_guards(step, ended)
        finish(step)

    def outputs_visible(
        self, value: Cluster, published: int, clock_ms: int
    ) -> tuple[Cluster, list[str]]:
        """Start what waited for outputs up to `published` to be visible (rule 3).

        Returns the cluster, and the members whose session starts now.
        """
        heard_now: list[str] = []
        changed: dict[int, Broker] = {}
        for number, broker in value.brokers.items():
            is_heard = broker.awaits_cover is not None and broker.awaits_cover <= published
            demand = _covered(broker.demand, published, clock_ms)
            if is_heard:
                heard_now.append(broker.member)
            if is_heard or demand is not broker.demand:
                awaits = None if is_heard else broker.awaits_cover
                changed[number] = replace(broker, demand=demand, awaits_cover=awaits)
        guarded = {
            name: replace(guard, notice=guard.notice.covered_by(published, clock_ms))
            for name, guard in value.guards.items()
        }
        return replace(value, brokers=value.brokers | changed, guards=guarded), heard_now

    def restart(self, value: Cluster, clock_ms: int) -> Cluster:
        """Give every running deadline its full time again, as after a quarantine."""
        brokers = {number: _rerun(each, clock_ms) for number, each in value.brokers.items()}
        guarded = {name: _rerun_guard(each, clock_ms) for name, each in value.guards.items()}
        return replace(value, brokers=brokers, guards=guarded)

    def invariants(self, value: Cluster) -> Iterator[tuple[str, bool]]:
        return invariants(value)


BROKERS: Final = Brokers()


_decode_name = msgspec.json.Decoder(tuple[str]).decode


class Clusters(Family):
    """The clusters of a shard during one batch."""

    SPACE = CLUSTER
    KINDS: ClassVar[tuple[Brokers, ...]] = (BROKERS,)
    HEADS = CLUSTERS
    SETTINGS = BrokersSettings
    settings: BrokersSettings

    def __init__(self, stored: msgspec.Raw, settings: BrokersSettings) -> None:
        super().__init__(stored, settings)
        self.context = settings.config

    @property
    def entities_max(self) -> int:
        return self.settings.config.clusters_per_shard_max

    @classmethod
    def head_key(cls, name: str) -> bytes:
        return codec.encode([name])

    @classmethod
    def head_name(cls, key: bytes) -> str | None:
        return _decode_name(key)[0]

    @classmethod
    def is_published(cls, topic: str, key: bytes) -> bool:
        """Active brokers stand in `coord.metadata` for others; the head has them all."""
        return topic == METADATA and is_broker_key(key)

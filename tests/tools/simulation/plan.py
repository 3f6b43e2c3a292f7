"""What a seed has drawn before anything happens: the world's size, its habits, and its faults."""

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

CLASSIC, ASSIGNED = "classic", "assigned"
MODES: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
#: group.remote.assignor; empty: none is named.
STRATEGIES: Final = ("", "sticky", "uniform", "range", "roundrobin")


class Fault(NamedTuple):
    """Something that is broken at a time, for a while. `dice` decides whom it meets."""

    at_ms: int
    kind: str
    for_ms: int
    dice: int

    def __str__(self) -> str:
        return f"{self.at_ms} {self.kind} for {self.for_ms} ms, dice {self.dice}"


@dataclass(frozen=True)
class Plan:
    """One seed's world."""

    seed: int
    length_ms: int
    members: int
    #: partition.assignment.strategy of the members, from which each draws one; in a server-assigned
    #: group group.remote.assignor, one for all.
    strategies: tuple[str, ...]
    #: How many of the members are static.
    statics: int
    partitions: int
    shards: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    batch_ms: int
    marker_delay_ms: int
    latency_ms: int
    broker_skew_ms: int
    initial_rebalance_delay_ms: int
    requires_member_id: bool
    messages: int
    #: Partitions of each other topic; members subscribe to all topics or to some.
    more_topics: tuple[int, ...] = ()
    #: How many members the group takes; 0: more than there ever are.
    group_size_max: int = 0
    #: Who divides at first: the members, or the coordinator.
    kind: str = CLASSIC
    #: Drivers that start before this time are of before, and sign nothing.
    unsigned_ms: int = 0
    #: Whether the core checks its groups after every step, as it does in no job by default.
    checks_invariants: int = 1
    #: Offsets expire after this time; 0: after a week, which no run lasts.
    retention_ms: int = 0
    #: How many groups a shard makes each second; 0: as many as by default.
    new_groups_per_second: int = 0
    #: What a shard's state, and one group's offsets, may have; 0: as much as by default.
    shard_bytes: int = 0
    offsets_bytes: int = 0
    #: How many stores there are in a cluster beside the groups; 0: there is no cluster.
    brokers: int = 0
    #: How many copiers there are, whose transactions commit offsets; 0: there are none.
    copiers: int = 0
    #: How many couriers there are, who write into another cluster; 0: there are none.
    couriers: int = 0
    #: How many members write into a Delta table that decides about their offsets; 0: none.
    lake_members: int = 0
    #: By how much the bounds of sizes in `limits.py` are divided.
    sizes: int = 1
    faults: tuple[Fault, ...] = field(default=())

    def without(self, first: int, count: int = 1) -> "Plan":
        """The same world with some faults less."""
        return replace(self, faults=self.faults[:first] + self.faults[first + count :])

    @property
    def has_groups_alone(self) -> bool:
        """Whether there is nothing beside the groups."""
        return not (self.brokers or self.copiers or self.couriers or self.lake_members)

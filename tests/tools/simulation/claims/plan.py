"""What a seed of claims has drawn: who is there, how the world is made, and what breaks when.

Times are given in heartbeat intervals (HI): worlds of another interval are the same, slower.
"""

from dataclasses import dataclass, field, replace

from coordlib.client.claims.options import AT_MOST_ONCE, Delivery
from tests.tools.simulation.plan import Fault


@dataclass(frozen=True)
class Plan:
    """One seed's world."""

    seed: int
    #: HI, which the coordination topic's name says.
    interval_ms: int
    length_ms: int
    consumers: int
    #: Of the coordination topic.
    partitions: int
    #: Partition counts of the topics that are claimed.
    topics: tuple[int, ...]
    delivery: Delivery
    #: `ConsumerOptions` of all consumers.
    entire_topic: int
    greedy: int
    maximum: int
    strict: int
    releases_if_behind: int
    latency_ms: int
    broker_skew_ms: int
    batch_ms: int
    messages: int
    #: Whether there is a job at all.
    has_job: int = 1
    #: A log with more records is read late by who finds no snapshot.
    from_start_max: int = 5_000_000
    #: By how much the sender's own time may be off, in seconds.
    skew_s: int = 0
    #: Whether users commit later than they work, and in no order.
    commits_later: int = 0
    faults: tuple[Fault, ...] = field(default=())

    @property
    def topic(self) -> str:
        """The coordination topic."""
        return f"__marshal.{self.interval_ms // 1_000}s"

    @property
    def is_at_most_once(self) -> bool:
        return self.delivery == AT_MOST_ONCE

    def without(self, first: int, count: int = 1) -> "Plan":
        """The same world with some faults less."""
        return replace(self, faults=self.faults[:first] + self.faults[first + count :])

"""What a seed of claims draws: who is there, how the world is made, and what breaks when.

Times are given in heartbeat intervals (HI): worlds of another interval are the same, slower.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from coordlib.client.claims.options import AT_LEAST_ONCE, AT_MOST_ONCE, Delivery
from tests.tools.simulation.plan import Fault

#: Kind -> (its number in reliability, shortest and longest time, in HI).
CONSUMER_KINDS: Final[dict[str, tuple[str, float, float]]] = {
    "consumer-stopped": ("F-05", 0.1, 4.0),
    "consumer-busy": ("F-05", 0.5, 3.0),
    "consumer-killed": ("F-06", 0, 0),
    "consumer-closed": ("F-06", 0, 0),
    "consumer-joins": ("F-06", 0, 0),
    "consumer-twin": ("F-23", 0, 0),
    "consumer-cut-off": ("F-04", 0.2, 3.0),
    "consumer-deaf": ("F-34", 0.2, 3.0),
    "consumer-mute": ("F-34", 0.2, 3.0),
    "claims-acks-lost": ("F-01", 0.2, 2.0),
    "consumer-slow": ("F-04", 0.5, 4.0),
    "stopped-at-a-batch": ("F-05", 2.1, 4.0),
    "mute-at-a-win": ("F-01", 1.1, 2.5),
    "claims-of-a-topic-grow": ("F-30", 0, 0),
}
LOG_KINDS: Final[dict[str, tuple[str, float, float]]] = {
    "claims-broker-away": ("F-16", 0.1, 3.0),
    "claims-clock-steps": ("F-10", 0, 0),
    "steps-at-a-fence": ("F-10", 1.6, 1.9),
    "coordination-cut": ("F-31", 0, 0),
    "reader-begins": ("F-35", 0, 0),
    "group-paused": ("F-35", 0.5, 4.0),
    "positions-set": ("F-35", 0, 0),
    "marshals-client": ("F-35", 2.0, 8.0),
    "foreign-bytes": ("F-18", 0, 0),
}
JOB_KINDS: Final[dict[str, tuple[str, float, float]]] = {
    "claims-driver-crashes": ("F-07", 0, 0),
    "claims-driver-away": ("F-08", 1.0, 8.0),
    "claims-driver-paused": ("F-08", 0.2, 3.0),
    "claims-second-driver": ("F-24", 0, 0),
    "claims-checkpoint-lost": ("F-25", 0, 0),
    "claims-task-again": ("F-28", 1.0, 4.0),
    "claims-rows-again": ("F-02", 1.0, 4.0),
}
KINDS: Final = CONSUMER_KINDS | LOG_KINDS | JOB_KINDS
#: Two forward steps of a broker's clock within one 2·HI are what is survived, and no more.
STEP_KINDS: Final = frozenset({"claims-clock-steps", "steps-at-a-fence"})
STEPS_SPACING: Final = 6
#: Of the seeds, those without a job.
WITHOUT_JOB: Final = 0.15
RARE, OFTEN = 1, 4


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


def draw(seed: int, kinds: tuple[str, ...] = (), **traits: Any) -> Plan:
    """A plan; `kinds`: only these faults, as often as they come; `traits`: fields that are set."""
    luck = Random(f"claims {seed}")
    interval_ms = luck.choice([6_000, 6_000, 6_000, 9_000])
    at_most_once = luck.random() < 0.3
    entire = luck.random() < 0.2
    plan = Plan(
        seed=seed,
        interval_ms=interval_ms,
        length_ms=luck.choice([8, 12, 16]) * interval_ms,
        consumers=luck.randint(2, 4),
        partitions=luck.choice([1, 1, 2]),
        topics=tuple(luck.randint(1, 3) for _ in range(luck.choice([1, 1, 2]))),
        delivery=AT_MOST_ONCE if at_most_once else AT_LEAST_ONCE,
        entire_topic=entire,
        greedy=luck.random() < 0.3,
        maximum=0 if luck.random() < 0.7 else luck.randint(1, 2),
        strict=not at_most_once and luck.random() < 0.15,
        releases_if_behind=luck.random() < 0.3,
        latency_ms=luck.choice([2, 20, 100]),
        broker_skew_ms=luck.choice([0, 0, 50]),
        batch_ms=luck.choice([50, 300, 2_000]),
        messages=luck.choice([60, 150, 300]),
        has_job=luck.random() >= WITHOUT_JOB,
        from_start_max=luck.choice([5_000_000, 5_000_000, 100, 0]),
        skew_s=luck.choice([0, 0, 2, 86_400]),
        commits_later=luck.random() < 0.3,
    )
    plan = replace(plan, **traits)
    return replace(plan, faults=_faults(luck, plan, kinds or _swarm(luck)))


def _swarm(luck: Random) -> tuple[str, ...]:
    """Kinds of faults, each as often as it is to come: some alone, some together."""
    kinds = list(KINDS)
    dice = luck.random()
    if dice < 0.3:
        return (luck.choice(kinds),) * luck.choice([RARE, OFTEN])
    share = 1.0 if dice < 0.35 else luck.choice([0.1, 0.25, 0.5])
    drawn = [kind for kind in kinds if luck.random() < share]
    often = luck.choice([0.0, 0.2])
    return tuple(kind for kind in drawn for _ in range(OFTEN if luck.random() < often else RARE))


def _faults(luck: Random, plan: Plan, kinds: tuple[str, ...]) -> tuple[Fault, ...]:
    found, interval_ms = [], plan.interval_ms
    stepped_ms = -STEPS_SPACING * interval_ms
    moments = sorted(luck.randrange(interval_ms, plan.length_ms) for _ in kinds)
    for at_ms, kind in zip(moments, luck.sample(kinds, len(kinds)), strict=True):
        if kind in STEP_KINDS:
            if at_ms - stepped_ms < STEPS_SPACING * interval_ms:
                continue
            stepped_ms = at_ms
        _, shortest, longest = KINDS[kind]
        for_ms = int(luck.uniform(shortest, longest) * interval_ms)
        found.append(Fault(at_ms, kind, for_ms, luck.getrandbits(16)))
    return tuple(found)

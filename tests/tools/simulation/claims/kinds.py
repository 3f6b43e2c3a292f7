"""The table of faults of worlds of claims, and what a seed draws of it."""

from dataclasses import replace
from random import Random
from typing import Any, Final

from coordlib.client.claims.options import AT_LEAST_ONCE, AT_MOST_ONCE
from tests.tools.simulation.claims import faults, strangers
from tests.tools.simulation.claims.plan import Plan
from tests.tools.simulation.kinds import Kind, Kinds
from tests.tools.simulation.lasting import paused, switched
from tests.tools.simulation.plan import Fault

CONSUMER_KINDS: Final[Kinds] = {
    "consumer-stopped": Kind("F-05", 0.1, 4.0, paused(faults.holder)),
    "consumer-busy": Kind("F-05", 0.5, 3.0, switched(faults.holder, "habits.is_busy")),
    "consumer-killed": Kind("F-06", 0, 0, faults.killed),
    "consumer-closed": Kind("F-06", 0, 0, faults.closed),
    "consumer-joins": Kind("F-06", 0, 0, faults.joins),
    "consumer-twin": Kind("F-23", 0, 0, faults.twin),
    "consumer-cut-off": Kind("F-04", 0.2, 3.0, switched(faults.holder, "transport.network.is_cut")),
    "consumer-deaf": Kind("F-34", 0.2, 3.0, switched(faults.holder, "transport.network.is_deaf")),
    "consumer-mute": Kind("F-34", 0.2, 3.0, switched(faults.holder, "transport.network.is_mute")),
    "claims-acks-lost": Kind(
        "F-01", 0.2, 2.0, switched(faults.holder, "transport.network.loses_acks")
    ),
    "consumer-slow": Kind("F-04", 0.5, 4.0, faults.slow),
    "stopped-at-a-batch": Kind("F-05", 2.1, 4.0, faults.stopped_at_a_batch),
    "mute-at-a-win": Kind("F-01", 1.1, 2.5, faults.mute_at_a_win),
    "claims-of-a-topic-grow": Kind("F-30", 0, 0, faults.topics_grow),
}
LOG_KINDS: Final[Kinds] = {
    "claims-broker-away": Kind("F-16", 0.1, 3.0, faults.broker_away),
    "claims-clock-steps": Kind("F-10", 0, 0, faults.clock_steps),
    "steps-at-a-fence": Kind("F-10", 1.6, 1.9, faults.steps_at_a_fence),
    "coordination-cut": Kind("F-31", 0, 0, faults.coordination_cut),
    "reader-begins": Kind("F-35", 0, 0, faults.reader_begins),
    "group-paused": Kind("F-35", 0.5, 4.0, strangers.paused),
    "positions-set": Kind("F-35", 0, 0, strangers.positions_set),
    "marshals-client": Kind("F-35", 2.0, 8.0, strangers.marshals_client),
    "foreign-bytes": Kind("F-18", 0, 0, strangers.foreign_bytes),
}
JOB_KINDS: Final[Kinds] = {
    "claims-driver-crashes": Kind("F-07", 0, 0, faults.crash),
    "claims-driver-away": Kind("F-08", 1.0, 8.0, faults.away),
    "claims-driver-paused": Kind("F-08", 0.2, 3.0, paused(faults.driver)),
    "claims-second-driver": Kind("F-24", 0, 0, faults.second_driver),
    "claims-checkpoint-lost": Kind("F-25", 0, 0, faults.checkpoint_lost),
    "claims-task-again": Kind("F-28", 1.0, 4.0, switched(faults.engine, "recomputes")),
    "claims-rows-again": Kind("F-02", 1.0, 4.0, switched(faults.engine, "repeats_rows")),
}
KINDS: Final[Kinds] = CONSUMER_KINDS | LOG_KINDS | JOB_KINDS
#: Two forward steps of a broker's clock within one 2·HI are what is survived, and no more.
STEP_KINDS: Final = frozenset({"claims-clock-steps", "steps-at-a-fence"})
STEPS_SPACING: Final = 6
#: Of the seeds, those without a job.
WITHOUT_JOB: Final = 0.15
RARE, OFTEN = 1, 4


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
        for_ms = int(luck.uniform(KINDS[kind].shortest, KINDS[kind].longest) * interval_ms)
        found.append(Fault(at_ms, kind, for_ms, luck.getrandbits(16)))
    return tuple(found)

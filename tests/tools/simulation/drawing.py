"""Draws a world's plan from its seed.

Swarm testing: every seed draws for each kind of fault whether it never happens, rarely, or often;
some seeds have one kind only, so that its consequences stand alone, and some have all. Kinds that
came later, and settings of the job, are drawn from luck of their own.
"""

from collections.abc import Collection
from dataclasses import replace
from random import Random
from typing import Final

from tests.tools.simulation.kinds import (
    BROKER_KINDS,
    CLOCK_KINDS,
    COPIER_KINDS,
    COURIER_KINDS,
    CROWD_KINDS,
    FIRST_KINDS,
    FIRST_STORE_KINDS,
    FORGERY_KINDS,
    KINDS,
    LAKE_KINDS,
    LATER_KINDS,
    LATER_STORE_KINDS,
    LOG_KINDS,
    MEMORY_KINDS,
    NEEDS,
    NOT_OF,
    STORE_KINDS,
    TOPIC_KINDS,
)
from tests.tools.simulation.plan import ASSIGNED, CLASSIC, MODES, STRATEGIES, Fault, Plan
from tests.tools.simulation.signed_worlds import draw_unsigned_ms

# Of the seeds, those in which something happens or is there: each share is of the seeds that can
# have it at all.
ASSIGNED_SHARE: Final = 1 / 3
FORGED_SHARE: Final = 0.4
RAISING_SHARE: Final = 0.15
RETENTION_SHARE: Final = 0.15
LATE_ENDS_SHARE: Final = 0.1
TOPICS_SHARE: Final = 0.1
MEMORY_SHARE: Final = 0.04
LOGS_SHARE: Final = 0.05
STORES_SHARE: Final = 0.2
LATER_STORES_SHARE: Final = 0.3
COPIERS_SHARE: Final = 0.3
COURIERS_SHARE: Final = 0.16
LAKE_SHARE: Final = 0.4
# How many there are, where there are any.
STORES: Final = (3, 3, 4)
COPIERS: Final = (2, 2, 3)
COURIERS: Final = (1, 2, 2)
LAKE_MEMBERS: Final = (2, 2, 3)
RAISING: Final = "assignor-raises"
#: How soon offsets expire, where they do while one looks on.
RETENTIONS_MS: Final = (8_000, 15_000, 30_000)
CLOCK_SPACING_MS: Final = 90_000
RARE, OFTEN = 1, 4
#: What a world has beside the groups, where faults of it are asked for: the field of the plan ->
#: the faults, its luck, and how many there are.
_BESIDE: Final = {
    "brokers": (STORE_KINDS, "stores", STORES),
    "copiers": (COPIER_KINDS, "copiers", COPIERS),
    "couriers": (COURIER_KINDS, "couriers", COURIERS),
    "lake_members": (LAKE_KINDS, "lake", LAKE_MEMBERS),
}


def draw(seed: int, kinds: tuple[str, ...] = (), kind: str | None = None) -> Plan:
    """A plan; `kinds`: only these faults, as often as they come; `kind`: of the group."""
    is_any, kind = kind is None, kind or _kind_of_group(seed, kinds)
    luck = Random(f"plan {seed}")
    session_timeout_ms = luck.choice([6_000, 8_000, 10_000, 15_000])
    plan = Plan(
        seed=seed,
        length_ms=luck.choice([60_000, 90_000, 120_000]),
        members=luck.randint(2, 5),
        strategies=_strategies(luck),
        statics=luck.choice([0, 0, 1, 2, 5]),
        partitions=luck.randint(1, 8),
        shards=luck.choice([1, 1, 2]),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=luck.choice([6_000, 10_000, 20_000]),
        heartbeat_interval_ms=luck.choice([1_000, 2_000, session_timeout_ms // 4]),
        batch_ms=luck.choice([50, 200, 600]),
        marker_delay_ms=luck.choice([5, 50, 400]),
        latency_ms=luck.choice([2, 20, 100]),
        broker_skew_ms=luck.choice([0, 50, 1_000]),
        initial_rebalance_delay_ms=luck.choice([0, 0, 3_000]),
        requires_member_id=luck.random() < 0.2,
        messages=luck.choice([50, 150, 300]),
    )
    plan = _with_topics_and_size(plan)
    if kind == ASSIGNED:
        strategy = Random(f"strategy {seed}").choice(STRATEGIES)
        plan = replace(plan, kind=kind, strategies=(strategy,), statics=0)
    faults = _faults(luck, plan.length_ms, kinds or _swarm(luck, kind))
    if not kinds:
        faults += _faults(Random(f"forged {seed}"), plan.length_ms, _forgeries(seed))
        plan = replace(plan, unsigned_ms=draw_unsigned_ms(seed, plan.length_ms))
        later = Random(f"later {seed}")
        faults += _faults(later, plan.length_ms, _later_swarm(later, kind))
        faults = tuple(sorted(faults, key=lambda fault: fault.at_ms))
    plan = replace(plan, faults=faults)
    if not kinds:
        plan = _with_raising_assignors(plan)
        plan = _now_and_then(plan, "late ends", LATE_ENDS_SHARE, BROKER_KINDS, [RARE, RARE, 2])
        plan = _now_and_then(plan, "added partitions", TOPICS_SHARE, TOPIC_KINDS, [1, 1, 2])
    plan = _with_settings(plan, is_swarm=not kinds)
    for name, (of, stream, counts) in _BESIDE.items():
        if of.keys() & set(kinds):
            count = {name: Random(f"{stream} {seed}").choice(counts)}
            plan = replace(plan, **count)  # type: ignore[arg-type]  # a number
    if kinds or not is_any:
        return plan
    for more in (_with_stores, _with_copiers, _with_couriers, _with_lake, _with_logs, _with_memory):
        plan = more(plan)
    return plan


def _kind_of_group(seed: int, kinds: tuple[str, ...]) -> str:
    """By chance, unless there are faults that happen to one kind of group only."""
    for kind, others in ((ASSIGNED, NOT_OF[CLASSIC]), (CLASSIC, NOT_OF[ASSIGNED])):
        if kinds and others.issuperset(kinds):
            return kind
    return ASSIGNED if Random(f"kind {seed}").random() < ASSIGNED_SHARE else CLASSIC


def _with_topics_and_size(plan: Plan) -> Plan:
    """One topic to three, and now and then a group that is too small for its members."""
    luck = Random(f"topics and size {plan.seed}")
    more = tuple(luck.randint(1, 5) for _ in range(luck.choice([0, 0, 1, 1, 2])))
    size_max = max(2, plan.members + luck.randint(-1, 1)) if luck.random() < 0.25 else 0
    return replace(plan, more_topics=more, group_size_max=size_max)


def _with_raising_assignors(plan: Plan) -> Plan:
    """Now and then the members' assignors raise, beside whatever else happens."""
    if plan.kind != CLASSIC:
        return plan
    return _now_and_then(plan, "assignors", RAISING_SHARE, [RAISING], [1, 2, 3])


def _now_and_then(
    plan: Plan, what: str, share: float, of: Collection[str], times: list[int]
) -> Plan:
    """In some seeds these kinds happen, too, so many times each, beside whatever else does."""
    luck = Random(f"{what} {plan.seed}")
    if luck.random() > share:
        return plan
    more = _faults(luck, plan.length_ms, tuple(of) * luck.choice(times))
    return replace(plan, faults=tuple(sorted((*plan.faults, *more))))


def _with_stores(plan: Plan) -> Plan:
    """In some worlds there is a cluster of stores, in which much happens.

    Whoever names the kind of the group has the world that the seed had before there were stores.
    """
    luck = Random(f"stores {plan.seed}")
    count = luck.choice(STORES)
    if luck.random() > STORES_SHARE:
        return plan
    share = luck.choice([0.1, 0.2, 0.3, 0.6])
    plan = replace(plan, brokers=count, faults=_with_some_of(plan, luck, FIRST_STORE_KINDS, share))
    return replace(plan, faults=_merged(plan, _later_of_stores(plan)))


def _with_some_of(
    plan: Plan,
    luck: Random,
    kinds: Collection[str],
    share: float,
    times: tuple[int, ...] = (RARE, RARE, 2, OFTEN),
) -> tuple[Fault, ...]:
    """The plan's faults, and some of these kinds, each so many times as is drawn of `times`."""
    drawn = [kind for kind in kinds if luck.random() < share]
    often = tuple(kind for kind in drawn for _ in range(luck.choice(times)))
    return _merged(plan, _faults(luck, plan.length_ms, often))


def _merged(plan: Plan, more: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """The plan's faults and these, in their order."""
    return tuple(sorted((*plan.faults, *more), key=lambda fault: fault.at_ms))


def _later_of_stores(plan: Plan) -> tuple[Fault, ...]:
    luck = Random(f"later of stores {plan.seed}")
    if luck.random() > LATER_STORES_SHARE:
        return ()
    return _faults(luck, plan.length_ms, tuple(LATER_STORE_KINDS) * luck.choice([RARE, 2, OFTEN]))


def _keeps_all(plan: Plan) -> bool:
    """Whether no offset expires and no group is kept out by others."""
    return not plan.retention_ms and all(each.kind not in CROWD_KINDS for each in plan.faults)


def _with_copiers(plan: Plan) -> Plan:
    """In some worlds transactions of Kafka commit offsets of a group.

    Not where offsets expire or groups are kept out: copies would rightly be made twice, or never.
    """
    luck = Random(f"copiers {plan.seed}")
    count = luck.choice(COPIERS)
    if luck.random() > COPIERS_SHARE or not _keeps_all(plan):
        return plan
    share = luck.choice([0.1, 0.3, 0.5, 0.8])
    return replace(plan, copiers=count, faults=_with_some_of(plan, luck, COPIER_KINDS, share))


def _with_couriers(plan: Plan) -> Plan:
    """In some worlds the job's coordinator decides transactions that write into another cluster.

    Not where there are copiers or stores, so that no world takes too long; else as copiers.
    """
    luck = Random(f"couriers {plan.seed}")
    count = luck.choice(COURIERS)
    is_full = bool(plan.copiers or plan.brokers)
    if luck.random() > COURIERS_SHARE or is_full or not _keeps_all(plan):
        return plan
    share = luck.choice([0.3, 0.5, 0.8])
    return replace(plan, couriers=count, faults=_with_some_of(plan, luck, COURIER_KINDS, share))


def _with_lake(plan: Plan) -> Plan:
    """In some worlds where the driver watches topics, a Delta table decides of a group's offsets.

    Not where offsets expire or groups are kept out, as of copiers.
    """
    luck = Random(f"lake {plan.seed}")
    count = luck.choice(LAKE_MEMBERS)
    if luck.random() > LAKE_SHARE or plan.kind != ASSIGNED or not _keeps_all(plan):
        return plan
    share = luck.choice([0.4, 0.7, 1.0])
    faults = _with_some_of(plan, luck, LAKE_KINDS, share, (RARE, 2, OFTEN))
    return replace(plan, lake_members=count, faults=faults)


def _with_logs(plan: Plan) -> Plan:
    """In some worlds of groups alone requests are removed unread, or a log loses its end."""
    luck = Random(f"logs {plan.seed}")
    if luck.random() > LOGS_SHARE or not plan.has_groups_alone or not _keeps_all(plan):
        return plan
    more = _faults(luck, plan.length_ms, tuple(luck.choices(tuple(LOG_KINDS), k=2)))
    return replace(plan, faults=_merged(plan, more))


def _with_memory(plan: Plan) -> Plan:
    """In some worlds of groups alone the job comes back with little memory."""
    luck = Random(f"memory {plan.seed}")
    if luck.random() > MEMORY_SHARE or not plan.has_groups_alone:
        return plan
    return replace(plan, faults=_merged(plan, _faults(luck, plan.length_ms, tuple(MEMORY_KINDS))))


def _with_settings(plan: Plan, is_swarm: bool) -> Plan:
    """How the job is set: half as in production, and bounds that the faults can reach."""
    luck = Random(f"settings {plan.seed}")
    plan = replace(plan, checks_invariants=luck.randrange(2))
    if is_swarm and luck.random() < RETENTION_SHARE:
        plan = replace(plan, retention_ms=luck.choice(RETENTIONS_MS))
    for kind in sorted({fault.kind for fault in plan.faults} & NEEDS.keys()):
        plan = replace(plan, **NEEDS[kind])  # type: ignore[arg-type]  # fields by name, all numbers
    return plan


def _strategies(luck: Random) -> tuple[str, ...]:
    """Mostly one for all; sometimes a rolling upgrade half-way."""
    if luck.random() < 0.2:
        return ("cooperative-sticky,range", "range")
    return (luck.choice(MODES),)


def _swarm(luck: Random, group: str) -> tuple[str, ...]:
    """Kinds of faults, each as often as it is to come."""
    beside = {*NOT_OF[group], *FORGERY_KINDS, RAISING}
    kinds = [kind for kind in FIRST_KINDS if kind not in beside]
    dice = luck.random()
    if dice < 0.3:
        return (luck.choice(kinds),) * luck.choice([RARE, OFTEN])
    share = 1.0 if dice < 0.4 else luck.choice([0.1, 0.25, 0.5])
    drawn = [kind for kind in kinds if luck.random() < share]
    often = luck.choice([0.0, 0.2, 0.5])
    return tuple(kind for kind in drawn for _ in range(OFTEN if luck.random() < often else RARE))


def _forgeries(seed: int) -> tuple[str, ...]:
    """Kinds of faults: none, one, or more of them."""
    luck = Random(f"forgeries {seed}")
    if luck.random() >= FORGED_SHARE:
        return ()
    return tuple(kind for kind in FORGERY_KINDS if luck.random() < 0.5)


def _later_swarm(luck: Random, group: str) -> tuple[str, ...]:
    """The same of the later kinds: none in a third of the seeds, one alone in another third."""
    kinds = [kind for kind in LATER_KINDS if kind not in NOT_OF[group]]
    dice = luck.random()
    if dice < 0.33:
        return ()
    if dice < 0.66:
        return (luck.choice(kinds),) * luck.choice([RARE, RARE, OFTEN])
    share = luck.choice([0.1, 0.1, 0.2, 0.4])
    return tuple(kind for kind in kinds if luck.random() < share)


def _faults(luck: Random, length_ms: int, kinds: tuple[str, ...]) -> tuple[Fault, ...]:
    found = []
    stepped_ms = -CLOCK_SPACING_MS
    moments = sorted(luck.randrange(3_000, length_ms) for _ in kinds)
    for at_ms, kind in zip(moments, luck.sample(kinds, len(kinds)), strict=True):
        if kind in CLOCK_KINDS:
            if at_ms - stepped_ms < CLOCK_SPACING_MS:
                continue
            stepped_ms = at_ms
        for_ms = luck.randint(int(KINDS[kind].shortest), int(KINDS[kind].longest))
        found.append(Fault(at_ms, kind, for_ms, luck.getrandbits(16)))
    return tuple(found)

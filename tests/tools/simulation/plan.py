"""What a seed draws before anything happens: the world's size, its habits, and its faults.

Swarm testing: every seed draws for each kind of fault whether it never happens, rarely, or often;
some seeds have one kind only, so that its consequences stand alone, and some have all. Kinds that
came later, and settings of the job, are drawn from luck of their own.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, NamedTuple

from tests.tools.simulation.kinds import (
    BROKER_KINDS,
    COPIER_KINDS,
    COPIERS,
    COPIERS_SHARE,
    COURIER_KINDS,
    COURIERS,
    COURIERS_SHARE,
    CROWD_KINDS,
    FIRST_KINDS,
    FIRST_STORE_KINDS,
    KINDS,
    LAKE_KINDS,
    LAKE_MEMBERS,
    LAKE_SHARE,
    LATE_ENDS_SHARE,
    LATER_ASSIGNED_KINDS,
    LATER_CLASSIC_KINDS,
    LATER_KINDS,
    LATER_MEMBER_KINDS,
    LATER_STORE_KINDS,
    LATER_STORES_SHARE,
    LOG_KINDS,
    LOGS_SHARE,
    MEMORY_KINDS,
    MEMORY_SHARE,
    NEEDS,
    STORE_KINDS,
    STORES,
    STORES_SHARE,
    TOPIC_KINDS,
    TOPICS_SHARE,
    Kinds,
)
from tests.tools.simulation.signed_worlds import (
    FORGERY_KINDS,
    draw_forgeries,
    draw_unsigned_ms,
)


class Fault(NamedTuple):
    """Something that is broken at a time, for a while. `dice` decides whom it meets."""

    at_ms: int
    kind: str
    for_ms: int
    dice: int

    def __str__(self) -> str:
        return f"{self.at_ms} {self.kind} for {self.for_ms} ms, dice {self.dice}"


CLASSIC, ASSIGNED = "classic", "assigned"
#: They happen where the group is server-assigned, and those of the second line where it is classic.
ASSIGNED_KINDS: Final = frozenset(
    {"topic-appears", "topic-vanishes", "stale-listing", "wish-changes", "late-words"}
    | {"never-lets-go", "kind-changes"}
    | LATER_ASSIGNED_KINDS
)
CLASSIC_KINDS: Final = (
    frozenset({"late-consent", "twin-starts", "assignor-raises"}) | LATER_CLASSIC_KINDS
)
#: Drawn apart from the others: of the classic groups one in so many has assignors that raise.
RAISING, RAISING_SHARE = "assignor-raises", 0.15
#: They meet members only: neither the job, nor the brokers, nor the shard's other groups.
MEMBER_KINDS: Final = frozenset(
    {"member-paused", "member-busy", "member-killed", "member-closed", "member-joins", "all-leave"}
    | {"member-cut-off", "member-deaf", "acks-lost", "slow-network", "duplicate-request"}
    | {
        "late-consent",
        "late-commits",
        "deaf-while-joining",
        "late-and-mute",
        "twin-starts",
        "member-removed",
        "topic-grows",
        "stranger-commits",
        "topic-appears",
        "topic-vanishes",
        "wish-changes",
        "late-words",
        "never-lets-go",
        "assignor-raises",
    }
    | LATER_MEMBER_KINDS
)
#: One forward step of the brokers' clocks within one session is what is promised to be survived.
CLOCK_KINDS: Final = frozenset({"broker-clock-jumps", "leaders-move"})
CLOCK_SPACING_MS: Final = 90_000
RARE, OFTEN = 1, 4
MODES: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
#: Of the seeds, those whose group is server-assigned.
ASSIGNED_SHARE: Final = 1 / 3
#: group.remote.assignor; empty: none is named.
STRATEGIES: Final = ("", "sticky", "uniform", "range", "roundrobin")
#: Of the seeds, those in which offsets expire while one looks on, and how soon then.
RETENTION_SHARE: Final = 0.15
RETENTIONS_MS: Final = (8_000, 15_000, 30_000)


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
        faults += _faults(Random(f"forged {seed}"), plan.length_ms, draw_forgeries(seed))
        plan = replace(plan, unsigned_ms=draw_unsigned_ms(seed, plan.length_ms))
        later = Random(f"later {seed}")
        faults += _faults(later, plan.length_ms, _later_swarm(later, kind))
        faults = tuple(sorted(faults, key=lambda fault: fault.at_ms))
    plan = replace(plan, faults=faults)
    if not kinds:
        plan = _with_raising_assignors(plan)
        plan = _now_and_then(plan, "late ends", LATE_ENDS_SHARE, BROKER_KINDS, [RARE, RARE, 2])
        plan = _now_and_then(plan, "added partitions", TOPICS_SHARE, TOPIC_KINDS, [1, 1, 2])
    if STORE_KINDS.keys() & set(kinds):
        plan = replace(plan, brokers=Random(f"stores {seed}").choice(STORES))
    elif is_any and not kinds:
        plan = _with_stores(plan)
    plan = _with_settings(plan, is_swarm=not kinds)
    if COPIER_KINDS.keys() & set(kinds):
        plan = replace(plan, copiers=Random(f"copiers {seed}").choice(COPIERS))
    if COURIER_KINDS.keys() & set(kinds):
        plan = replace(plan, couriers=Random(f"couriers {seed}").choice(COURIERS))
    if LAKE_KINDS.keys() & set(kinds):
        plan = replace(plan, lake_members=Random(f"lake {seed}").choice(LAKE_MEMBERS))
    if kinds or not is_any:
        return plan
    return _with_memory(_with_logs(_with_lake(_with_couriers(_with_copiers(plan)))))


def _kind_of_group(seed: int, kinds: tuple[str, ...]) -> str:
    """By chance, unless there are faults that happen to one kind of group only."""
    if kinds and ASSIGNED_KINDS.issuperset(kinds):
        return ASSIGNED
    if kinds and CLASSIC_KINDS.issuperset(kinds):
        return CLASSIC
    return ASSIGNED if Random(f"kind {seed}").random() < ASSIGNED_SHARE else CLASSIC


def _with_topics_and_size(plan: Plan) -> Plan:
    """One topic to three, and now and then a group that is too small for its members."""
    luck = Random(f"topics and size {plan.seed}")
    more = tuple(luck.randint(1, 5) for _ in range(luck.choice([0, 0, 1, 1, 2])))
    size_max = max(2, plan.members + luck.randint(-1, 1)) if luck.random() < 0.25 else 0
    return replace(plan, more_topics=more, group_size_max=size_max)


def _with_raising_assignors(plan: Plan) -> Plan:
    """Now and then the members' assignors raise, beside whatever else happens."""
    luck = Random(f"assignors {plan.seed}")
    if plan.kind != CLASSIC or luck.random() > RAISING_SHARE:
        return plan
    more = _faults(luck, plan.length_ms, (RAISING,) * luck.choice([1, 2, 3]))
    return replace(plan, faults=tuple(sorted((*plan.faults, *more))))


def _now_and_then(plan: Plan, what: str, share: float, kinds: Kinds, times: list[int]) -> Plan:
    """In some seeds these kinds happen, too: an end of the job's transactions is sent twice and the
    first comes late, or somebody adds partitions to the job's topics."""
    luck = Random(f"{what} {plan.seed}")
    if luck.random() > share:
        return plan
    more = _faults(luck, plan.length_ms, tuple(kinds) * luck.choice(times))
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
    later = sorted((*plan.faults, *_later_of_stores(plan)), key=lambda fault: fault.at_ms)
    return replace(plan, faults=tuple(later))


def _with_some_of(
    plan: Plan,
    luck: Random,
    kinds: Kinds,
    share: float,
    times: tuple[int, ...] = (RARE, RARE, 2, OFTEN),
) -> tuple[Fault, ...]:
    """The plan's faults, and some of these kinds, each so many times as is drawn of `times`."""
    drawn = [kind for kind in kinds if luck.random() < share]
    often = tuple(kind for kind in drawn for _ in range(luck.choice(times)))
    more = _faults(luck, plan.length_ms, often)
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
    if luck.random() > LOGS_SHARE or not has_groups_alone(plan) or not _keeps_all(plan):
        return plan
    more = _faults(luck, plan.length_ms, tuple(luck.choices(tuple(LOG_KINDS), k=2)))
    return replace(plan, faults=tuple(sorted((*plan.faults, *more), key=lambda f: f.at_ms)))


def _with_memory(plan: Plan) -> Plan:
    """In some worlds of groups alone the job comes back with little memory."""
    luck = Random(f"memory {plan.seed}")
    if luck.random() > MEMORY_SHARE or not has_groups_alone(plan):
        return plan
    more = _faults(luck, plan.length_ms, tuple(MEMORY_KINDS))
    return replace(plan, faults=tuple(sorted((*plan.faults, *more), key=lambda f: f.at_ms)))


def has_groups_alone(plan: Plan) -> bool:
    """Whether a world has nothing beside the groups."""
    return not (plan.brokers or plan.copiers or plan.couriers or plan.lake_members)


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
    others = CLASSIC_KINDS if group == ASSIGNED else ASSIGNED_KINDS
    beside = {*others, *FORGERY_KINDS, RAISING}
    kinds = [kind for kind in FIRST_KINDS if kind not in beside]
    dice = luck.random()
    if dice < 0.3:
        return (luck.choice(kinds),) * luck.choice([RARE, OFTEN])
    share = 1.0 if dice < 0.4 else luck.choice([0.1, 0.25, 0.5])
    drawn = [kind for kind in kinds if luck.random() < share]
    often = luck.choice([0.0, 0.2, 0.5])
    return tuple(kind for kind in drawn for _ in range(OFTEN if luck.random() < often else RARE))


def _later_swarm(luck: Random, group: str) -> tuple[str, ...]:
    """The same of the later kinds: none in a third of the seeds, one alone in another third."""
    others = CLASSIC_KINDS if group == ASSIGNED else ASSIGNED_KINDS
    kinds = [kind for kind in LATER_KINDS if kind not in others]
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
        _, shortest_ms, longest_ms = KINDS[kind]
        for_ms = luck.randint(shortest_ms, longest_ms)
        found.append(Fault(at_ms, kind, for_ms, luck.getrandbits(16)))
    return tuple(found)

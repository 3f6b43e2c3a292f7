"""Whether the promises of a cluster of brokers hold. Pure.

What clients were answered is compared with what leaders wrote down, and with the history of the
controller: Delta has who led what, who was in sync, and which state each broker had.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from coordlib.checking import stores
from coordlib.checking.history import Happened
from coordlib.demo.verdict import Check
from coordlib.examples.store_wire import UNKNOWN

ACTS = ("acknowledged", "answered")
INACTIVE = "Inactive"


@dataclass(frozen=True, slots=True)
class Led:
    """A leader epoch of a partition that had a leader, from Delta."""

    partition: int
    leader: int
    incarnation: int
    epoch: int
    fence: int
    since: datetime
    #: None: until now.
    until: datetime | None
    #: By which election; None: by none, a reassignment ended.
    election: str | None


@dataclass(frozen=True, slots=True)
class InSync:
    """In-sync replicas of a partition from when to when, from Delta."""

    partition: int
    isr: tuple[int, ...]
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A state of a broker from when to when, from Delta."""

    broker: int
    incarnation: int
    state: str
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Row:
    """A partition as the controller has it."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    fence: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """What was done to a store, and what it led then: partition -> leader epoch."""

    broker: int
    at_ms: int
    led: Mapping[int, int]
    #: When it went on, or had ended; by the clock of the witnesses, as all of these.
    until_ms: int = -1
    #: Key of the put that waited at it.
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersFacts:
    """Facts of the act `brokers`."""

    topic: str
    #: Of clients, stores and the controller's rows, in the order of time.
    history: Sequence[Happened]
    leaders: Sequence[Led]
    in_sync: Sequence[InSync]
    states: Sequence[BrokerState]
    #: Partition -> its row in the end: in `coord.metadata`, and by Delta's events.
    in_kafka: Mapping[int, Row]
    in_delta: Mapping[int, Row]
    killed: Hit
    suspended: Hit
    stopped: Hit

    @property
    def acts(self) -> list[Happened]:
        """What leaders answered."""
        return [each for each in self.history if each.what in ACTS]


def judge(facts: BrokersFacts) -> list[Check]:
    """All promises, in the order in which they are printed."""
    return [
        every_acknowledged_put_is_read(facts),
        no_read_is_stale(facts),
        one_leader_at_every_moment(facts),
        leaders_are_the_controllers(facts),
        the_dead_is_replaced(facts),
        the_suspended_says_nothing_more(facts),
        the_stopped_hands_over(facts),
        in_sync_as_promised(facts),
        kafka_and_delta_agree(facts),
    ]


def store_of(broker: int) -> str:
    """The name of a broker's process."""
    return f"store-{broker}"


def partition_of(happened: Happened) -> int:
    """The partition that a line is about."""
    return int(happened.partitions[0].rpartition("-")[2])


# ---- what clients saw ---------------------------------------------------------------------------


def every_acknowledged_put_is_read(facts: BrokersFacts) -> Check:
    """Each key of its own is found in the end, and a counter that is not older."""
    puts = [each for each in facts.history if each.what == "put"]
    unknown = [each for each in facts.history if each.what == "put_unknown"]
    last: dict[str, Happened] = {}
    for each in facts.history:
        if each.what == "got" and each.began_ms >= last.get(each.key, each).began_ms:
            last[each.key] = each
    offences = []
    for put in puts:
        found = last.get(put.key)
        if found is None or found.began_ms <= put.t_ms:
            offences.append(f"{_text(put)} was acknowledged, and not read afterwards")
        elif found.offset < put.offset:
            offences.append(
                f"{_text(put)} was acknowledged, and {_text(found)} was read in the end"
            )
    if not puts:
        offences.append("no put was acknowledged")
    late = {(each.key, each.value) for each in last.values()}
    done = sum((each.key, each.value) in late for each in unknown)
    numbers = (
        f"{len(puts):,} puts; the outcome of {len(unknown)} more was unknown to their clients, "
        f"{done} of them were found"
    )
    return Check("Every acknowledged put is read", numbers, tuple(offences))


def no_read_is_stale(facts: BrokersFacts) -> Check:
    """Reads find what was put, and nothing older than what any client knew when they began."""
    history = list(facts.history)
    offences = [*stores.nothing_stale(history), *stores.values_are_what_was_put(history)]
    reads = sum(each.what == "got" for each in history)
    if not reads:
        offences.append("nothing was read")
    return Check("No read is stale", f"{reads:,} reads", tuple(offences))


# ---- who led ------------------------------------------------------------------------------------


def one_leader_at_every_moment(facts: BrokersFacts) -> Check:
    """INV-71, INV-72: by what the stores wrote down, on one clock."""
    history = list(facts.history)
    offences = [
        *stores.one_leader(history),
        *stores.epochs_have_one_leader(history),
        *stores.acknowledged_by_a_leader(history),
    ]
    epochs = {(partition_of(each), each.generation) for each in facts.acts}
    if not epochs:
        offences.append("nobody acted as leader")
    numbers = (
        f"{len(facts.acts):,} answers in {len(epochs)} leader epochs of "
        f"{len({partition for partition, _ in epochs})} partitions"
    )
    return Check("One acting leader per partition at every moment", numbers, tuple(offences))


def leaders_are_the_controllers(facts: BrokersFacts) -> Check:
    """INV-72: who answered was elected in that epoch; epochs and fences rise from leader to
    leader."""
    elected = {(each.partition, each.epoch): each for each in facts.leaders}
    offences = []
    for act in facts.acts:
        by = elected.get((partition_of(act), act.generation))
        if by is None or (store_of(by.leader), by.fence) != (act.member, act.fence):
            offences.append(
                f"{act.member} answered for partition {partition_of(act)} in leader epoch "
                f"{act.generation} with fence {act.fence}, and Delta has {_leader_text(by)}"
            )
    for partition in sorted({each.partition for each in facts.leaders}):
        for before, after in pairwise(_leaders_of(facts, partition)):
            if after.fence <= before.fence or (before.until or after.since) > after.since:
                offences.append(
                    f"partition {partition}: {_leader_text(after)} came after "
                    f"{_leader_text(before)}"
                )
    if len(elected) != len(facts.leaders):
        offences.append("Delta has a leader epoch twice")
    numbers = f"{len(facts.leaders)} leaderships in Delta"
    return Check("Leaders are those that were elected", numbers, tuple(offences))


def the_dead_is_replaced(facts: BrokersFacts) -> Check:
    """What the killed store led is led by another, elected from the in-sync replicas."""
    hit = facts.killed
    offences, pauses = _taken_over(facts, hit, "offline")
    offences += [
        f"{act.member} answered at {act.t_ms} ms, after it was killed"
        for act in facts.acts
        if act.member == store_of(hit.broker) and hit.at_ms < act.t_ms < hit.until_ms
    ]
    what = f"What {store_of(hit.broker)} led when it was killed was led by others"
    return Check(what, _pause_text(pauses), tuple(offences))


def the_suspended_says_nothing_more(facts: BrokersFacts) -> Check:
    """Its last answer stands before its successor's first, and the put that waited at it has
    none."""
    hit = facts.suspended
    offences, pauses = _taken_over(facts, hit, "offline")
    for partition, epoch in sorted(hit.led.items()):
        late = [
            each
            for each in facts.acts
            if (partition_of(each), each.generation) == (partition, epoch)
            and each.t_ms > hit.at_ms
            and each.t_ms >= hit.until_ms
        ]
        offences += [f"it answered for partition {partition} at {each.t_ms} ms" for each in late]
        first = _first_after(facts, partition, epoch)
        if first is not None and first.t_ms > hit.until_ms:
            offences.append(f"it went on before it had a successor in partition {partition}")
    waited = [each for each in facts.history if each.key == hit.key and each.began_ms >= 0]
    answered = [each for each in waited if each.what == "put"]
    offences += [f"{_text(each)} waited at it, and was acknowledged" for each in answered]
    refused = [each for each in waited if (each.what, each.detail) == ("put_unknown", UNKNOWN)]
    if not refused:
        offences.append("no put waited in its log")
    offences += [
        f"the put that waited at it was answered at {each.t_ms} ms, before it went on"
        for each in refused
        if each.t_ms < hit.until_ms
    ]
    name = store_of(hit.broker)
    what = f"{name} went on after it was suspended beyond its session, and acknowledged nothing"
    numbers = f"{_pause_text(pauses)}; suspended for {(hit.until_ms - hit.at_ms) / 1000:.1f} s"
    return Check(what, numbers, tuple(offences))


def the_stopped_hands_over(facts: BrokersFacts) -> Check:
    """A controlled shutdown: it is asked partition by partition, and nobody waits for a session."""
    hit = facts.stopped
    offences, pauses = _taken_over(facts, hit, "shutdown")
    if hit.until_ms < 0:
        offences.append("it did not end by itself")
    what = f"{store_of(hit.broker)} was shut down in order: others led first"
    return Check(what, _pause_text(pauses), tuple(offences))


def _taken_over(facts: BrokersFacts, hit: Hit, election: str) -> tuple[list[str], list[float]]:
    """What is wrong with the successors; for how long nobody answered, seconds."""
    offences: list[str] = []
    pauses: list[float] = []
    if not hit.led:
        offences.append(f"{store_of(hit.broker)} led nothing")
    for partition, epoch in sorted(hit.led.items()):
        later = [each for each in _leaders_of(facts, partition) if each.epoch > epoch]
        if not later or later[0].leader == hit.broker or later[0].election != election:
            found = _leader_text(later[0]) if later else "nobody"
            offences.append(f"partition {partition}: after it came {found}, not by {election}")
        last = max(
            (
                each.t_ms
                for each in facts.acts
                if (partition_of(each), each.generation) == (partition, epoch)
            ),
            default=hit.at_ms,
        )
        first = _first_after(facts, partition, epoch)
        if first is None:
            offences.append(f"partition {partition}: nobody answered after it")
        else:
            pauses.append((first.t_ms - last) / 1000)
    return offences, pauses


def _first_after(facts: BrokersFacts, partition: int, epoch: int) -> Happened | None:
    """The first answer of a later leader epoch."""
    later = (
        each for each in facts.acts if partition_of(each) == partition and each.generation > epoch
    )
    return min(later, key=lambda each: each.t_ms, default=None)


# ---- what the controller did --------------------------------------------------------------------


def in_sync_as_promised(facts: BrokersFacts) -> Check:
    """INV-72 to INV-75: leaders are in sync, epochs rise by one, who enters is Active, and who is
    Inactive is in sync nowhere but as the last one, and leads nothing."""
    offences = list(stores.rows_are_sound(list(facts.history)))
    by_partition: dict[int, list[InSync]] = {}
    for each in facts.in_sync:
        by_partition.setdefault(each.partition, []).append(each)
    for partition, some in sorted(by_partition.items()):
        before: set[int] = set()
        for each in sorted(some, key=lambda one: one.since):
            for broker in sorted({*each.isr} - before):
                if not any(s.state == "Active" and _at(s, each.since) for s in _of(facts, broker)):
                    offences.append(f"{broker} entered the ISR of {partition} and was not Active")
            before = set(each.isr)
            if len(each.isr) > 1:
                offences += _inactive(facts, each.isr, each.since, each.until, partition)
    for led in facts.leaders:
        offences += _inactive(facts, (led.leader,), led.since, led.until, led.partition)
    rows = sum(each.what == "row" for each in facts.history)
    if not rows or not facts.in_sync:
        offences.append("Delta has no changes")
    numbers = f"{rows} changes of {len(by_partition)} partitions"
    return Check("In-sync replicas and epochs are as INV-72 to 75 say", numbers, tuple(offences))


def kafka_and_delta_agree(facts: BrokersFacts) -> Check:
    """The rows of `coord.metadata` are what Delta's last changes left."""
    offences = [
        f"partition {partition}: {facts.in_kafka.get(partition)} in Kafka, "
        f"{facts.in_delta.get(partition)} in Delta"
        for partition in sorted(facts.in_kafka.keys() | facts.in_delta.keys())
        if facts.in_kafka.get(partition) != facts.in_delta.get(partition)
    ]
    if not facts.in_kafka:
        offences.append("Kafka has no partition")
    numbers = f"{len(facts.in_kafka)} partitions"
    return Check("Kafka and Delta have the same partitions in the end", numbers, tuple(offences))


def _inactive(
    facts: BrokersFacts,
    brokers: tuple[int, ...],
    since: datetime,
    until: datetime | None,
    partition: int,
) -> Iterator[str]:
    """Those of these that were Inactive meanwhile."""
    for broker in brokers:
        for each in _of(facts, broker):
            begin = max(since, each.since)
            ends = [end for end in (until, each.until) if end is not None]
            if each.state == INACTIVE and (not ends or begin < min(ends)):
                yield f"broker {broker} was Inactive, and led or was in sync in {partition}"


def _of(facts: BrokersFacts, broker: int) -> list[BrokerState]:
    return [each for each in facts.states if each.broker == broker]


def _at(state: BrokerState, when: datetime) -> bool:
    return state.since <= when and (state.until is None or when <= state.until)


def _leaders_of(facts: BrokersFacts, partition: int) -> list[Led]:
    found = [each for each in facts.leaders if each.partition == partition]
    return sorted(found, key=lambda each: each.epoch)


def _leader_text(led: Led | None) -> str:
    if led is None:
        return "no leader"
    return f"{store_of(led.leader)} in leader epoch {led.epoch} with fence {led.fence}"


def _pause_text(pauses: Sequence[float]) -> str:
    if not pauses:
        return "no partition"
    return f"{len(pauses)} partitions, without an answer for {max(pauses):.1f} s at most"


def _text(each: Happened) -> str:
    return f"{each.value!r} of {each.key} at position {each.offset}"

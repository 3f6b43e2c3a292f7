"""Measure the engine on this machine. JSON lines on stdout, talk on stderr.

Without a cluster or a stack named, `settle`, `load` and `hostile` start a stack of their own and
delete it; `rebuild`, `batch` and `core` take nothing else.
"""

from importlib import import_module
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from coordlib.cli.numbers import Count, Millis, Partitions, Rate, Seconds, whole
from coordlib.cli.where import HERE, Where
from coordlib.errors import SetupError
from tests.tools.bench.batch_variants import STATE_MB_MAX, TOGETHER, Lever

Peer = Literal["kafka", "none"]
Protocol = Literal["range", "cooperative-sticky", "assigned"]
StateMb = Annotated[int, Parameter(converter=whole, validator=Number(gte=0, lte=STATE_MB_MAX))]
Tally = Annotated[int, Parameter(converter=whole, validator=Number(gte=0, lte=10_000_000))]
#: Marshal's clients read up to five million at their start: 100,000 of each of 50 partitions.
Messages = Annotated[int, Parameter(converter=whole, validator=Number(gte=1, lte=10_000_000))]
#: What a coordination topic's name may say.
Interval = Annotated[int, Parameter(converter=whole, validator=Number(gte=6, lte=3_600))]
#: Half of Marshal's heartbeat interval, the mean time between two signs of a claim.
HEARD_EVERY_S: Final = 30


def settle(  # a command line's options
    *,
    members: Count = 20,
    partitions: Partitions = 40,
    repeats: Count = 20,
    block: Count = 5,
    peer: Peer = "kafka",
    protocol: Protocol = "range",
    peer_heartbeat_ms: Millis | None = None,
    light: bool | None = None,
    where: Where = HERE,
) -> int:
    """Time from a member's join or leave until everybody has settled, beside Kafka's own groups.

    Parameters
    ----------
    members
        Running members; one more joins and leaves.
    partitions
        Of the topic that they share.
    repeats
        Joins and leaves on each side.
    block
        Repeats of one side before the other side has its turn.
    peer
        kafka: the broker's own coordinator does the same work in the same run.
    protocol
        How the group assigns, on both sides; assigned: the coordinator divides (KIP-848's groups).
    peer_heartbeat_ms
        Heartbeat interval of the peer's members; without it the client's default, 3 s.
    light
        Our members share one transport and one polling thread and have no data consumer; without
        it, or --no-light: from 64 members on. Only with --protocol assigned and --peer none.
    """
    return _run(
        "settle",
        where=where,
        members=members,
        partitions=partitions,
        repeats=repeats,
        block=block,
        peers=("ours",) if peer == "none" else ("ours", peer),
        protocol=protocol,
        peer_heartbeat_ms=peer_heartbeat_ms,
        light=light,
    )


def load(
    *,
    groups: Count = 1000,
    members: Count = 10,
    heartbeat_ms: Millis = 3000,
    seconds: Count = 60,
    probes_per_second: Rate = 4.0,
    sweep: bool = False,
    ids: Tally = 0,
    pendings: Tally = 0,
    where: Where = HERE,
) -> int:
    """Time to an answer while thousands of heartbeats a second arrive.

    Parameters
    ----------
    groups
        Groups of the load.
    members
        Members of each.
    heartbeat_ms
        Heartbeat interval of every member.
    seconds
        How long to measure; with --sweep, each step.
    probes_per_second
        Single members that join and leave meanwhile; their answers are timed.
    sweep
        Raise the rate until the job falls behind, and tell the highest that it sustained.
    ids
        Transactional ids: measure before they begin, and once more beside them.
    pendings
        So many of them leave a transaction open that holds offsets.
    """
    return _run(
        "load",
        where=where,
        groups=groups,
        members=members,
        heartbeat_ms=heartbeat_ms,
        seconds=seconds,
        probes_per_second=probes_per_second,
        is_sweep=sweep,
        ids=ids,
        pendings=pendings,
    )


def core(
    *,
    groups: Count = 500,
    members: Count = 10,
    batch: tuple[Count, ...] = (2_000, 20_000, 60_000),
    rebalance: Count = 100,
    transactions: Count = 1_000,
    repeats: Count = 9,
    against: str | None = None,
    turns: Count = 4,
) -> int:
    """Requests per second that the core alone judges: no Kafka, no Spark, one core.

    Parameters
    ----------
    groups
        Groups in the shard.
    members
        Members of each.
    batch
        Heartbeats judged at once; given several times, each is measured.
    rebalance
        Members of the group that is rebalanced.
    transactions
        Groups, or transactional ids, each with one transaction in a batch.
    repeats
        Measurements of each; the median is told, and the best.
    against
        The folder of another checkout: heartbeats of its code and of this, by turns, and no more.
    turns
        Of each side, in processes of their own.
    """
    return _run(
        "core",
        groups=groups,
        members=members,
        batches=batch,
        rebalance=rebalance,
        transactions=transactions,
        repeats=repeats,
        against=against,
        turns=turns,
    )


def rebuild(
    *,
    groups: Count = 10_000,
    members: Count = 2,
    partitions: Partitions = 10,
    ids: Tally = 0,
    pendings: Tally = 0,
) -> int:
    """Time from a start with --rebuild until a join is answered, on a stack of its own.

    Parameters
    ----------
    groups
        Groups in the compacted topics.
    members
        Members of each, with their assignments.
    partitions
        Committed offsets of each group.
    ids
        Transactional ids.
    pendings
        So many of them have a transaction open that holds offsets of a group.
    """
    size = {"groups": groups, "members": members, "partitions": partitions}
    return _run("rebuild", **size, ids=ids, pendings=pendings)


def batch(
    *,
    seconds: Seconds = 20.0,
    warm_seconds: Seconds = 10.0,
    turns: Count = 2,
    groups: Count = 50,
    members: Count = 2,
    heartbeats: Rate = 100.0,
    probes_per_second: Rate = 4.0,
    state_mb: StateMb = 0,
    levers: tuple[Lever, ...] = TOGETHER,
    variants: tuple[str, ...] = (),
) -> int:
    """Where a micro-batch's time goes, by phase, and what each lever of it gives, in one JVM.

    Parameters
    ----------
    seconds
        How long each variant is measured in each turn.
    warm_seconds
        Load before that, which is not counted.
    turns
        Of all variants; every second turn goes backwards.
    groups
        Groups of the load.
    members
        Members of each.
    heartbeats
        Per second, of all members together.
    probes_per_second
        Single members that join and leave meanwhile; their answers are timed.
    state_mb
        Megabytes (of 10^6 bytes) of committed offsets in the state, before it is packed.
    levers
        Levers to look at, given several times.
    variants
        Given several times: off, on, a lever, or levers joined by +. Without it: off, each lever
        alone, on.
    """
    return _run(
        "batch",
        seconds=seconds,
        warm_s=warm_seconds,
        turns=turns,
        groups=groups,
        members=members,
        heartbeats=heartbeats,
        probes_per_second=probes_per_second,
        state_mb=state_mb,
        levers=levers,
        named=variants,
    )


def claims(
    *,
    repeats: Count = 20,
    kills: Count = 5,
    with_job: bool = False,
    fold: bool = False,
    held: bool = False,
    start: bool = False,
    catch_up: bool = False,
    joins: bool = False,
    load: bool = False,
    sweep: bool = False,
    simulated: bool = False,
    clients: Count = 10,
    seconds: Count | None = None,
    messages: Messages = 300_000,
    late: Messages = 400_000,
    claimed: Count = 10_000,
    rate: Rate | None = None,
    rates: tuple[Count, ...] | None = None,
    groups: Count = 1_000,
    interval: Interval = 60,
    batch: Count = 20_000,
) -> int:
    """How quickly consumers of claims claim, hand over and take over, on a broker of its own.

    Parameters
    ----------
    repeats
        Hand-overs that are timed, and ten times as many attempts; with --fold and --start
        measurements.
    kills
        Owners that are killed; each costs a quarter of a minute. With --simulated: worlds.
    with_job
        A job with the claims query runs beside the consumers.
    fold
        Instead, messages per second that the pure fold judges: no Kafka, no Spark, one core.
    held
        Instead, what holding --claimed partitions costs the clients, in memory and virtual time.
    start
        Instead, how soon a client is ready: from the log's start, late, and from a snapshot.
    catch_up
        Instead, how soon the claims query has judged a log of --messages from its start.
    joins
        Instead, how soon joins of classic groups are answered while the claims query works.
    load
        Instead, batches, processor time and bytes of the claims query at a steady --rate.
    sweep
        Instead, the highest of --rates that the claims query sustains.
    simulated
        Instead, how long a killed owner's partitions wait, in simulated worlds.
    clients
        With --held: how many consumers hold them.
    seconds
        With --held (120, of virtual time), --load (90), --joins (30) and --sweep (20, of each
        rate): how long.
    messages
        With --fold, --start, --catch-up and --joins: how many there are to judge.
    late
        With --start: how many a client that begins late has to read.
    claimed
        Claims in the coordination topic.
    rate
        With --load (a thirtieth of --claimed) and --joins (10,000): messages a second.
    rates
        With --sweep, given several times: messages a second.
    groups
        With --joins: classic groups that heartbeat meanwhile.
    interval
        With --simulated: the heartbeat interval, seconds.
    batch
        With --fold: messages of a batch of the engine.
    """
    if held:
        return _run("claims_held", claims=claimed, clients=clients, seconds=seconds or 120)
    if fold:
        mix = {"messages": messages, "claims": claimed, "batch": batch}
        return _run("claims_fold", **mix, repeats=repeats)
    if simulated:
        return _run("claims_simulated", kills=kills, interval_s=interval)
    if start:
        size = {"messages": _more_than(claimed, messages), "claims": claimed}
        return _run("claims_start", **size, late=late, repeats=repeats)
    if joins:
        size = {"groups": groups, "claims": claimed, "messages": messages}
        return _run("claims_joins", **size, rate=rate or 10_000.0, seconds=seconds or 30)
    if catch_up:
        size = {"messages": _more_than(claimed, messages), "claims": claimed}
        return _run("claims_work", what="catch_up", **size)
    if load:
        at = {"rate": rate or claimed / HEARD_EVERY_S, "seconds": seconds or 90}
        return _run("claims_work", what="load", claims=claimed, **at)
    if sweep:
        given = {"rates": rates} if rates else {}
        return _run("claims_work", what="sweep", claims=claimed, seconds=seconds or 20, **given)
    return _run("claims_clients", repeats=repeats, kills=kills, with_job=with_job)


def _more_than(claimed: int, messages: int) -> int:
    """Each claim is one message at least. Raises SetupError."""
    if messages <= claimed:
        what = f"--messages {messages} --claimed {claimed}"
        raise SetupError("There are more claims than messages.", what, "Say more --messages.")
    return messages


def history(
    *,
    days: Count = 4,
    groups: Count = 10_000,
    commits: Count = 547_945,
    folder: str | None = None,
    archived: bool = False,
    repeats: Count = 3,
) -> int:
    """How long questions to a long history take; neither Kafka nor Spark.

    Parameters
    ----------
    days
        Of the history; 365 have 200 million commits.
    groups
        That commit, in turn.
    commits
        Of a day.
    folder
        Keep the history there, or ask the one that is there; else it is deleted afterwards.
    archived
        As the archive leaves it, then maintained; without it as if it had been maintained daily.
    repeats
        How often each question is asked.
    """
    from tests.tools.bench.history_rows import Shape

    shape = Shape(days, groups, commits)
    return _run("history", shape=shape, folder=folder, is_archived=archived, repeats=repeats)


def _run(name: str, **options: Any) -> int:
    return int(import_module(f"tests.tools.bench.{name}").run(**options))

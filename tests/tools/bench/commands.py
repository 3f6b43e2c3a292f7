"""Measure the engine on this machine. JSON lines on stdout, talk on stderr.

Without a cluster or a stack named, `settle`, `load` and `hostile` start a stack of their own and
delete it; `rebuild`, `batch` and `core` take nothing else.
"""

from importlib import import_module
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from coordlib.cli.numbers import Count, Millis, Partitions, Rate, Seconds, whole
from coordlib.cli.where import HERE, Where
from coordlib.errors import SetupError
from tests.tools.bench.batch_variants import STATE_MB_MAX, TOGETHER, Lever

Peer = Literal["kafka", "none"]
Way = Literal["kafka", "coordinator", "delta"]
Protocol = Literal["range", "cooperative-sticky", "assigned"]
StateMb = Annotated[int, Parameter(converter=whole, validator=Number(gte=0, lte=STATE_MB_MAX))]
#: Marshal's clients read up to five million at their start: 100,000 of each of 50 partitions.
Messages = Annotated[int, Parameter(converter=whole, validator=Number(gte=1, lte=10_000_000))]


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
    )


def core(
    *,
    groups: Count = 500,
    members: Count = 10,
    batch: tuple[Count, ...] = (2_000, 20_000, 60_000),
    rebalance: Count = 100,
    transactions: Count = 1_000,
    repeats: Count = 9,
    state: tuple[Count, ...] = (),
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
    state
        Instead, what the state of so many groups costs a batch; several times, each is measured.
    """
    if state:
        return _run("core_state", groups=state, members=members, repeats=repeats)
    return _run(
        "core",
        groups=groups,
        members=members,
        batches=batch,
        rebalance=rebalance,
        transactions=transactions,
        repeats=repeats,
    )


def hostile(
    *,
    joins_per_second: Count = 10_000,
    seconds: Count = 20,
    probes_per_second: Rate = 4.0,
    where: Where = HERE,
) -> int:
    """Time to an answer for others while a client floods the job with joins of ever-new ids.

    Parameters
    ----------
    joins_per_second
        Of the hostile client: all into one group first, then each into a group of its own.
    seconds
        How long each of the five parts lasts: quiet, one group, quiet, ever-new groups, aftermath.
    probes_per_second
        Single members that join and leave groups of their own meanwhile; their answers are timed.
    """
    return _run(
        "hostile",
        where=where,
        joins_per_second=joins_per_second,
        seconds=seconds,
        probes_per_second=probes_per_second,
    )


def rebuild(*, groups: Count = 10_000, members: Count = 2, partitions: Partitions = 10) -> int:
    """Time from a start with --rebuild until a join is answered, on a stack of its own.

    Parameters
    ----------
    groups
        Groups in the compacted topics.
    members
        Members of each, with their assignments.
    partitions
        Committed offsets of each group.
    """
    return _run("rebuild", groups=groups, members=members, partitions=partitions)


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
    fold: bool = False,
    held: bool = False,
    clients: Count = 10,
    seconds: Count = 120,
    messages: Messages = 300_000,
    claimed: Count = 10_000,
    batch: Count = 20_000,
) -> int:
    """How quickly consumers of claims claim, hand over and take over, on a broker of its own.

    Parameters
    ----------
    repeats
        Hand-overs that are timed, and ten times as many attempts; with --fold measurements.
    kills
        Owners that are killed; each costs a quarter of a minute.
    fold
        Instead, messages per second that the pure fold judges: no Kafka, no Spark, one core.
    held
        Instead, what holding --claimed partitions costs the clients, in memory and virtual time.
    clients
        With --held: how many consumers hold them.
    seconds
        With --held: how long, of virtual time.
    messages
        With --fold: how many it judges.
    claimed
        With --fold and --held: claims in the coordination partition.
    batch
        With --fold: messages of a batch of the engine.
    """
    if held:
        return _run("claims_held", claims=claimed, clients=clients, seconds=seconds)
    if fold:
        mix = {"messages": messages, "claims": claimed, "batch": batch}
        return _run("claims_fold", **mix, repeats=repeats)
    return _run("claims_clients", repeats=repeats, kills=kills)


def transactions(
    *,
    way: Way = "kafka",
    producers: Count = 4,
    records: Count = 100,
    seconds: Seconds = 20.0,
    kills: Count = 1,
    peer: Peer = "none",
    where: Where = HERE,
) -> int:
    """From begin to committed with a group's offsets, and until a successor may read on.

    Parameters
    ----------
    way
        Who decides: the transaction of Kafka, the transaction coordinator, or a Delta table.
    producers
        At work at once, each with a group of its own.
    records
        Of each transaction, 100 bytes each.
    seconds
        How long they work.
    kills
        Producers that are killed between acceptance and commit: so many are followed by a process
        of the same id, and so many by nobody, which takes up to 16 s each.
    peer
        kafka: the same with the broker's own groups, in the same run.
    """
    if way != "kafka":
        raise SetupError("This way is not measured yet.", way, "Say --way kafka.")
    return _run(
        "transactions",
        where=where,
        way=way,
        producers=producers,
        records=records,
        seconds=seconds,
        kills=kills,
        peers=("ours",) if peer == "none" else ("ours", peer),
    )


def brokers(
    *,
    brokers: Count = 1_000,
    partitions: Count = 100_000,
    replicas: Count = 3,
    core: bool = False,
    repeats: Count = 5,
) -> int:
    """How quickly a large cluster finds new leaders, and what its rows cost everybody else.

    Parameters
    ----------
    brokers
        Of the cluster.
    partitions
        Of all its topics.
    replicas
        Of each partition.
    core
        The pure core alone: no Kafka, no Spark, one core.
    repeats
        Measurements of each; the median is told, and the best.
    """
    if not core:
        raise SetupError("A stack with brokers is not measured yet.", "bench", "Say --core.")
    size = {"brokers": brokers, "partitions": partitions, "replicas": replicas}
    return _run("brokers_core", **size, repeats=repeats)


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

"""Measure the engine on this machine. JSON lines on stdout, talk on stderr.

Without a cluster or a stack named, `settle`, `load` and `hostile` start a stack of their own and
delete it; `rebuild`, `batch` and `core` take nothing else.
"""

from importlib import import_module
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from coordlib.cli.kit.options import Count, Millis, Partitions, Rate, Seconds, whole
from coordlib.cli.kit.where import HERE, Where
from tests.tools.bench.batch_variants import STATE_MB_MAX, TOGETHER, Lever

Peer = Literal["kafka", "none"]
Protocol = Literal["range", "cooperative-sticky", "assigned"]
StateMb = Annotated[int, Parameter(converter=whole, validator=Number(gte=0, lte=STATE_MB_MAX))]
Tally = Annotated[int, Parameter(converter=whole, validator=Number(gte=0, lte=10_000_000))]


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
    return run(
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
    commit_ms: Tally = 0,
    clients: Tally = 0,
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
    commit_ms
        Every member commits a partition as often; 0: nobody commits.
    clients
        Client processes that read answers meanwhile, light: first with the end of their answers
        asked for all the time, as before, then as now. Told are the bytes that brokers send to
        them, requests and processor of each.
    """
    return run(
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
        commit_ms=commit_ms,
        clients=clients,
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
    against
        The folder of another checkout: heartbeats of its code and of this, by turns, and no more.
    turns
        Of each side, in processes of their own.
    state
        Instead, what the state of so many groups costs a batch; several times, each is measured.
    """
    if state:
        return run("core_state", groups=state, members=members, repeats=repeats)
    return run(
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
    return run("rebuild", **size, ids=ids, pendings=pendings)


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
    return run(
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


def history(
    *,
    days: Count = 4,
    groups: Count = 10_000,
    commits: Count = 547_945,
    beside: Count | None = None,
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
    beside
        Also make a history of so many days, and ask the two by turns.
    folder
        Keep histories there, and ask those that are there; else they are deleted afterwards. A run
        that was ended goes on where it stood.
    archived
        As the archive leaves it, then maintained; without it as if it had been maintained daily.
    repeats
        How often each question is asked.
    """
    from tests.tools.bench.history_rows import Shape

    shape = Shape(days, groups, commits)
    options = {"folder": folder, "is_archived": archived, "repeats": repeats}
    return run("history", shape=shape, beside=beside, **options)


def run(name: str, **options: Any) -> int:
    """Run a bench, which is imported only now: each brings what it measures."""
    return int(import_module(f"tests.tools.bench.{name}").run(**options))

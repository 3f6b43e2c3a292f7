"""Measure the engine on this machine. JSON lines on stdout, talk on stderr.

Without a cluster or a stack named, `settle`, `load` and `hostile` start a stack of their own and
delete it; `rebuild` and `core` take nothing else.
"""

from importlib import import_module
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from coordlib.cli.kit.options import Count, Millis, Partitions, Rate, whole
from coordlib.cli.kit.where import HERE, Where

Peer = Literal["kafka", "none"]
Protocol = Literal["range", "cooperative-sticky", "assigned"]
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
    commit_ms: Tally = 0,
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
    commit_ms
        Every member commits a partition as often; 0: nobody commits.
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
        commit_ms=commit_ms,
    )


def core(
    *,
    groups: Count = 500,
    members: Count = 10,
    batch: tuple[Count, ...] = (2_000, 20_000, 60_000),
    rebalance: Count = 100,
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
    repeats
        Measurements of each; the median is told, and the best.
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
        repeats=repeats,
    )


def rebuild(
    *,
    groups: Count = 10_000,
    members: Count = 2,
    partitions: Partitions = 10,
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
    """
    return run("rebuild", groups=groups, members=members, partitions=partitions)


def spark(*, records: Tally = 3_000_000, repeats: Count = 3, where: Where = HERE) -> int:
    """Spark queries as members beside Spark's own Kafka source: records a second, and delay.

    Parameters
    ----------
    records
        Of 100 bytes, in 8 partitions; read in batches of 500,000.
    repeats
        Of each side, by turns, after one to warm up.
    """
    return run("spark", where=where, records=records, repeats=repeats)


def history(
    *,
    days: Count = 4,
    groups: Count = 10_000,
    commits: Count = 547_945,
    beside: Count | None = None,
    folder: str | None = None,
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
    repeats
        How often each question is asked.
    """
    from tests.tools.bench.history_rows import Shape

    shape = Shape(days, groups, commits)
    return run("history", shape=shape, beside=beside, folder=folder, repeats=repeats)


def run(name: str, **options: Any) -> int:
    """Run a bench, which is imported only now: each brings what it measures."""
    return int(import_module(f"tests.tools.bench.{name}").run(**options))

"""Commands that measure what is no consumer group: clusters, transactions, claims; hostile clients.

As in `commands`, what starts a stack of its own deletes it.
"""

from typing import Annotated, Final, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from coordlib.cli.kit.options import Count, Rate, Seconds, whole
from coordlib.cli.kit.where import HERE, Where
from coordlib.errors import SetupError
from tests.tools.bench.commands import Peer, run

Way = Literal["kafka", "coordinator"]
Kind = Literal["joins", "ids", "pendings", "messages", "registrations"]
#: Marshal's clients read up to five million at their start: 100,000 of each of 50 partitions.
Messages = Annotated[int, Parameter(converter=whole, validator=Number(gte=1, lte=10_000_000))]
#: (brokers, partitions) without a word: of the pure core, and of a stack.
CORE_SIZE: Final = (1_000, 100_000)
STACK_SIZE: Final = (20, 2_000)


def hostile(
    *,
    kind: Kind = "joins",
    per_second: Count = 10_000,
    seconds: Count = 20,
    probes_per_second: Rate = 4.0,
    where: Where = HERE,
) -> int:
    """Time to an answer for others while a client floods the job, quiet, during and after.

    Parameters
    ----------
    kind
        joins: of ever-new members, into one group and into ever-new groups. ids: ever-new
        transactional ids. pendings: one producer's 10,000 offset commits in a transaction that it
        leaves open, into one group and into many. messages: FromShard of a stranger, with any
        number. registrations: brokers, of one id and of ever-new ids.
    per_second
        Of the hostile client.
    seconds
        How long each part lasts: quiet, a flood, quiet, the next flood if there is one, aftermath.
    probes_per_second
        Single members that join and leave groups of their own meanwhile; their answers are timed.
    """
    return run(
        "hostile",
        where=where,
        kind=kind,
        per_second=per_second,
        seconds=seconds,
        probes_per_second=probes_per_second,
    )


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
        Who decides: the transaction of Kafka, or the transaction coordinator.
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
    return run(
        "transactions",
        where=where,
        way=way,
        producers=producers,
        records=records,
        seconds=seconds,
        kills=kills,
        peers=("ours",) if peer == "none" else ("ours", peer),
    )


def consumers(
    *,
    members: Count = 1_000,
    per_second: Count = 10,
    seconds: Seconds = 30.0,
    where: Where = HERE,
) -> int:
    """What many `AsyncConsumer`s in one event loop cost, and how soon records reach them.

    Parameters
    ----------
    members
        Consumers of one group, each with one partition.
    per_second
        Records of each partition.
    seconds
        How long they are measured.
    """
    return run("consumers", where=where, members=members, per_second=per_second, seconds=seconds)


def brokers(
    *,
    brokers: Count | None = None,
    partitions: Count | None = None,
    replicas: Count = 3,
    core: bool = False,
    repeats: Count = 3,
    seconds: Seconds = 20.0,
    where: Where = HERE,
) -> int:
    """How quickly a cluster finds new leaders, and what its rows cost everybody else.

    Parameters
    ----------
    brokers
        Of the cluster: 20, with --core 1,000. They are light: one program has all of them.
    partitions
        Of all its topics: 2,000, with --core 100,000.
    replicas
        Of each partition.
    core
        The pure core alone: no Kafka, no Spark, one core.
    repeats
        Brokers that are killed, and as many that shut down in order; with --core measurements of
        each.
    seconds
        How long the idle cluster is measured.
    """
    usual = CORE_SIZE if core else STACK_SIZE
    size = {"brokers": brokers or usual[0], "partitions": partitions or usual[1]}
    if core:
        return run("brokers_core", **size, replicas=replicas, repeats=repeats)
    return run("brokers", where=where, **size, replicas=replicas, repeats=repeats, seconds=seconds)


def cells(
    *, groups: Count = 300, members: Count = 10, seconds: Count = 40, rounds: Count = 2
) -> int:
    """The same load on one job over two shards, and on two with one each, by turns.

    Parameters
    ----------
    groups
        Groups of the load.
    members
        Members of each, with a heartbeat every 3 s.
    seconds
        How long each turn is measured.
    rounds
        How often each way comes.
    """
    return run("cells", groups=groups, members=members, seconds=seconds, rounds=rounds)


def claims(*, repeats: Count = 20, kills: Count = 5) -> int:
    """How quickly consumers of claims claim, hand over and take over, on a broker of its own.

    Parameters
    ----------
    repeats
        Hand-overs that are timed, and ten times as many attempts.
    kills
        Owners that are killed; each costs a quarter of a minute.
    """
    return run("claims_clients", repeats=repeats, kills=kills)


def claims_start(
    *,
    messages: Messages = 300_000,
    late: Messages = 400_000,
    claimed: Count = 10_000,
    repeats: Count = 3,
) -> int:
    """How soon a client is ready: from the log's start, late, and from a snapshot; no job.

    Parameters
    ----------
    messages
        In the log that is read from its start.
    late
        In what a client that begins late has to read.
    claimed
        Claims in each log.
    repeats
        Starts of each kind.
    """
    size = {"messages": _more_than(claimed, messages), "claims": claimed}
    return run("claims_start", **size, late=late, repeats=repeats)


def claims_app() -> App:
    """The command, and those below it."""
    app = App(name="claims", help=(claims.__doc__ or "").splitlines()[0])
    app.default(claims)
    app.command(claims_start, name="start")
    return app


def _more_than(claimed: int, messages: int) -> int:
    """Each claim is one message at least. Raises SetupError."""
    if messages <= claimed:
        what = f"--messages {messages} --claimed {claimed}"
        raise SetupError("There are more claims than messages.", what, "Say more --messages.")
    return messages

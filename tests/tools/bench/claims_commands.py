"""`python -m tests.tools.bench claims [start|catch-up|joins|load|sweep|simulated]`."""

from typing import Annotated, Any, Final

from cyclopts import App, Parameter
from cyclopts.validators import Number

from coordlib.cli.kit.options import Count, Rate, whole
from coordlib.errors import SetupError
from tests.tools.bench.commands import run

#: Marshal's clients read up to five million at their start: 100,000 of each of 50 partitions.
Messages = Annotated[int, Parameter(converter=whole, validator=Number(gte=1, lte=10_000_000))]
#: What a coordination topic's name may say.
Interval = Annotated[int, Parameter(converter=whole, validator=Number(gte=6, lte=3_600))]
#: Half of Marshal's heartbeat interval, the mean time between two signs of a claim.
HEARD_EVERY_S: Final = 30


def claims(
    *,
    repeats: Count = 20,
    kills: Count = 5,
    with_job: bool = False,
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
    with_job
        A job with the claims query runs beside the consumers.
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
        return _run("held", claims=claimed, clients=clients, seconds=seconds)
    if fold:
        mix = {"messages": messages, "claims": claimed, "batch": batch}
        return _run("fold", **mix, repeats=repeats)
    return _run("clients", repeats=repeats, kills=kills, with_job=with_job)


def start(
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
    return _run("start", **size, late=late, repeats=repeats)


def catch_up(*, messages: Messages = 500_000, claimed: Count = 10_000) -> int:
    """How soon the claims query, with an empty checkpoint, has judged a log from its start.

    Parameters
    ----------
    messages
        In the log.
    claimed
        Claims in it.
    """
    return _run("work", what="catch_up", messages=_more_than(claimed, messages), claims=claimed)


def joins(
    *,
    groups: Count = 1_000,
    claimed: Count = 10_000,
    messages: Messages = 500_000,
    rate: Rate = 10_000.0,
    seconds: Count = 30,
) -> int:
    """How soon joins of classic groups are answered while the claims query of the job works.

    Parameters
    ----------
    groups
        Classic groups that heartbeat meanwhile.
    claimed
        Claims in the coordination topic.
    messages
        Of the backlog that the query works off.
    rate
        Messages a second, in the part before that.
    seconds
        How long the parts without an end of their own last.
    """
    size = {"groups": groups, "claims": claimed, "messages": messages}
    return _run("joins", **size, rate=rate, seconds=seconds)


def load(*, claimed: Count = 10_000, rate: Rate | None = None, seconds: Count = 90) -> int:
    """Batches, processor time and bytes of the claims query at a steady rate.

    Parameters
    ----------
    claimed
        Claims in the coordination topic.
    rate
        Messages a second; without it a sign of each claim every 30 s, as Marshal's clients do.
    seconds
        How long to measure.
    """
    rate = rate or claimed / HEARD_EVERY_S
    return _run("work", what="load", claims=claimed, rate=rate, seconds=seconds)


def sweep(
    *, claimed: Count = 10_000, rates: tuple[Count, ...] | None = None, seconds: Count = 20
) -> int:
    """The highest rate of messages that the claims query sustains.

    Parameters
    ----------
    claimed
        Claims in the coordination topic.
    rates
        Given several times: messages a second that are tried one after the other.
    seconds
        How long each is tried.
    """
    given: dict[str, Any] = {"rates": rates} if rates else {}
    return _run("work", what="sweep", claims=claimed, seconds=seconds, **given)


def simulated(*, kills: Count = 200, interval: Interval = 60) -> int:
    """How long a killed owner's partitions wait, in simulated worlds.

    Parameters
    ----------
    kills
        Worlds, with a death each.
    interval
        The heartbeat interval, seconds.
    """
    return _run("simulated", kills=kills, interval_s=interval)


def build() -> App:
    """The command, and those below it."""
    app = App(name="claims", help=(claims.__doc__ or "").splitlines()[0])
    app.default(claims)
    for each in (start, catch_up, joins, load, sweep, simulated):
        app.command(each, name=each.__name__.replace("_", "-"))
    return app


def _more_than(claimed: int, messages: int) -> int:
    """Each claim is one message at least. Raises SetupError."""
    if messages <= claimed:
        what = f"--messages {messages} --claimed {claimed}"
        raise SetupError("There are more claims than messages.", what, "Say more --messages.")
    return messages


def _run(name: str, **options: Any) -> int:
    return run(f"claims_{name}", **options)

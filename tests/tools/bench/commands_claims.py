"""Commands that measure claims: their consumers, the pure fold, and the job's query.

As in `commands`, what starts a broker or a stack of its own deletes it.
"""

from typing import Annotated, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from coordlib.cli.numbers import Count, Rate, whole
from coordlib.errors import SetupError
from tests.tools.bench.commands import _run

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
    start: bool = False,
    simulated: bool = False,
    clients: Count = 10,
    seconds: Count = 120,
    messages: Messages = 300_000,
    late: Messages = 400_000,
    claimed: Count = 10_000,
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
    simulated
        Instead, how long a killed owner's partitions wait, in simulated worlds.
    clients
        With --held: how many consumers hold them.
    seconds
        With --held: of virtual time.
    messages
        With --fold and --start: how many there are to judge.
    late
        With --start: how many a client that begins late has to read.
    claimed
        Claims in the coordination topic.
    interval
        With --simulated: the heartbeat interval, seconds.
    batch
        With --fold: messages of a batch of the engine.
    """
    if held:
        return _run("claims_held", claims=claimed, clients=clients, seconds=seconds)
    if fold:
        mix = {"messages": messages, "claims": claimed, "batch": batch}
        return _run("claims_fold", **mix, repeats=repeats)
    if simulated:
        return _run("claims_simulated", kills=kills, interval_s=interval)
    if start:
        size = {"messages": _more_than(claimed, messages), "claims": claimed}
        return _run("claims_start", **size, late=late, repeats=repeats)
    return _run("claims_clients", repeats=repeats, kills=kills, with_job=with_job)


def claims_query(
    *,
    catch_up: bool = False,
    joins: bool = False,
    sweep: bool = False,
    seconds: Count | None = None,
    messages: Messages = 300_000,
    claimed: Count = 10_000,
    rate: Rate | None = None,
    rates: tuple[Count, ...] | None = None,
    groups: Count = 1_000,
) -> int:
    """Batches, processor time and bytes of the job's claims query at a steady rate, on a stack.

    Parameters
    ----------
    catch_up
        Instead, how soon the query has judged a log of --messages from its start.
    joins
        Instead, how soon joins of classic groups are answered while the query works.
    sweep
        Instead, the highest of --rates that the query sustains.
    seconds
        How long (90); with --joins 30, with --sweep 20 of each rate.
    messages
        With --catch-up and --joins: how many there are to judge.
    claimed
        Claims in the coordination topic.
    rate
        Messages a second: a thirtieth of --claimed; with --joins 10,000.
    rates
        With --sweep, given several times: messages a second.
    groups
        With --joins: classic groups that heartbeat meanwhile.
    """
    if joins:
        size = {"groups": groups, "claims": claimed, "messages": messages}
        return _run("claims_joins", **size, rate=rate or 10_000.0, seconds=seconds or 30)
    if catch_up:
        size = {"messages": _more_than(claimed, messages), "claims": claimed}
        return _run("claims_work", what="catch_up", **size)
    if sweep:
        given = {"rates": rates} if rates else {}
        return _run("claims_work", what="sweep", claims=claimed, seconds=seconds or 20, **given)
    at = {"rate": rate or claimed / HEARD_EVERY_S, "seconds": seconds or 90}
    return _run("claims_work", what="load", claims=claimed, **at)


def _more_than(claimed: int, messages: int) -> int:
    """Each claim is one message at least. Raises SetupError."""
    if messages <= claimed:
        what = f"--messages {messages} --claimed {claimed}"
        raise SetupError("There are more claims than messages.", what, "Say more --messages.")
    return messages

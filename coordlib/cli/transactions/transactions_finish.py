"""`coord transactions finish`: write the markers that a transaction of the coordinator lacks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from coordlib.cli.kit.cluster_asking import asking
from coordlib.cli.kit.confirm import confirm
from coordlib.cli.kit.names import TransactionalId
from coordlib.cli.kit.output import as_objects, counted, now, print_json, print_table, say, visible
from coordlib.cli.kit.where import HERE, Where
from coordlib.cli.transactions.transaction_rows import PARTITION_COLUMNS
from coordlib.errors import ErrorCode, GroupError, SetupError

if TYPE_CHECKING:
    from coordlib.cli.transactions.transaction_view import SeenId
    from coordlib.core.wire.producers import EndedTransaction, TopicsOfCluster

#: Of partitions whose marker was not written.
COLUMNS: Final = PARTITION_COLUMNS[:3]
SHOWN_MAX: Final = 5  # topics that are named before the question


def finish(
    transactional_id: TransactionalId,
    /,
    *,
    data_file: Annotated[list[str] | None, Parameter(negative="")] = None,
    yes: bool = False,
    where: Where = HERE,
) -> int:
    """Write the missing markers of a transaction that is decided, in place of its producer.

    Readers of committed records go on then, and the id is free for its next transaction. To write
    a marker twice does no harm. Exit code 1: some partitions are in clusters that were not named,
    or did not take it.

    Parameters
    ----------
    transactional_id
        The transactional id.
    data_file
        File with librdkafka's options of another cluster that the transaction wrote to; may be
        repeated.
    yes
        Write without asking.
    """
    from coordlib.cli.transactions.transaction_view import find_id
    from coordlib.client.transactions.data_cluster import write_markers
    from coordlib.client.transactions.unmarked import Unmarked
    from coordlib.core.transactions.transaction import as_rows

    clusters = [where.client(), *map(_options, data_file or ())]
    topics = where.reach()
    seen = find_id(where.client(), topics, where.topic_prefix(), transactional_id)
    ended = _require_unwritten(seen)
    assert seen.value is not None, "it lacks markers"
    rows = as_rows(seen.value.unwritten)
    say(_what_is_written(seen.name, ended.result, rows))
    confirm(f"Writing the markers of its {ended.result}", f"transactional id {seen.name}", yes)
    with asking(where) as admin:
        unmarked = Unmarked.told(admin.incarnation, seen.name, ended, rows)
        written = write_markers(clusters, unmarked)
        if written:
            admin.markers_written(seen.name, ended.producer_id, ended.epoch, written)
    return _told(where, seen.name, rows, written)


def _options(file: str) -> dict[str, str]:
    """The options of a cluster. Raises SetupError: it names no brokers, or cannot be read."""
    from coordlib.kafka.options import SERVERS, KafkaOptions, read_options

    servers = read_options(file).get(SERVERS)
    if not servers:
        raise SetupError(
            "No cluster is named: the file of options has no bootstrap.servers.",
            f"--data-file {file}",
            "Write bootstrap.servers=HOST:PORT into the file.",
        )
    return KafkaOptions.parse(file=file).librdkafka() | {SERVERS: servers}


def _require_unwritten(seen: "SeenId") -> "EndedTransaction":
    """How it ended. Raises GroupError: it lacks no marker, as far as the topics tell."""
    value = seen.value
    if (
        value is not None
        and value.unwritten
        and value.ended is not None
        and not seen.is_quarantined
    ):
        return value.ended
    mend = f"It lacks no marker: coord transactions describe {seen.name}"
    if seen.is_quarantined:
        mend = f"Release it first: coord transactions release {seen.name}"
    raise GroupError(ErrorCode.INVALID_TXN_STATE, f"transactional id {seen.name}", mend)


def _what_is_written(name: str, result: str, rows: "Sequence[TopicsOfCluster]") -> str:
    """Which partitions, by cluster and topic."""
    places = [f"{row.topic} of cluster {row.cluster}" for row in rows[:SHOWN_MAX]]
    more = f" and {len(rows) - SHOWN_MAX} more topics" if len(rows) > SHOWN_MAX else ""
    count = counted(sum(len(row.partitions) for row in rows), "partition")
    return visible(f"{name}: {result} into {count}: {', '.join(places)}{more}")


def _told(
    where: Where,
    name: str,
    rows: "Sequence[TopicsOfCluster]",
    written: "Sequence[TopicsOfCluster]",
) -> int:
    """Name the partitions that were left out; the exit code."""
    from coordlib.core.wire.producers import places_of

    done = set(places_of(written))
    left = [place for place in places_of(rows) if place not in done]
    if where.format == "json":
        fields = {"transactional-id": name, "written": len(done)}
        print_json("transactions finish", now(), **fields, left=as_objects(COLUMNS, left))
    elif left:
        print_table(COLUMNS, left)
    say(f"{counted(len(done), 'partition')} of {visible(name)} marked, {len(left)} left")
    if left:
        say("Name each cluster that is left: --data-file FILE, with its bootstrap.servers.")
    return 1 if left else 0

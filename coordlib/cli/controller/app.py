"""`coord cluster`: how clusters of brokers stand, read from Kafka alone, and their history."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from coordlib.cli.controller import admin
from coordlib.cli.kit.listing import (
    Column,
    Listing,
    as_of_fields,
    as_of_text,
    of_rows,
    say_unreadable,
    state_text,
)
from coordlib.cli.kit.options import (
    Asking,
    BrokerId,
    ClusterName,
    Count,
    PartitionNumber,
    Since,
    TopicName,
    newest_of,
)
from coordlib.cli.kit.output import (
    counted,
    duration_text,
    millis_text,
    now,
    print_head,
    print_json,
    print_line,
    say,
    time_text,
)
from coordlib.cli.kit.where import HERE, TABLES_HERE, Where, WhereTables
from coordlib.errors import ErrorCode, GroupError, SetupError

if TYPE_CHECKING:
    from coordlib.cli.controller.view import Awaited, ClusterView, SeenCluster
    from coordlib.core.controller.states import Broker, Partition
    from coordlib.core.engine.tables import Place
    from coordlib.core.wire.controller import Endpoint

CLUSTERS: Final[Listing["SeenCluster"]] = Listing(
    Column("CLUSTER", lambda seen: seen.cluster),
    Column("STATE", lambda seen: state_of(seen)),
    Column("BROKERS", lambda seen: seen.value and len(seen.value.brokers)),
    Column("ACTIVE", lambda seen: seen.value and len(seen.value.active)),
    Column("TOPICS", lambda seen: len(seen.topics)),
    Column("PARTITIONS", lambda seen: len(seen.partitions)),
    Column("LEADERLESS", lambda seen: seen.leaderless),
    Column("UNDER-REPLICATED", lambda seen: seen.under_replicated),
    Column("GENERATION", lambda seen: seen.value and seen.value.generation),
)
PARTITIONS: Final[Listing[tuple["Place", "Partition"]]] = Listing(
    Column("TOPIC", lambda at: at[0][0]),
    Column("PARTITION", lambda at: at[0][1]),
    Column("LEADER", lambda at: None if at[1].leader < 0 else at[1].leader),
    Column("LEADER-EPOCH", lambda at: at[1].leader_epoch),
    Column("PARTITION-EPOCH", lambda at: at[1].partition_epoch),
    Column("FENCE", lambda at: at[1].fence),
    Column("REPLICAS", lambda at: at[1].replicas, lambda some: _numbers(some)),
    Column("ISR", lambda at: at[1].isr, lambda some: _numbers(some)),
    Column("NOTE", lambda at: note_of(at[1]) or None),
    fields=lambda at: {
        "adding": at[1].adding,
        "removing": at[1].removing,
        "deleting": sorted(at[1].deleting),
    },
)
AWAITED: Final[Listing["Awaited"]] = Listing(
    Column("WAITS-FOR", lambda each: each.broker),
    Column("MEMBER-ID", lambda each: each.member),
    Column("CLIENT-ID", lambda each: each.client),
    Column("PARTITIONS", lambda each: _named(each.places), lambda named: _shortened(named)),
    Column("REASON", lambda each: each.reason),
)
LEADERS: Final = of_rows(
    "SINCE",
    "UNTIL",
    "TOPIC",
    "PARTITION",
    "LEADER",
    "INCARNATION",
    "LEADER-EPOCH",
    "FENCE",
    "ELECTION",
    "REASON",
)
STATES: Final = of_rows("SINCE", "UNTIL", "BROKER", "INCARNATION", "STATE", "REASON")
#: Partitions that are named for one broker; the others are counted.
NAMED_MAX: Final = 5


def state_of(seen: "SeenCluster") -> str | None:
    return state_text(seen.state, seen.is_quarantined, seen.unreadable)


def say_why_stable(seen: "SeenCluster") -> None:
    """A sentence where somebody waits, and the state does not say so."""
    if not seen.is_reconciling:
        say(
            f"{state_of(seen)}: no broker has to let go, to stop or to delete replicas; those "
            "above are to catch up, or to come back."
        )


def head_of(view: "ClusterView", as_of_time: datetime) -> dict[str, object]:
    """A cluster by itself: its line, its shard, and as of when that is so."""
    as_of = as_of_text(view.as_of, view.shard, as_of_time)
    return CLUSTERS.head(view.seen) | {"SHARD": view.shard, "AS-OF": as_of}


def described(view: "ClusterView") -> dict[str, object]:
    """The same as JSON has it, with whom somebody waits for."""
    return (
        envelope(view)
        | CLUSTERS.fields(view.seen)
        | {
            "shard": view.shard,
            "unreadable": view.seen.unreadable,
            "lost": view.seen.lost,
            "waits-for": AWAITED.objects(view.seen.waits_for),
        }
    )


def envelope(view: "ClusterView") -> dict[str, object]:
    """Of each object about one cluster: as of which request it is true."""
    return {"cluster": view.seen.cluster, **as_of_fields(view.as_of)}


def brokers_among(rows: "Mapping[Place, Partition]") -> "Listing[Broker]":
    """The brokers of a cluster. `rows`: all its partitions."""
    return Listing(
        Column("BROKER", lambda broker: broker.broker),
        Column("STATE", lambda broker: broker.state.value),
        Column("SINCE", lambda broker: millis_text(broker.since_ms)),
        Column("LEADS", lambda broker: sum(row.leader == broker.broker for row in rows.values())),
        Column(
            "REPLICAS", lambda broker: sum(broker.broker in row.replicas for row in rows.values())
        ),
        Column("CLIENT-ID", lambda broker: broker.client),
        Column("RACK", lambda broker: broker.rack),
        Column("ENDPOINTS", lambda broker: broker.endpoints, _endpoints_text),
        Column("INCARNATION", lambda broker: broker.incarnation),
        Column(
            "SESSION",
            lambda broker: None if broker.is_legacy else broker.session_timeout_ms,
            lambda session_ms: "legacy" if session_ms is None else duration_text(session_ms),
        ),
        fields=_broker_fields,
    )


def _endpoints_text(endpoints: "Iterable[Endpoint]") -> str:
    return ",".join(f"{each.name}://{each.host}:{each.port}" for each in endpoints)


def _broker_fields(broker: "Broker") -> dict[str, object]:
    """What JSON has of a broker beside its line, or in place of its texts."""
    return {
        "member-id": broker.member,
        "endpoints": [
            {"name": each.name, "host": each.host, "port": each.port} for each in broker.endpoints
        ],
        "storage": broker.storage or None,
        "release": None if broker.is_legacy else broker.release_timeout_ms,
        "is-legacy": broker.is_legacy,
    }


def _named(places: "Iterable[Place]") -> list[str]:
    return [f"{topic}:{number}" for topic, number in places]


def _shortened(named: list[str]) -> str:
    rest = f",… ({len(named)})" if len(named) > NAMED_MAX else ""
    return ",".join(named[:NAMED_MAX]) + rest


def note_of(row: "Partition") -> str:
    """What is not usual about a partition, in words."""
    from coordlib.core.controller import reads

    notes = []
    if row.guard >= 0:
        notes.append("a former leader may still act")
    if row.move:
        notes.append(f"{row.move} election when the leader has let go")
    if row.adding or row.removing:
        added = [f"+{each}" for each in row.adding]
        notes.append("moves " + " ".join([*added, *(f"-{each}" for each in row.removing)]))
    if row.recovering:
        notes.append("recovers from an unclean election")
    if left := sorted(reads.undeleted(row)):
        notes.append(f"to be deleted on {_numbers(tuple(left))}")
    return ", ".join(notes)


def _numbers(some: tuple[int, ...]) -> str | None:
    return ",".join(map(str, some)) or None


def list_clusters(*, where: Where = HERE) -> int:
    """List the clusters with state, brokers and partitions.

    States: Stable (no broker has to let go, to stop or to delete replicas), Reconciling (some
    have), Empty (no brokers). Partitions of a Stable cluster may still wait, for brokers that are
    to catch up or to come back. LEADERLESS: partitions that nobody leads. UNDER-REPLICATED:
    partitions of which a replica is not in sync.
    """
    from coordlib.cli.controller.view import read_clusters

    found, as_of_time = where.read(read_clusters)
    for each in found:
        say_unreadable(each.cluster, each.unreadable)
    if where.format == "json":
        print_json("cluster list", as_of_time, clusters=CLUSTERS.objects(found))
        return 0
    CLUSTERS.print(found)
    say(f"{counted(len(found), 'cluster')} as of {time_text(as_of_time)}")
    return 0


def describe(cluster: ClusterName, /, *, where: Where = HERE) -> int:
    """Show a cluster: state, counts, and for whom somebody waits.

    WAITS-FOR names brokers: those that were asked for leaderships and have not let go, former
    leaders that may still act, and brokers with replicas to delete, or that could not delete them;
    with any of these the cluster is Reconciling. It also names brokers that a move waits for, since
    they are not in sync, and those without which a partition has no leader; with these alone it is
    Stable. Of all others that are not in sync `coord cluster partitions --under-replicated` tells.
    Read from the topics, so this works while the job is down; AS-OF gives the last request that is
    included.

    Parameters
    ----------
    cluster
        The cluster's name.
    """
    view, as_of_time = _view(where, cluster)
    if where.format == "json":
        print_json("cluster describe", as_of_time, **described(view))
        return 0
    seen = view.seen
    print_head(head_of(view, as_of_time))
    if seen.waits_for:
        print_line()
        AWAITED.print(seen.waits_for)
        say_why_stable(seen)
    say_unreadable(seen.cluster, seen.unreadable)
    if seen.lost:
        say(
            f"{counted(seen.lost, 'partition')} lost the last replica in sync: only an unclean "
            "election gives a leader, without what was committed."
        )
    return 0


def brokers(cluster: ClusterName, /, *, where: Where = HERE) -> int:
    """Show the registered brokers of a cluster, those that are Inactive included.

    LEADS and REPLICAS count partitions. SINCE: when the broker came into its state.

    Parameters
    ----------
    cluster
        The cluster's name.
    """
    view, as_of_time = _view(where, cluster)
    found, shown = view.seen.brokers.values(), brokers_among(view.seen.partitions)
    if where.format == "json":
        fields = envelope(view)
        print_json("cluster brokers", as_of_time, **fields, brokers=shown.objects(found))
        return 0
    shown.print(found)
    say_unreadable(cluster, view.seen.unreadable)
    say(f"{counted(len(found), 'broker')} as of {_as_of(view, as_of_time)}")
    return 0


def partitions(
    cluster: ClusterName,
    /,
    *,
    topic: TopicName | None = None,
    broker: BrokerId | None = None,
    leaderless: Annotated[bool, Parameter(negative="")] = False,
    under_replicated: Annotated[bool, Parameter(negative="")] = False,
    where: Where = HERE,
) -> int:
    """Show the partitions of a cluster: leaders, epochs, replicas, and those in sync.

    NOTE: a reassignment in progress (+ added, - removed), a deletion, or recovery from an unclean
    election.

    Parameters
    ----------
    cluster
        The cluster's name.
    topic
        Only partitions of this topic.
    broker
        Only partitions with a replica on this broker.
    leaderless
        Only partitions that nobody leads.
    under_replicated
        Only partitions of which a replica is not in sync.
    """
    from coordlib.cli.controller.view import is_leaderless, is_under_replicated

    view, as_of_time = _view(where, cluster)
    asked: list[Callable[[Place, Partition], bool]] = []
    if topic is not None:
        asked.append(lambda place, _: place[0] == topic)
    if broker is not None:
        asked.append(lambda _, row: broker in row.replicas)
    if leaderless:
        asked.append(lambda _, row: is_leaderless(row))
    if under_replicated:
        asked.append(lambda _, row: is_under_replicated(row))
    found = [at for at in view.seen.partitions.items() if all(holds(*at) for holds in asked)]
    if where.format == "json":
        fields = envelope(view)
        print_json("cluster partitions", as_of_time, **fields, partitions=PARTITIONS.objects(found))
        return 0
    PARTITIONS.print(found)
    say_unreadable(cluster, view.seen.unreadable)
    say(f"{counted(len(found), 'partition')} as of {_as_of(view, as_of_time)}")
    return 0


def _view(where: Where, cluster: str) -> "tuple[ClusterView, datetime]":
    from coordlib.cli.controller.view import read_cluster

    return where.read(read_cluster, cluster)


def _as_of(view: "ClusterView", asked: datetime) -> str:
    return as_of_text(view.as_of, view.shard, asked)


def build() -> App:
    """`coord cluster`."""
    app = App(
        name="cluster",
        help="Inspect and administer worker fleets: clusters of your brokers, not Kafka's.",
    )
    app.command(list_clusters, name="list")
    app.command(describe, name="describe")
    app.command(brokers, name="brokers")
    app.command(partitions, name="partitions")
    app.command(history, name="history")
    app.command(admin.create_topic, name="create-topic")
    app.command(admin.create_partitions, name="create-partitions")
    app.command(admin.delete_topic, name="delete-topic")
    app.command(
        admin.elect,
        name="elect",
        usage="Usage: coord cluster elect (--preferred | --unclean) [OPTIONS] CLUSTER",
    )
    app.command(
        admin.reassign,
        name="reassign",
        usage="Usage: coord cluster reassign (--plan FILE | --cancel) [OPTIONS] CLUSTER",
    )
    app.command(admin.remove_broker, name="remove-broker")
    app.command(admin.unregister, name="unregister")
    app.command(admin.release, name="release")
    app.command(admin.delete, name="delete")
    return app


#: Of a leaderless time ELECTION is empty, and REASON begins with why nobody could lead. It ends
#: with `unproved` where a legacy leader was not known to have stopped.
_LEADERS: Final = """
    SELECT since, until, topic, partition, leader, incarnation, leader_epoch, fence, election,
           CASE WHEN unproved THEN reason || ' (unproved)' ELSE reason END AS reason
    FROM (SELECT group_id, since, until, topic, partition, leader, incarnation, leader_epoch, fence,
                 election, reason, unproved FROM leaders
          UNION ALL
          SELECT group_id, since, until, topic, partition, NULL, NULL, leader_epoch, NULL, NULL,
                 why || ': ' || reason, unproved FROM leaderless) AS l
    WHERE group_id = ? {which}
    ORDER BY since DESC, topic DESC, partition DESC, leader_epoch DESC LIMIT ?"""
_STATES: Final = """
    SELECT since, until, broker, incarnation, state, reason FROM broker_history
    WHERE group_id = ? {which}
    ORDER BY since DESC, incarnation DESC, until DESC NULLS FIRST LIMIT ?"""
#: Of lines that a date cuts: who led and which state a broker had when it began is told, too.
_NOT_OVER: Final = " AND (until IS NULL OR until >= ?)"
_KNOWN: Final = "SELECT MAX(time) FROM cluster_events WHERE group_id = ?"


def history(
    cluster: ClusterName,
    /,
    *,
    topic: TopicName | None = None,
    partition: PartitionNumber | None = None,
    broker: BrokerId | None = None,
    limit: Count = 100,
    since: Since = None,
    where: WhereTables = TABLES_HERE,
) -> int:
    """Show who led what from when to when, and why that changed; and the states of brokers.

    Without --topic the states of brokers come first. With --topic only leaders are shown, a line
    for each leader epoch: LEADER is empty where nobody led. Read from the history's tables, which
    follow within the archive's interval (30 s).

    Parameters
    ----------
    cluster
        The cluster's name.
    topic
        Leaders of this topic's partitions.
    partition
        One partition of the topic.
    broker
        States of this broker, and what it led.
    limit
        Show the newest N lines of each.
    since
        From this date on, as 2026-03-01, with those who led and the states that held when it began,
        however long ago that was; by default all of history.
    """
    from coordlib.history.sql import dates, query_all

    if partition is not None and topic is None:
        raise SetupError(
            "A partition is one of a topic.", f"--partition {partition}", "Name it: --topic TOPIC"
        )
    tables = where.tables_dir()
    last = (dates(tables) or (date.min, date.min))[1]
    newest = newest_of(tables, (_KNOWN, [cluster]), (last, None))
    if newest is None:
        raise GroupError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"cluster {cluster} in {tables}",
            "Check its name (coord cluster list); a new one appears after the archive's interval.",
        )
    of_leader = {"topic": topic, "partition": partition, "leader": broker}
    questions = [
        _question(_LEADERS, cluster, of_leader, since, limit),
        _question(_STATES, cluster, {"broker": broker}, since, limit),
    ]
    # Of all dates: which epoch an event belongs to, and which process led, earlier ones say.
    answers = query_all(tables, questions if topic is None else questions[:1])
    leaders, *others = (list(reversed(answer.rows)) for answer in answers)
    states = others[0] if others else []
    if where.format == "json":
        tables_of_json = {"leaders": LEADERS.objects(leaders)}
        if topic is None:
            tables_of_json["brokers"] = STATES.objects(states)
        at = {"newest_event": newest, "since": since}
        print_json("cluster history", now(), cluster=cluster, **at, **tables_of_json)
        return 0
    if topic is None:
        STATES.print(states)
        print_line()
    LEADERS.print(leaders)
    say(f"As of the newest event of this cluster: {time_text(newest)}")
    return 0


def _question(
    sql: str, cluster: str, which: Mapping[str, object], since: date | None, limit: int
) -> Asking:
    """For the newest rows that have these values, where there are any; the newest one first."""
    asked = {name: value for name, value in which.items() if value is not None}
    conditions = "".join(f" AND {name} = ?" for name in asked)
    values: list[Any] = [cluster, *asked.values()]
    if since is not None:
        conditions += _NOT_OVER
        values.append(datetime.combine(since, time.min, UTC))
    return sql.format(which=conditions), [*values, limit]

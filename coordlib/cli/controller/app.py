"""`coord cluster`: how clusters of brokers stand, read from Kafka alone, and their history."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from coordlib.cli.controller import admin
from coordlib.cli.groups.app import QUARANTINED, UNREADABLE, as_of_text
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
    as_objects,
    counted,
    duration_text,
    millis_text,
    now,
    print_head,
    print_json,
    print_line,
    print_table,
    say,
    time_text,
    visible,
)
from coordlib.cli.kit.where import HERE, TABLES_HERE, Where, WhereTables
from coordlib.errors import ErrorCode, GroupError, SetupError

if TYPE_CHECKING:
    from coordlib.cli.controller.view import Awaited, ClusterView, SeenCluster
    from coordlib.core.controller.states import Broker, Partition
    from coordlib.core.engine.tables import Place

LIST_COLUMNS: Final = (
    "CLUSTER",
    "STATE",
    "BROKERS",
    "ACTIVE",
    "TOPICS",
    "PARTITIONS",
    "LEADERLESS",
    "UNDER-REPLICATED",
    "GENERATION",
)
BROKER_COLUMNS: Final = (
    "BROKER",
    "STATE",
    "SINCE",
    "LEADS",
    "REPLICAS",
    "CLIENT-ID",
    "RACK",
    "ENDPOINTS",
    "INCARNATION",
    "SESSION",
)
PARTITION_COLUMNS: Final = (
    "TOPIC",
    "PARTITION",
    "LEADER",
    "LEADER-EPOCH",
    "PARTITION-EPOCH",
    "FENCE",
    "REPLICAS",
    "ISR",
    "NOTE",
)
AWAITED_COLUMNS: Final = ("WAITS-FOR", "MEMBER-ID", "CLIENT-ID", "PARTITIONS", "REASON")
#: Partitions that are named for one broker; the others are counted.
NAMED_MAX: Final = 5


def state_of(seen: "SeenCluster") -> str | None:
    """A mark before the state: what an operator must see first."""
    if seen.unreadable is not None:
        return UNREADABLE
    return f"{QUARANTINED}({seen.state})" if seen.is_quarantined else seen.state


def say_unreadable(clusters: "Iterable[SeenCluster]") -> None:
    """A sentence for each cluster that newer code wrote."""
    for each in clusters:
        if each.unreadable is not None:
            say(
                f"{visible(each.cluster)} cannot be read by this version of coord: "
                f"{visible(each.unreadable)}. Install the version that the job has."
            )


def say_why_stable(seen: "SeenCluster") -> None:
    """A sentence where somebody waits, and the state does not say so."""
    if not seen.is_reconciling:
        say(
            f"{state_of(seen)}: no broker has to let go, to stop or to delete replicas; those "
            "above are to catch up, or to come back."
        )


def list_row(seen: "SeenCluster") -> tuple[object, ...]:
    """A line of LIST_COLUMNS."""
    value = seen.value
    return (
        seen.cluster,
        state_of(seen),
        None if value is None else len(value.brokers),
        None if value is None else len(value.active),
        len(seen.topics),
        len(seen.partitions),
        seen.leaderless,
        seen.under_replicated,
        None if value is None else value.generation,
    )


def head_of(view: "ClusterView", as_of_time: datetime) -> dict[str, object]:
    """A cluster by itself: its line, its shard, and as of when that is so."""
    told = dict(zip(LIST_COLUMNS, list_row(view.seen), strict=True))
    return told | {"SHARD": view.shard, "AS-OF": as_of_text(view.as_of, view.shard, as_of_time)}


def described(view: "ClusterView", as_of_time: datetime) -> dict[str, object]:
    """The same as JSON has it, with whom somebody waits for."""
    told = {name.lower(): value for name, value in head_of(view, as_of_time).items()}
    awaited = [
        {
            "waits-for": each.broker,
            "member-id": each.member,
            "client-id": each.client,
            "partitions": [f"{topic}:{number}" for topic, number in each.places],
            "reason": each.reason,
        }
        for each in view.seen.waits_for
    ]
    del told["as-of"]
    more = {"unreadable": view.seen.unreadable, "lost": view.seen.lost, "waits-for": awaited}
    return envelope(view) | told | more


def envelope(view: "ClusterView") -> dict[str, object]:
    """Of each object about one cluster: as of which request it is true."""
    as_of = view.as_of
    return {
        "cluster": view.seen.cluster,
        "as_of_offset": as_of.offset if as_of else None,
        "as_of_log_time": millis_text(as_of.clock_ms) if as_of else None,
        "waiting": as_of.waiting if as_of else None,
    }


def awaited_row(each: "Awaited") -> tuple[object, ...]:
    """A line of AWAITED_COLUMNS."""
    named = [f"{topic}:{number}" for topic, number in each.places[:NAMED_MAX]]
    more = len(each.places) - len(named)
    text = ",".join(named) + (f",… ({len(each.places)})" if more else "")
    return (each.broker, each.member, each.client, text, each.reason)


def broker_row(broker: "Broker", rows: "Mapping[Place, Partition]") -> tuple[object, ...]:
    """A line of BROKER_COLUMNS. `rows`: all partitions."""
    number = broker.broker
    endpoints = ",".join(f"{each.name}://{each.host}:{each.port}" for each in broker.endpoints)
    return (
        number,
        broker.state.value,
        millis_text(broker.since_ms),
        sum(row.leader == number for row in rows.values()),
        sum(number in row.replicas for row in rows.values()),
        broker.client,
        broker.rack,
        endpoints,
        broker.incarnation,
        "legacy" if broker.is_legacy else duration_text(broker.session_timeout_ms),
    )


def broker_fields(broker: "Broker") -> dict[str, object]:
    """What JSON has of a broker beside its line, or in place of its texts."""
    return {
        "member-id": broker.member,
        "endpoints": [
            {"name": each.name, "host": each.host, "port": each.port} for each in broker.endpoints
        ],
        "storage": broker.storage or None,
        "session": None if broker.is_legacy else broker.session_timeout_ms,
        "release": None if broker.is_legacy else broker.release_timeout_ms,
        "is-legacy": broker.is_legacy,
    }


def partition_row(place: "Place", row: "Partition") -> tuple[object, ...]:
    """A line of PARTITION_COLUMNS."""
    return (
        *place,
        None if row.leader < 0 else row.leader,
        *(row.leader_epoch, row.partition_epoch, row.fence),
        *(_numbers(row.replicas), _numbers(row.isr), note_of(row) or None),
    )


def partition_object(place: "Place", row: "Partition") -> dict[str, object]:
    """The same as JSON has it."""
    (told,) = as_objects(PARTITION_COLUMNS, [partition_row(place, row)])
    return told | {
        "replicas": row.replicas,
        "isr": row.isr,
        "adding": row.adding,
        "removing": row.removing,
        "deleting": sorted(row.deleting),
    }


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
    """List the clusters of brokers with state, brokers and partitions.

    States: Stable (no broker has to let go, to stop or to delete replicas), Reconciling (some
    have), Empty (no brokers). Partitions of a Stable cluster may still wait, for brokers that are
    to catch up or to come back. LEADERLESS: partitions that nobody leads. UNDER-REPLICATED:
    partitions of which a replica is not in sync.
    """
    from coordlib.cli.controller.view import read_clusters

    topics = where.reach()
    as_of_time = now()
    found = read_clusters(where.client(), topics, where.topic_prefix())
    rows = [list_row(each) for each in found]
    say_unreadable(found)
    if where.format == "json":
        print_json("cluster list", as_of_time, clusters=as_objects(LIST_COLUMNS, rows))
        return 0
    print_table(LIST_COLUMNS, rows)
    say(f"{counted(len(rows), 'cluster')} as of {time_text(as_of_time)}")
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
        print_json("cluster describe", as_of_time, **described(view, as_of_time))
        return 0
    seen = view.seen
    print_head(head_of(view, as_of_time))
    if seen.waits_for:
        print_line()
        print_table(AWAITED_COLUMNS, map(awaited_row, seen.waits_for))
        say_why_stable(seen)
    say_unreadable([seen])
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
    rows = [broker_row(each, view.seen.partitions) for each in view.seen.brokers.values()]
    if where.format == "json":
        told = as_objects(BROKER_COLUMNS, rows)
        for line, each in zip(told, view.seen.brokers.values(), strict=True):
            line |= broker_fields(each)
        print_json("cluster brokers", as_of_time, **envelope(view), brokers=told)
        return 0
    print_table(BROKER_COLUMNS, rows)
    say_unreadable([view.seen])
    say(f"{counted(len(rows), 'broker')} as of {_as_of(view, as_of_time)}")
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

    NOTE tells what goes on: a move, with the brokers that it adds (+) and removes (-), a deletion,
    an unclean election from which the leader recovers.

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
    found = {
        place: row
        for place, row in view.seen.partitions.items()
        if all(holds(place, row) for holds in asked)
    }
    rows = [partition_row(place, row) for place, row in found.items()]
    if where.format == "json":
        told = [partition_object(place, row) for place, row in found.items()]
        print_json("cluster partitions", as_of_time, **envelope(view), partitions=told)
        return 0
    print_table(PARTITION_COLUMNS, rows)
    say_unreadable([view.seen])
    say(f"{counted(len(rows), 'partition')} as of {_as_of(view, as_of_time)}")
    return 0


def _view(where: Where, cluster: str) -> "tuple[ClusterView, datetime]":
    from coordlib.cli.controller.view import read_cluster

    topics, as_of_time = where.reach(), now()
    return read_cluster(where.client(), topics, where.topic_prefix(), cluster), as_of_time


def _as_of(view: "ClusterView", asked: datetime) -> str:
    return as_of_text(view.as_of, view.shard, asked)


def build() -> App:
    """`coord cluster`."""
    app = App(name="cluster", help="Inspect and administer clusters of brokers.")
    app.command(list_clusters, name="list")
    app.command(describe, name="describe")
    app.command(brokers, name="brokers")
    app.command(partitions, name="partitions")
    app.command(history, name="history")
    app.command(admin.create_topic, name="create-topic")
    app.command(admin.create_partitions, name="create-partitions")
    app.command(admin.delete_topic, name="delete-topic")
    app.command(admin.elect, name="elect")
    app.command(admin.reassign, name="reassign")
    app.command(admin.remove_broker, name="remove-broker")
    app.command(admin.unregister, name="unregister")
    app.command(admin.release, name="release")
    app.command(admin.delete, name="delete")
    return app


LEADER_COLUMNS: Final = (
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
STATE_COLUMNS: Final = ("SINCE", "UNTIL", "BROKER", "INCARNATION", "STATE", "REASON")
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
        told = {"leaders": as_objects(LEADER_COLUMNS, leaders)}
        if topic is None:
            told["brokers"] = as_objects(STATE_COLUMNS, states)
        at = {"newest_event": newest, "since": since}
        print_json("cluster history", now(), cluster=cluster, **at, **told)
        return 0
    if topic is None:
        print_table(STATE_COLUMNS, states)
        print_line()
    print_table(LEADER_COLUMNS, leaders)
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

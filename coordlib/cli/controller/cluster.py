"""`coord cluster list|describe|brokers|partitions`: how clusters of brokers stand, read from Kafka
alone, job up or down."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from coordlib.cli.controller import cluster_rows as shown
from coordlib.cli.groups.groups import as_of_text
from coordlib.cli.kit.names import ClusterName, TopicName
from coordlib.cli.kit.numbers import BrokerId
from coordlib.cli.kit.output import (
    as_objects,
    counted,
    now,
    print_head,
    print_json,
    print_line,
    print_table,
    say,
    time_text,
)
from coordlib.cli.kit.where import HERE, Where

if TYPE_CHECKING:
    from coordlib.cli.controller.cluster_view import ClusterView
    from coordlib.core.controller.rows import Partition
    from coordlib.core.engine.table import Place


def list_clusters(*, where: Where = HERE) -> int:
    """List the clusters of brokers with state, brokers and partitions.

    States: Stable (no broker has to let go, to stop or to delete replicas), Reconciling (some
    have), Empty (no brokers). Partitions of a Stable cluster may still wait, for brokers that are
    to catch up or to come back. LEADERLESS: partitions that nobody leads. UNDER-REPLICATED:
    partitions of which a replica is not in sync.
    """
    from coordlib.cli.controller.cluster_view import read_clusters

    topics = where.reach()
    as_of_time = now()
    found = read_clusters(where.client(), topics, where.topic_prefix())
    rows = [shown.list_row(each) for each in found]
    shown.say_unreadable(found)
    if where.format == "json":
        print_json("cluster list", as_of_time, clusters=as_objects(shown.LIST_COLUMNS, rows))
        return 0
    print_table(shown.LIST_COLUMNS, rows)
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
        print_json("cluster describe", as_of_time, **shown.described(view, as_of_time))
        return 0
    seen = view.seen
    print_head(shown.head_of(view, as_of_time))
    if seen.waits_for:
        print_line()
        print_table(shown.AWAITED_COLUMNS, map(shown.awaited_row, seen.waits_for))
        shown.say_why_stable(seen)
    shown.say_unreadable([seen])
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
    rows = [shown.broker_row(each, view.seen.partitions) for each in view.seen.brokers.values()]
    if where.format == "json":
        told = as_objects(shown.BROKER_COLUMNS, rows)
        for line, each in zip(told, view.seen.brokers.values(), strict=True):
            line |= shown.broker_fields(each)
        print_json("cluster brokers", as_of_time, **shown.envelope(view), brokers=told)
        return 0
    print_table(shown.BROKER_COLUMNS, rows)
    shown.say_unreadable([view.seen])
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
    from coordlib.cli.controller.cluster_view import is_leaderless, is_under_replicated

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
    rows = [shown.partition_row(place, row) for place, row in found.items()]
    if where.format == "json":
        told = [shown.partition_object(place, row) for place, row in found.items()]
        print_json("cluster partitions", as_of_time, **shown.envelope(view), partitions=told)
        return 0
    print_table(shown.PARTITION_COLUMNS, rows)
    shown.say_unreadable([view.seen])
    say(f"{counted(len(rows), 'partition')} as of {_as_of(view, as_of_time)}")
    return 0


def _view(where: Where, cluster: str) -> "tuple[ClusterView, datetime]":
    from coordlib.cli.controller.cluster_view import read_cluster

    topics, as_of_time = where.reach(), now()
    return read_cluster(where.client(), topics, where.topic_prefix(), cluster), as_of_time


def _as_of(view: "ClusterView", asked: datetime) -> str:
    return as_of_text(view.as_of, view.shard, asked)

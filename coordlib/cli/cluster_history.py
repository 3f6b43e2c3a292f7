"""`coord cluster history`: who led what and why, and which states brokers had, from the tables."""

from collections.abc import Mapping
from typing import Any, Final

from coordlib.cli.names import ClusterName, TopicName
from coordlib.cli.numbers import BrokerId, Count, Partition
from coordlib.cli.output import as_objects, now, print_json, print_table, say, time_text
from coordlib.cli.where import TABLES_HERE, WhereTables
from coordlib.errors import ErrorCode, GroupError, SetupError

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
_KNOWN: Final = "SELECT MAX(time) FROM cluster_events WHERE group_id = ?"


def history(
    cluster: ClusterName,
    /,
    *,
    topic: TopicName | None = None,
    partition: Partition | None = None,
    broker: BrokerId | None = None,
    limit: Count = 100,
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
    """
    from coordlib.history.sql import query_tables

    if partition is not None and topic is None:
        raise SetupError(
            "A partition is one of a topic.", f"--partition {partition}", "Name it: --topic TOPIC"
        )
    tables = where.tables_dir()
    ((newest,),) = query_tables(tables, _KNOWN, [cluster]).rows
    if newest is None:
        raise GroupError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"cluster {cluster} in {tables}",
            "Check its name (coord cluster list); a new one appears after the archive's interval.",
        )
    of_broker: dict[str, object] = {} if broker is None else {"broker": broker}
    named = {"topic": topic, "partition": partition, "leader": broker}
    of_leader = {name: value for name, value in named.items() if value is not None}
    states = [] if topic is not None else _asked(tables, _STATES, cluster, of_broker, limit)
    leaders = _asked(tables, _LEADERS, cluster, of_leader, limit)
    if where.format == "json":
        told = {"leaders": as_objects(LEADER_COLUMNS, leaders)}
        if topic is None:
            told["brokers"] = as_objects(STATE_COLUMNS, states)
        print_json("cluster history", now(), cluster=cluster, newest_event=newest, **told)
        return 0
    if topic is None:
        print_table(STATE_COLUMNS, states)
        print()
    print_table(LEADER_COLUMNS, leaders)
    say(f"As of the newest event of this cluster: {time_text(newest)}")
    return 0


def _asked(
    tables: str, sql: str, cluster: str, which: Mapping[str, object], limit: int
) -> list[tuple[Any, ...]]:
    """The newest rows, oldest first."""
    from coordlib.history.sql import query_tables

    conditions = "".join(f" AND {name} = ?" for name in which)
    asked = query_tables(tables, sql.format(which=conditions), [cluster, *which.values(), limit])
    return list(reversed(asked.rows))

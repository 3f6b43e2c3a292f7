"""`coord cluster history`: who led what and why, and which states brokers had, from the tables."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Any, Final

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
    now,
    print_json,
    print_line,
    print_table,
    say,
    time_text,
)
from coordlib.cli.kit.where import TABLES_HERE, WhereTables
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

"""The Delta tables: what a row of each means, how they lie on disk, how long rows are kept."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from coordlib.errors import SetupError

EVENTS: Final = "events"
SNAPSHOTS: Final = "group_snapshots"
LAG: Final = "lag"
TABLES: Final = (EVENTS, SNAPSHOTS, LAG)

#: Type of the event that stands for records which Kafka deleted before they were archived: of no
#: group, in the shard of its partition; `detail` has topic, partition, from_offset and to_offset.
HISTORY_LOST: Final = "HistoryLost"

#: Types of events that come with each commit, and so outnumber all others.
FREQUENT: Final = ("OffsetsCommitted", "OffsetsPending", "OffsetsDropped")

#: How names of files begin that are in order (`upkeep.py`), and those of them that have frequent
#: events alone.
ORDERED: Final = "coord-ordered-"
ORDERED_COMMITS: Final = f"{ORDERED}commits-"

#: The last number of an event's id: which one it is of those that its record has caused.
ORDINAL: Final = "TRY_CAST(regexp_extract(event_id, '([0-9]+)$', 1) AS BIGINT)"
#: When an event was judged, by the log: its time, or that of an earlier event of its log, if the
#: brokers' clock has gone back since. Together with `log_offset` and ORDINAL it gives the order.
JUDGED: Final = f"""MAX(time) OVER (
    PARTITION BY regexp_extract(event_id, '^(.+-[a-z][0-9]+)-[0-9]+-[0-9]+$', 1)
    ORDER BY log_offset, {ORDINAL})"""

#: State of a group that was deleted: Kafka's word, and never in `coord.groups` itself.
DEAD: Final = "Dead"

#: Column to type, in Spark's spelling; DuckDB understands all of them too.
COLUMNS: Final[dict[str, dict[str, str]]] = {
    EVENTS: {
        "event_id": "STRING",  # `<incarnation>-<coordinate>-<number>`; unique
        "time": "TIMESTAMP",  # of the log, when the request or deadline was judged
        "date": "DATE",  # the day of `time` in UTC; the table is partitioned by it
        "shard": "INT",  # partition of coord.requests
        "log_offset": "BIGINT",  # of the record that caused the event
        "group_id": "STRING",  # the group, cluster or transactional id; see `space`
        "protocol": "STRING",  # the same as `kind`
        "type": "STRING",  # such as MemberJoined; the wire format lists all types
        "generation": "INT",  # of the group, after the event
        "member_id": "STRING",  # the member that it concerns; in claims the client
        "cause": "STRING",  # coordinate of the request, or `deadline:...`
        "reason": "STRING",  # in words
        "detail": "STRING",  # JSON, by type
        "kind": "STRING",  # classic, assigned, claims, brokers, producer; null: no such group
        "space": "STRING",  # claims, cluster, transaction; null: consumer groups
        "transactional_id": "STRING",  # `group_id`, where it is one; else null
    },
    SNAPSHOTS: {
        "as_of_time": "TIMESTAMP",  # the log's time of the snapshot
        "group_id": "STRING",  # the group
        "state": "STRING",  # such as Stable; Dead: deleted; null: a row of offsets
        "generation": "INT",  # the group's
        "protocol": "STRING",  # the assignor that the group chose
        "leader": "STRING",  # member id of the leader, in a classic group
        "members": "STRING",  # JSON
        "offsets": "STRING",  # JSON: committed offsets that changed
        "places": "STRING",  # JSON: the partitions of `offsets`
    },
    LAG: {
        "time": "TIMESTAMP",  # of the sample
        "date": "DATE",  # the day of `time` in UTC; the table is partitioned by it
        "group_id": "STRING",  # the group; see `space`
        "topic": "STRING",
        "partition": "INT",
        "committed": "BIGINT",  # committed offset; null: it was deleted
        "log_start": "BIGINT",  # first offset in the log; null: unknown
        "log_end": "BIGINT",  # next offset to be written; null: unknown
        "lag": "BIGINT",  # messages from `committed`, or from `log_start` if that is later
        "lag_seconds": "DOUBLE",  # how long ago the log ended at `committed`; 0: all is read
        "is_at_least": "BOOLEAN",  # `lag_seconds` is a lower bound
        "lost": "BIGINT",  # messages that retention removed before they were committed
        "is_beyond_end": "BOOLEAN",  # the log is shorter than what was committed
        "kind": "STRING",  # as in events; null: a consumer group
        "space": "STRING",  # as in events
    },
}
PARTITIONED_BY: Final[dict[str, tuple[str, ...]]] = {
    EVENTS: ("date",),
    SNAPSHOTS: (),
    LAG: ("date",),
}

#: A commit every 30 s: what Delta would do at each of them must stay small (seconds otherwise).
PROPERTIES: Final = {
    "delta.checkpointInterval": "100",
    "delta.dataSkippingNumIndexedCols": "0",
    # At 50 small files a commit packs them into one (2 s more): else a day would leave 2,880.
    "delta.autoOptimize.autoCompact": "true",
}


def path_of(tables: str, table: str) -> str:
    """Where a table lies below the folder or URI that holds them all."""
    return f"{tables.rstrip('/')}/{table}"


def is_frequent(column: str) -> str:
    """The condition that this column has a frequent type; never null."""
    return f"COALESCE({column}, '') IN ({', '.join(map(repr, FREQUENT))})"


#: What `--keep` names: the commits of members and clients, samples of lag, snapshots of groups.
COMMITS_KEPT: Final = "commits"
DAYS_MAX: Final = 100_000
_KEPT: Final = (COMMITS_KEPT, LAG, "snapshots")
_TIME: Final = re.compile(r"([a-z_]+)=([0-9]{1,6})d")

#: Table to what `--keep` calls its rows that may go.
CALLED: Final[Mapping[str, str]] = {EVENTS: COMMITS_KEPT, SNAPSHOTS: "snapshots", LAG: LAG}
#: Table to the time of a row, in `old`.
TIME_OF: Final[Mapping[str, str]] = {EVENTS: "time", SNAPSHOTS: "as_of_time", LAG: "time"}

#: Table to a query for the rows of `old` that stay, by `row_id`; `old` has what is older than kept.
#: One row of several offsets stays as long as it is the newest for one of them. Rows that say that
#: something is gone stay, too: without them what they ended would be the newest.
STAYING: Final[Mapping[str, str]] = {
    EVENTS: f"""
        WITH newest AS (
            SELECT arg_max(x.row_id, {{'time': x.time, 'log_offset': x.log_offset}}) AS row_id
            FROM (SELECT row_id, time, log_offset, group_id, unnest(offsets_in(detail)) AS item
                  FROM old WHERE type = 'OffsetsCommitted') AS x
            GROUP BY x.group_id, x.item.topic, x.item.partition),
        gone AS (
            SELECT d.group_id, get_json_object(d.detail, '$.transaction') AS transaction
            FROM old AS d ANTI JOIN newest AS n ON n.row_id = d.row_id
            WHERE d.type IN ('OffsetsCommitted', 'OffsetsDropped'))
        SELECT row_id FROM old WHERE NOT {is_frequent("type")}
        UNION SELECT row_id FROM newest
        UNION SELECT p.row_id FROM old AS p ANTI JOIN gone AS g
              ON g.group_id = p.group_id
                 AND g.transaction = get_json_object(p.detail, '$.transaction')
              WHERE p.type = 'OffsetsPending'""",
    LAG: """
        SELECT arg_max(row_id, time) AS row_id FROM old
        GROUP BY COALESCE(space, 'group'), group_id, topic, partition""",
    SNAPSHOTS: """
        SELECT arg_max(row_id, {'time': as_of_time, 'generation': generation}) AS row_id
        FROM old WHERE state IS NOT NULL GROUP BY group_id
        UNION SELECT arg_max(x.row_id, {'time': x.as_of_time, 'log_offset': x.item.log_offset})
              FROM (SELECT row_id, as_of_time, group_id, unnest(committed_in(offsets)) AS item
                    FROM old WHERE offsets IS NOT NULL) AS x
              GROUP BY x.group_id, x.item.topic, x.item.partition""",
}


def kept(given: Sequence[str]) -> dict[str, timedelta]:
    """`commits=30d` and the like.

    Raises:
        SetupError: one of them is none, or is given twice.
    """
    found: dict[str, timedelta] = {}
    for each in given:
        match = _TIME.fullmatch(each)
        name, days = (match[1], int(match[2])) if match else (each.partition("=")[0], 0)
        where = f"--keep {each[:200]!r}"
        if name == EVENTS:
            raise SetupError(
                "Events are kept for ever: the views are made of them.",
                where,
                "Name what may go: commits, lag or snapshots.",
            )
        if match is None or name not in _KEPT or not 1 <= days <= DAYS_MAX or name in found:
            raise SetupError(
                "This does not say how long something is kept.",
                where,
                f"Write one of {', '.join(_KEPT)} once, with a number of days: commits=30d",
            )
        found[name] = timedelta(days=days)
    return found

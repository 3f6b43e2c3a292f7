"""The Delta tables: what a row of each means, and how they are laid out on disk.

`events` has one row per history event, for ever; all other facts follow from it.
`group_snapshots` has one row per group and archive batch in which the group or its committed
offsets changed; it answers "how is it now" without a fold over all events. A column that is null
there did not change in that batch. A deleted group has the state Dead; a deleted offset is null.
`as_of_time` is that of the newest of its records, by the clock of the job's machine; but rows of a
later batch have a later one than all before of their shard, so the newest row is what came last.
`places` is equal where the offsets of two rows of a group are of the same partitions: of those only
the newest row has to be unpacked.
`lag` has one row per committed offset and sample; its columns are described with the topic
`coord.lag` in core/wire/README.md. It grows faster than the others;
`coord history maintain` drops old samples (keeping.py).

`kind` and `space` of a row are those of what `group_id` names; a null `space` is that of the
consumer groups. Rows of `events` that an older version wrote have their kind in `protocol` alone,
which the next version leaves out: ask for `COALESCE(kind, protocol)`. It is null for a refused
request that concerns nobody's group. Samples of consumer groups in `lag` do not name their kind.

`transactional_id` is that of the coordinator's transactions: of an event of such an id the same as
`group_id`; null in all others.

Columns that a version adds come last and are nullable: the archive adds them to tables that are
there, and readers take them for null where they are missing.
"""

from typing import Final

EVENTS: Final = "events"
SNAPSHOTS: Final = "group_snapshots"
LAG: Final = "lag"
TABLES: Final = (EVENTS, SNAPSHOTS, LAG)

#: Type of the event that stands for records which Kafka deleted before they were archived: of no
#: group, in the shard of its partition; `detail` has topic, partition, from_offset and to_offset.
HISTORY_LOST: Final = "HistoryLost"

#: Types of events that come with each commit, and so outnumber all others.
FREQUENT: Final = ("OffsetsCommitted", "OffsetsPending", "OffsetsDropped")

#: How names of files begin that are in order (rewriting.py), and those of them that have frequent
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
        "event_id": "STRING",
        "time": "TIMESTAMP",
        "date": "DATE",
        "shard": "INT",
        "log_offset": "BIGINT",
        "group_id": "STRING",
        "protocol": "STRING",
        "type": "STRING",
        "generation": "INT",
        "member_id": "STRING",
        "cause": "STRING",
        "reason": "STRING",
        "detail": "STRING",
        "kind": "STRING",
        "space": "STRING",
        "transactional_id": "STRING",
    },
    SNAPSHOTS: {
        "as_of_time": "TIMESTAMP",
        "group_id": "STRING",
        "state": "STRING",
        "generation": "INT",
        "protocol": "STRING",
        "leader": "STRING",
        "members": "STRING",
        "offsets": "STRING",
        "places": "STRING",
    },
    LAG: {
        "time": "TIMESTAMP",
        "date": "DATE",
        "group_id": "STRING",
        "topic": "STRING",
        "partition": "INT",
        "committed": "BIGINT",
        "log_start": "BIGINT",
        "log_end": "BIGINT",
        "lag": "BIGINT",
        "lag_seconds": "DOUBLE",
        "is_at_least": "BOOLEAN",
        "lost": "BIGINT",
        "is_beyond_end": "BOOLEAN",
        "kind": "STRING",
        "space": "STRING",
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

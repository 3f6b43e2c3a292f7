"""Views over groups and over claims: one SQL text for Spark and for DuckDB; owners over time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

#: Its columns are those of `tenures_of`. Parameter: the group.
OWNERSHIP: Final = """
    SELECT topic, partition, member_id, generation, COALESCE(fence, -1), issued, until
    FROM ownership WHERE group_id = ?"""


@dataclass(frozen=True, slots=True)
class Tenure:
    """One partition with one owner."""

    topic: str
    partition: int
    member: str
    #: In which it began.
    generation: int
    #: The token of the record that gave it.
    fence: int
    since: datetime
    #: None: until now.
    until: datetime | None


def tenures_of(rows: Iterable[Sequence[Any]]) -> list[Tenure]:
    """Rows of one owner and partition that follow upon each other are one tenure.

    A member's own token is the newest of all its grants, so it rises also for what it had before:
    the token of a tenure is that of its first row. A partition that a member releases and gets back
    by the same record is one tenure, too.

    Returns them by topic and partition, in the order of their fences.
    """
    found: list[Tenure] = []
    by_owner = [Tenure(*row) for row in _in_order(rows)]
    for each in by_owner:
        last = found[-1] if found else None
        if last is not None and _goes_on(last, each):
            found[-1] = replace(last, until=each.until)
        else:
            found.append(each)
    return sorted(found, key=lambda one: (one.topic, one.partition, one.fence))


def _in_order(rows: Iterable[Sequence[Any]]) -> Iterable[tuple[Any, ...]]:
    """By topic, partition and owner, then as they were written: tokens rise, and times may go back
    with the brokers' clock."""
    ordered = []
    for topic, partition, member, generation, fence, issued, until in rows:
        ordered.append((topic, partition, member, fence, issued, generation, until))
    ends = datetime.max
    ordered.sort(key=lambda row: (*row[:5], (row[6] or ends).replace(tzinfo=None)))
    for topic, partition, member, fence, issued, generation, until in ordered:
        yield topic, partition, member, generation, fence, issued, until


def _goes_on(last: Tenure, each: Tenure) -> bool:
    same = (last.topic, last.partition, last.member) == (each.topic, each.partition, each.member)
    return same and last.until == each.since


#: View name to query, in an order in which each needs only those before it. The comment above a
#: view stands on the page about SQL views; what follows below an empty line of it does not.
GROUP_VIEWS: Final[dict[str, str]] = {
    # Events of consumer groups, and those that concern no group.
    "group_events": """
        SELECT event_id, time, date, shard, log_offset, group_id,
               kind, type, generation, member_id, cause, reason, detail
        FROM events WHERE COALESCE(space, 'group') = 'group'""",
    # `group_events` without commits, which `coord history maintain` keeps in files of their own.
    "group_turns": "SELECT * FROM group_events WHERE NOT is_frequent(type)",
    # One row for each generation: when and why it started, how long until it was settled, and its
    # members as JSON.
    "generations": """
        SELECT g.group_id, g.generation, g.time AS started, g.reason,
               COALESCE(TRY_CAST(get_json_object(g.detail, '$.duration_ms') AS BIGINT),
                        s.duration_ms) AS duration_ms,
               get_json_object(g.detail, '$.members') AS members, g.date
        FROM (SELECT *, LEAD(log_offset) OVER (PARTITION BY group_id
                                               ORDER BY log_offset, generation) AS until_offset
              FROM group_events WHERE type = 'GenerationStarted') AS g
        LEFT JOIN (SELECT group_id, generation, log_offset,
                          TRY_CAST(get_json_object(detail, '$.duration_ms') AS BIGINT)
                          AS duration_ms
                   FROM group_events WHERE type = 'GroupSettled') AS s
        ON s.group_id = g.group_id AND s.generation = g.generation
           AND s.log_offset >= g.log_offset
           AND (g.until_offset IS NULL OR s.log_offset <= g.until_offset)""",
    # One row for each member: when it joined, and when and why it was removed.
    "member_history": """
        SELECT j.group_id, j.member_id, j.client_id, j.joined, r.removed, r.reason, j.date
        FROM (SELECT group_id, member_id, MIN(time) AS joined, MIN(date) AS date,
                     MIN(get_json_object(detail, '$.client')) AS client_id
              FROM group_events WHERE type = 'MemberJoined' GROUP BY group_id, member_id) AS j
        LEFT JOIN (SELECT group_id, member_id, time AS removed, reason,
                          ROW_NUMBER() OVER (PARTITION BY group_id, member_id
                                             ORDER BY time, event_id) AS n
                   FROM group_events WHERE type = 'MemberRemoved') AS r
        ON r.group_id = j.group_id AND r.member_id = j.member_id AND r.n = 1""",
    # One row for each committed offset, at the time at which it began to count. `transaction` and
    # `decided_by` are null for a plain commit.
    "offset_history": """
        SELECT x.group_id, x.item.topic AS topic, x.item.partition AS partition,
               x.item.offset AS offset, x.time, x.member_id, x.generation, x.transaction,
               x.decided_by, x.date
        FROM (SELECT e.group_id, e.time, e.date, e.member_id, e.generation,
                     get_json_object(e.detail, '$.transaction') AS transaction,
                     get_json_object(e.detail, '$.decided_by') AS decided_by,
                     explode(e.items) AS item
              FROM (SELECT *, offsets_in(detail) AS items
                    FROM group_events WHERE type = 'OffsetsCommitted') AS e) AS x""",
    # One row for each partition that a member owned in a generation, from `issued` to `until`
    # (null: it still owns it), with its fencing token.
    #
    # A member owns what was issued to it until its group's next assignment (a later SyncGroup of
    # the leader: its log offset rises for ever, also when a group is deleted and created again) or
    # its own removal. A static successor has the assignment's `sync` and a fence of its own. In a
    # server-assigned group it owns it until its own next assignment (`whose`); of two that one
    # record made, by a deadline and by what it says, the second one counts.
    "ownership": """
        SELECT i.group_id, i.generation, i.member_id, i.topic, i.partition,
               MIN(i.issued) AS issued, MIN(LEAST(f.superseded, r.removed)) AS until, i.fence,
               MIN(i.date) AS date
        FROM (SELECT x.group_id, x.generation, x.member_id, x.fence, x.sync, x.issued, x.date,
                     x.entry.key AS topic, explode(x.entry.value) AS partition
              FROM (SELECT e.group_id, e.generation, e.member_id, e.time AS issued, e.date,
                           TRY_CAST(get_json_object(e.detail, '$.fence') AS BIGINT) AS fence,
                           TRY_CAST(get_json_object(e.detail, '$.sync') AS BIGINT) AS sync,
                           explode(e.entries) AS entry
                    FROM (SELECT *, partitions_in(detail) AS entries
                          FROM (SELECT *, ROW_NUMBER() OVER (
                                    PARTITION BY group_id, member_id,
                                                 get_json_object(detail, '$.sync')
                                    ORDER BY TRY_CAST(regexp_extract(event_id, '([0-9]+)$', 1)
                                                      AS BIGINT) DESC) AS n
                                FROM group_events WHERE type = 'AssignmentIssued') AS d
                          WHERE d.n = 1) AS e) AS x) AS i
        JOIN (SELECT group_id, whose, sync,
                     LEAD(since) OVER (PARTITION BY group_id, whose ORDER BY sync) AS superseded
              FROM (SELECT group_id, whose, MIN(time) AS since,
                           TRY_CAST(get_json_object(detail, '$.sync') AS BIGINT) AS sync
                    FROM (SELECT *, CASE WHEN kind = 'assigned'
                                         THEN member_id ELSE '' END AS whose
                          FROM group_events WHERE type = 'AssignmentIssued') AS w
                    GROUP BY group_id, whose, get_json_object(detail, '$.sync')) AS s) AS f
        ON f.group_id = i.group_id AND f.sync = i.sync AND f.whose IN ('', i.member_id)
        LEFT JOIN (SELECT group_id, member_id, MIN(time) AS removed
                   FROM group_events WHERE type = 'MemberRemoved' GROUP BY group_id, member_id) AS r
        ON r.group_id = i.group_id AND r.member_id = i.member_id
        GROUP BY i.group_id, i.generation, i.member_id, i.topic, i.partition, i.fence, i.sync""",
    # One row for each group that exists, as of its newest snapshot.
    "current_groups": """
        SELECT g.group_id, g.state, g.generation, g.protocol, g.leader, g.members, g.as_of_time,
               utc_date(g.as_of_time) AS date
        FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY group_id
                                           ORDER BY as_of_time DESC, generation DESC) AS n
              FROM group_snapshots WHERE state IS NOT NULL) AS g
        WHERE g.n = 1 AND g.state <> 'Dead'""",
    # One row for each committed offset, as of the newest snapshot.
    #
    # Of a group's snapshots with offsets of the same partitions only the newest is unpacked.
    "current_offsets": """
        SELECT c.group_id, c.topic, c.partition, c.offset AS offset, c.metadata, c.time,
               c.member_id, c.generation, c.as_of_time, utc_date(c.as_of_time) AS date
        FROM (SELECT x.group_id, x.as_of_time, x.item.topic AS topic,
                     x.item.partition AS partition, x.item.offset AS offset,
                     x.item.metadata AS metadata, millis_to_time(x.item.commit_ms) AS time,
                     x.item.member AS member_id, x.item.generation AS generation,
                     ROW_NUMBER() OVER (PARTITION BY x.group_id, x.item.topic, x.item.partition
                                        ORDER BY x.as_of_time DESC, x.item.log_offset DESC) AS n
              FROM (SELECT s.group_id, s.as_of_time, explode(s.items) AS item
                    FROM (SELECT g.group_id, g.as_of_time, committed_in(g.offsets) AS items
                          FROM group_snapshots AS g
                          JOIN (SELECT group_id, places, MAX(as_of_time) AS newest
                                FROM group_snapshots WHERE places IS NOT NULL
                                GROUP BY group_id, places) AS k
                          ON k.group_id = g.group_id AND k.places = g.places
                             AND k.newest = g.as_of_time
                          WHERE g.offsets IS NOT NULL) AS s) AS x) AS c
        WHERE c.n = 1 AND c.offset IS NOT NULL""",
    # The newest sample of lag of each committed offset.
    #
    # A null `committed` says that it was deleted.
    "current_lag": """
        SELECT l.group_id, l.topic, l.partition, l.time, l.committed, l.log_start, l.log_end, l.lag,
               l.lag_seconds, l.is_at_least, l.lost, l.is_beyond_end, l.kind,
               COALESCE(l.space, 'group') AS space, l.date
        FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY COALESCE(space, 'group'), group_id, topic,
                                                        partition ORDER BY time DESC) AS n
              FROM lag) AS l
        WHERE l.n = 1 AND l.committed IS NOT NULL""",
    # One row for each claim: who claimed a partition from `since` to `until`, how that `began` and
    # how it `ended`. A `log gap` ends what was open when messages were deleted before the job read
    # them: an owner that went on has another row, from its next heartbeat on.
    #
    # A partition's events are all in one coordination partition, so that their offsets give their
    # order; what begins a tenure is followed by what ends it.
    "claims": """
        SELECT t.group_id, t.topic, t.partition, t.time AS since,
               COALESCE(t.next_time, g.time) AS until,
               CASE WHEN t.type = 'ClaimResumed' THEN 'resumed' ELSE t.how END AS began,
               CASE WHEN t.next_type = 'ClaimReleased' THEN 'released'
                    WHEN t.next_type = 'ClaimExpired' THEN 'expired'
                    WHEN t.next_type = 'ClaimLost' THEN 'lost'
                    WHEN t.next_type IS NOT NULL AND t.next_type <> 'ClaimWon' THEN t.next_type
                    WHEN g.log_offset <= COALESCE(t.next_offset, g.log_offset)
                         OR t.next_epoch = t.epoch THEN 'log gap'
                    WHEN t.next_type = 'ClaimWon' THEN 'reclaimed' END AS ended,
               t.client_id, t.instance, t.epoch, t.position AS first_position,
               t.next_position AS last_position, t.date
        FROM (SELECT c.group_id, c.topic, c.partition, c.time, c.date, c.type, c.how, c.client_id,
                     c.epoch, c.position, c.instance, c.event_id,
                     LEAD(c.log_offset) OVER (PARTITION BY c.log, c.group_id, c.topic, c.partition
                                              ORDER BY c.log_offset, c.n) AS next_offset,
                     LEAD(c.time) OVER (PARTITION BY c.log, c.group_id, c.topic, c.partition
                                        ORDER BY c.log_offset, c.n) AS next_time,
                     LEAD(c.type) OVER (PARTITION BY c.log, c.group_id, c.topic, c.partition
                                        ORDER BY c.log_offset, c.n) AS next_type,
                     LEAD(c.epoch) OVER (PARTITION BY c.log, c.group_id, c.topic, c.partition
                                         ORDER BY c.log_offset, c.n) AS next_epoch,
                     LEAD(c.position) OVER (PARTITION BY c.log, c.group_id, c.topic, c.partition
                                            ORDER BY c.log_offset, c.n) AS next_position
              FROM (SELECT group_id, time, date, type, member_id AS client_id, log_offset, event_id,
                           regexp_extract(event_id, '^(.+)-m[0-9]+-[0-9]+-[0-9]+$', 1) AS log,
                           TRY_CAST(regexp_extract(event_id, '([0-9]+)$', 1) AS BIGINT) AS n,
                           get_json_object(detail, '$.topic') AS topic,
                           TRY_CAST(get_json_object(detail, '$.partition') AS INT) AS partition,
                           TRY_CAST(get_json_object(detail, '$.epoch') AS BIGINT) AS epoch,
                           TRY_CAST(get_json_object(detail, '$.position') AS BIGINT) AS position,
                           get_json_object(detail, '$.instance') AS instance,
                           get_json_object(detail, '$.how') AS how
                    FROM events WHERE space = 'claims'
                         AND type IN ('ClaimWon', 'ClaimResumed', 'ClaimReleased', 'ClaimExpired',
                                      'ClaimLost')) AS c) AS t
        LEFT JOIN (SELECT b.event_id, MIN(x.time) AS time, MIN(x.log_offset) AS log_offset
                   FROM (SELECT event_id, log_offset,
                                regexp_extract(event_id, '^(.+-m[0-9]+)-[0-9]+-[0-9]+$', 1) AS log
                         FROM events WHERE space = 'claims'
                              AND type IN ('ClaimWon', 'ClaimResumed')) AS b
                   JOIN (SELECT time, log_offset,
                                regexp_extract(event_id, '^(.+-m[0-9]+)-[0-9]+-[0-9]+$', 1) AS log
                         FROM events WHERE space = 'claims' AND type = 'LogGap') AS x
                   ON x.log = b.log AND x.log_offset > b.log_offset
                   GROUP BY b.event_id) AS g
        ON g.event_id = t.event_id
        WHERE t.type IN ('ClaimWon', 'ClaimResumed')""",
    # The claims that have not ended, with the newest sample of their positions.
    "current_claims": """
        SELECT c.group_id, c.topic, c.partition, c.client_id, c.instance, c.epoch, c.since, c.began,
               l.committed AS position, l.lag, l.lag_seconds, l.time AS position_time,
               c.date
        FROM (SELECT * FROM claims WHERE until IS NULL) AS c
        LEFT JOIN (SELECT * FROM current_lag WHERE space = 'claims') AS l
        ON l.group_id = c.group_id AND l.topic = c.topic AND l.partition = c.partition""",
    # One row for each range of records that the tables lack: Kafka deleted them before the archive
    # read them, or the topic has lost its end. `time` is when that was found.
    "lost_history": """
        SELECT time, get_json_object(detail, '$.topic') AS topic, shard,
               TRY_CAST(get_json_object(detail, '$.from_offset') AS BIGINT) AS from_offset,
               TRY_CAST(get_json_object(detail, '$.to_offset') AS BIGINT) AS to_offset, date,
               reason
        FROM events WHERE type = 'HistoryLost'""",
    # One row for each refused request, and each refused message of claims. `request` is its type;
    # `bytes` has the first bytes of one that could not be read. A refused commit has its `error`,
    # and in `offsets` the rows that were refused: as JSON, each with its own error.
    "rejected": """
        SELECT time, group_id, member_id, type,
               CASE WHEN type = 'CommitRefused' THEN reason
                    ELSE get_json_object(detail, '$.error') END AS error,
               COALESCE(get_json_object(detail, '$.request'),
                        CASE WHEN type = 'CommitRefused' THEN 'OffsetCommit'
                             WHEN space = 'claims' THEN get_json_object(detail, '$.message') END)
                   AS request,
               CASE WHEN space = 'claims' THEN NULLIF(member_id, '')
                    ELSE get_json_object(detail, '$.client') END AS client, reason,
               get_json_object(detail, '$.bytes') AS bytes, generation, shard, log_offset, event_id,
               CASE WHEN type = 'CommitRefused'
                    THEN get_json_object(detail, '$.offsets') END AS offsets,
               COALESCE(space, 'group') AS space, date
        FROM events WHERE type IN ('RequestRejected', 'CommitRefused')
             OR (space = 'claims' AND type IN ('HeartbeatRefused', 'ReleaseRefused', 'ClaimRefused',
                                               'MessageRejected'))""",
}

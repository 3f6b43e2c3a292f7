"""Views over the history of clusters of brokers: who led what, from when to when, and why.

All of it follows from events. A change of a partition is a row of PartitionsChanged; a topic's
life begins with TopicCreated and ends with TopicDeleted, which ends all of its partitions without
a row for each. Offsets of a shard's log rise for ever, and so do the incarnations and topic ids
that are made of them: what held at a change is the highest one before it.
"""

from typing import Final

#: View name to query, as `views.VIEWS`.
CLUSTER_VIEWS: Final[dict[str, str]] = {
    # Events of clusters; `group_id` is the cluster. `n` counts the events of one record.
    "cluster_events": """
        SELECT event_id, time, date, shard, log_offset,
               TRY_CAST(regexp_extract(event_id, '([0-9]+)$', 1) AS BIGINT) AS n,
               group_id, type, generation, member_id, cause, reason, detail
        FROM events WHERE space = 'cluster'""",
    # One row for each change of a partition's leader, in-sync replicas or replicas. `life` counts
    # the topics of one name; `deleted` is when this one was deleted.
    "partition_changes": """
        SELECT b.group_id, b.topic, b.partition, b.life, b.topic_id, b.time, b.was, b.leader,
               CASE WHEN b.leader >= 0 THEN b.incarnation END AS incarnation, b.leader_epoch,
               b.partition_epoch, b.fence, b.replicas, b.isr, b.election, b.reason, b.cause,
               b.deleted, b.deleting, COALESCE(b.unproved, FALSE) AS unproved, b.log_offset, b.n
        FROM (SELECT a.group_id, a.type, a.time, a.log_offset, a.n, a.reason, a.cause, a.topic,
                     a.partition, a.was, a.leader, a.leader_epoch, a.partition_epoch, a.fence,
                     a.replicas, a.isr, a.election, a.unproved, a.life, a.incarnation,
                     MAX(a.topic_id) OVER (PARTITION BY a.group_id, a.topic, a.life) AS topic_id,
                     MAX(CASE WHEN a.type = 'TopicDeleted' THEN a.time END)
                         OVER (PARTITION BY a.group_id, a.topic, a.life) AS deleted,
                     MAX(CASE WHEN a.type = 'TopicDeletionStarted' THEN a.log_offset END)
                         OVER (PARTITION BY a.group_id, a.topic, a.life) AS deleting
              FROM (SELECT u.*,
                           COUNT(CASE WHEN u.type = 'TopicDeleted' THEN 1 END)
                               OVER (PARTITION BY u.group_id, u.topic ORDER BY u.log_offset, u.n
                                     ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS life,
                           MAX(u.registered) OVER (PARTITION BY u.group_id, u.leader
                                                   ORDER BY u.log_offset, u.n) AS incarnation
                    FROM (SELECT x.group_id, x.type, x.time, x.log_offset, x.n, x.reason, x.cause,
                                 x.item.topic AS topic, x.item.partition AS partition,
                                 x.item.was AS was, x.item.leader AS leader,
                                 x.item.leader_epoch AS leader_epoch,
                                 x.item.partition_epoch AS partition_epoch,
                                 x.item.fence AS fence, x.item.replicas AS replicas,
                                 x.item.isr AS isr, x.item.election AS election,
                                 x.item.unproved AS unproved,
                                 CAST(NULL AS BIGINT) AS topic_id,
                                 CAST(NULL AS BIGINT) AS registered
                          FROM (SELECT e.group_id, e.type, e.time, e.log_offset, e.n, e.reason,
                                       e.cause, explode(e.items) AS item
                                FROM (SELECT *, changes_in(detail) AS items FROM cluster_events
                                      WHERE type = 'PartitionsChanged') AS e) AS x
                          UNION ALL
                          SELECT group_id, type, time, log_offset, n, reason, cause,
                                 get_json_object(detail, '$.topic') AS topic, NULL, NULL,
                                 TRY_CAST(get_json_object(detail, '$.broker') AS INT), NULL, NULL,
                                 NULL, NULL, NULL, NULL, NULL,
                                 TRY_CAST(get_json_object(detail, '$.topic_id') AS BIGINT),
                                 TRY_CAST(get_json_object(detail, '$.incarnation') AS BIGINT)
                          FROM cluster_events
                          WHERE type IN ('TopicCreated', 'TopicDeletionStarted', 'TopicDeleted',
                                         'BrokerRegistered')) AS u) AS a) AS b
        WHERE b.type = 'PartitionsChanged'""",
    # One row for each leader epoch, those without a leader included.
    #
    # Its first change began it.
    "leader_epochs": """
        SELECT t.group_id, t.topic, t.partition, t.life, t.was, t.leader, t.incarnation,
               t.leader_epoch, t.fence, t.isr, t.time AS since,
               COALESCE(LEAD(t.time) OVER (PARTITION BY t.group_id, t.topic, t.partition, t.life
                                           ORDER BY t.leader_epoch), t.deleted) AS until,
               t.election, t.reason, t.unproved, t.deleting, t.log_offset
        FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY group_id, topic, partition, life,
                                                        leader_epoch
                                           ORDER BY log_offset, n) AS k
              FROM partition_changes) AS t
        WHERE t.k = 1""",
    # One row for each leader epoch with a leader, from `since` to `until`. A null `election`: the
    # end of a reassignment began the epoch. `unproved`: the leader before it was a legacy broker,
    # of which nothing proved that it had stopped.
    "leaders": """
        SELECT group_id, topic, partition, leader, incarnation, leader_epoch, fence, since, until,
               election, reason, unproved, utc_date(since) AS date
        FROM leader_epochs WHERE leader >= 0""",
    # One row for each time without a leader: `was` led before, `why` no broker could lead, and the
    # `reason` of the change.
    "leaderless": """
        SELECT l.group_id, l.topic, l.partition, l.leader_epoch, l.since, l.until, l.was,
               CASE WHEN l.deleting <= l.log_offset THEN 'topic is being deleted'
                    WHEN l.leader_epoch < 0 THEN 'never led: no replica is active'
                    WHEN h.broker IS NOT NULL THEN 'former leader may still act'
                    ELSE 'no replica in sync is active' END AS why, l.reason, l.unproved,
               utc_date(l.since) AS date
        FROM leader_epochs AS l
        LEFT JOIN (SELECT DISTINCT group_id, log_offset,
                          TRY_CAST(get_json_object(detail, '$.broker') AS INT) AS broker
                   FROM cluster_events WHERE type = 'HandOverDelayed') AS h
        ON h.group_id = l.group_id AND h.log_offset = l.log_offset AND h.broker = l.was
        WHERE l.leader < 0""",
    # One row for each set of in-sync replicas of a partition, from `since` to `until`.
    "isr_history": """
        SELECT i.group_id, i.topic, i.partition, i.isr, i.replicas, i.leader, i.leader_epoch,
               i.partition_epoch, i.time AS since,
               COALESCE(LEAD(i.time) OVER (PARTITION BY i.group_id, i.topic, i.partition, i.life
                                           ORDER BY i.log_offset, i.n), i.deleted) AS until,
               i.reason, utc_date(i.time) AS date
        FROM (SELECT c.*, LAG(c.isr) OVER (PARTITION BY c.group_id, c.topic, c.partition, c.life
                                           ORDER BY c.log_offset, c.n) AS isr_before
              FROM partition_changes AS c) AS i
        WHERE i.isr_before IS NULL OR i.isr <> i.isr_before""",
    # One row for each state of an incarnation of a broker. A newer incarnation ends the states of
    # an older one.
    "broker_history": """
        SELECT s.group_id, s.broker, s.incarnation, s.state, s.since, s.until, s.reason,
               s.member_id, utc_date(s.since) AS date
        FROM (SELECT b.*, LEAD(b.since) OVER (PARTITION BY b.group_id, b.broker
                                              ORDER BY b.log_offset, b.n) AS until
              FROM (SELECT group_id, time AS since, log_offset, n, member_id,
                           TRY_CAST(get_json_object(detail, '$.broker') AS INT) AS broker,
                           TRY_CAST(get_json_object(detail, '$.incarnation') AS BIGINT)
                               AS incarnation,
                           CASE type WHEN 'BrokerRegistered' THEN 'Inactive'
                                     WHEN 'BrokerStateChanged'
                                     THEN get_json_object(detail, '$.to') END AS state,
                           CASE WHEN type = 'BrokerRegistered' AND reason = '' THEN 'registered'
                                ELSE reason END AS reason
                    FROM cluster_events
                    WHERE type IN ('BrokerRegistered', 'BrokerStateChanged',
                                   'BrokerUnregistered')) AS b) AS s
        WHERE s.state IS NOT NULL""",
    # One row for each registered broker, Inactive ones included.
    "current_brokers": """
        SELECT h.group_id, h.broker, h.incarnation, h.state, h.since, h.reason, r.client_id,
               h.member_id, r.rack, r.storage, r.endpoints, r.session_timeout_ms,
               r.release_timeout_ms, r.is_legacy, r.registered, h.date
        FROM (SELECT * FROM broker_history WHERE until IS NULL) AS h
        LEFT JOIN (SELECT group_id, time AS registered,
                          TRY_CAST(get_json_object(detail, '$.broker') AS INT) AS broker,
                          TRY_CAST(get_json_object(detail, '$.incarnation') AS BIGINT)
                              AS incarnation,
                          get_json_object(detail, '$.client') AS client_id,
                          get_json_object(detail, '$.rack') AS rack,
                          get_json_object(detail, '$.storage') AS storage,
                          get_json_object(detail, '$.endpoints') AS endpoints,
                          TRY_CAST(get_json_object(detail, '$.session_timeout_ms') AS INT)
                              AS session_timeout_ms,
                          TRY_CAST(get_json_object(detail, '$.release_timeout_ms') AS INT)
                              AS release_timeout_ms,
                          get_json_object(detail, '$.is_legacy') = 'true' AS is_legacy
                   FROM cluster_events WHERE type = 'BrokerRegistered') AS r
        ON r.group_id = h.group_id AND r.broker = h.broker AND r.incarnation = h.incarnation""",
    # One row for each partition, as its newest change left it; `since` is when that was.
    "current_partitions": """
        SELECT p.group_id, p.topic, p.partition, p.topic_id, p.leader, p.incarnation,
               p.leader_epoch, p.partition_epoch, p.fence, p.replicas, p.isr, p.time AS since,
               p.reason, utc_date(p.time) AS date
        FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY group_id, topic, partition
                                           ORDER BY log_offset DESC, n DESC) AS k
              FROM partition_changes) AS p
        WHERE p.k = 1 AND p.deleted IS NULL""",
}

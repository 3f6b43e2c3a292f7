"""Views over transactions: how each ended and why, who was fenced, which offsets waited how long.

An id's own events have the space `transaction`, and `group_id` is the id. Those of pending offsets
are events of groups; their `transaction` is the key under which offsets wait: the coordinate of a
record where Kafka or a Delta table decides, `<producer id>-<epoch>` where the coordinator does.
"""

from typing import Final

#: View name to query, as `views.VIEWS`; they need `group_events`.
TRANSACTION_VIEWS: Final[dict[str, str]] = {
    # One row for each transaction that the coordinator decides. `ended`: when it was decided;
    # `completed`: when all of its groups and partitions had the decision. `ended_by`: the client
    # that fenced or aborted it.
    "transactions": """
        SELECT t.id, t.producer_id, t.epoch, t.started, t.ended, t.result, t.reason, t.duration_ms,
               names_in(t.group_names) AS groups, t.partitions, t.completed, t.client_id,
               t.ended_by, t.comment,
               CONCAT(CAST(t.producer_id AS STRING), '-', CAST(t.epoch AS STRING)) AS transaction,
               utc_date(COALESCE(t.started, t.ended)) AS date
        FROM (SELECT e.group_id AS id, e.producer_id, e.epoch,
                     MIN(CASE WHEN e.type = 'TransactionStarted' THEN e.time END) AS started,
                     MIN(CASE WHEN e.type = 'TransactionPrepared' THEN e.time END) AS ended,
                     MIN(CASE WHEN e.type = 'TransactionCompleted' THEN e.time END) AS completed,
                     MIN(get_json_object(e.detail, '$.result')) AS result,
                     MIN(CASE WHEN e.type = 'TransactionPrepared' THEN e.reason END) AS reason,
                     MIN(CASE WHEN e.type = 'TransactionCompleted'
                         THEN TRY_CAST(get_json_object(e.detail, '$.duration_ms') AS BIGINT) END)
                         AS duration_ms,
                     MIN(CASE WHEN e.type = 'TransactionPrepared'
                         THEN get_json_object(e.detail, '$.groups') END) AS group_names,
                     MIN(CASE WHEN e.type = 'TransactionPrepared'
                         THEN TRY_CAST(get_json_object(e.detail, '$.partitions') AS INT) END)
                         AS partitions,
                     MIN(get_json_object(e.detail, '$.client')) AS client_id,
                     MIN(get_json_object(e.detail, '$.by')) AS ended_by,
                     MIN(get_json_object(e.detail, '$.comment')) AS comment
              FROM (SELECT *,
                           TRY_CAST(get_json_object(detail, '$.producer_id') AS BIGINT)
                               AS producer_id,
                           TRY_CAST(get_json_object(detail, '$.epoch') AS INT) AS epoch
                    FROM events
                    WHERE space = 'transaction'
                          AND type IN ('TransactionStarted', 'TransactionPrepared',
                                       'TransactionCompleted', 'ProducerFenced')) AS e
              GROUP BY e.group_id, e.producer_id, e.epoch) AS t
        WHERE t.started IS NOT NULL OR t.ended IS NOT NULL""",
    # One row for each producer that a newer one replaced, with or without an open transaction.
    "fenced_producers": """
        SELECT group_id AS id,
               TRY_CAST(get_json_object(detail, '$.producer_id') AS BIGINT) AS producer_id,
               TRY_CAST(get_json_object(detail, '$.epoch') AS INT) AS epoch,
               get_json_object(detail, '$.client') AS client_id, time AS fenced,
               get_json_object(detail, '$.by') AS fenced_by, date
        FROM events WHERE space = 'transaction' AND type = 'ProducerFenced'""",
    # Events of commits of the groups that ever had pending offsets, with their transaction.
    "pending_events": """
        SELECT g.group_id, g.type, g.time, g.log_offset, g.member_id, g.generation, g.reason,
               g.detail,
               get_json_object(g.detail, '$.transaction') AS transaction,
               get_json_object(g.detail, '$.decided_by') AS decided_by
        FROM group_events AS g
        JOIN (SELECT DISTINCT group_id FROM group_events WHERE type = 'OffsetsPending') AS k
        ON k.group_id = g.group_id
        WHERE g.type IN ('OffsetsPending', 'OffsetsCommitted', 'OffsetsDropped')""",
    # One row for each offset that waited for a decision, from `since` to `until` (null: it waits).
    # `outcome`: committed, dropped, or superseded by a later commit of the partition.
    #
    # An offset waited at a time T if since <= T and (until is null or until > T). A later commit of
    # the partition takes an offset out of the entry: of what is decided, the decision names all
    # that was left.
    "pending_offsets": """
        SELECT w.group_id, w.topic, w.partition, w.offset AS offset, w.since,
               COALESCE(w.replaced, w.decided, w.taken_out) AS until,
               CASE WHEN w.replaced IS NOT NULL THEN 'superseded'
                    WHEN w.decided IS NOT NULL THEN w.decision
                    WHEN w.taken_out IS NOT NULL THEN 'superseded' END AS outcome,
               w.transaction, w.decided_by, w.client_id, w.member_id, w.generation, w.delta_table,
               CASE WHEN w.replaced IS NULL THEN w.ended_by END AS ended_by,
               CASE WHEN w.replaced IS NULL THEN w.reason END AS reason,
               utc_date(w.since) AS date
        FROM (SELECT p.*, d.decided, d.decision, d.ended_by, d.reason,
                     LEAST(p.committed_over, f.ended,
                           MIN(CASE WHEN d.decision = 'committed' THEN d.decided END)
                               OVER (PARTITION BY p.group_id, p.topic, p.partition
                                     ORDER BY p.log_offset, p.since
                                     ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)) AS taken_out
              FROM (SELECT u.*,
                           LEAD(CASE WHEN u.is_pending THEN u.since END) OVER
                               (PARTITION BY u.group_id, u.topic, u.partition, u.transaction
                                ORDER BY u.log_offset) AS replaced,
                           MIN(CASE WHEN NOT u.is_pending THEN u.since END) OVER
                               (PARTITION BY u.group_id, u.topic, u.partition
                                ORDER BY u.since, u.log_offset
                                ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS committed_over
                    FROM (SELECT x.group_id, x.item.topic AS topic, x.item.partition AS partition,
                                 x.item.offset AS offset, x.time AS since, x.log_offset,
                                 x.transaction, x.decided_by, x.client_id, x.member_id,
                                 x.generation, x.delta_table,
                                 x.type = 'OffsetsPending' AS is_pending
                          FROM (SELECT e.group_id, e.type, e.time, e.log_offset, e.member_id,
                                       e.generation, e.transaction, e.decided_by,
                                       get_json_object(e.detail, '$.client') AS client_id,
                                       get_json_object(e.detail, '$.table') AS delta_table,
                                       explode(e.items) AS item
                                FROM (SELECT *, offsets_in(detail) AS items FROM pending_events
                                      WHERE type = 'OffsetsPending'
                                            OR (type = 'OffsetsCommitted' AND transaction IS NULL))
                                     AS e) AS x) AS u) AS p
              LEFT JOIN (SELECT x.group_id, x.transaction, x.item.topic AS topic,
                                x.item.partition AS partition, MIN(x.time) AS decided,
                                MIN(x.ended_by) AS ended_by, MIN(NULLIF(x.reason, '')) AS reason,
                                MIN(CASE WHEN x.type = 'OffsetsDropped' THEN 'dropped'
                                         ELSE 'committed' END) AS decision
                         FROM (SELECT e.group_id, e.transaction, e.type, e.time, e.reason,
                                      get_json_object(e.detail, '$.by') AS ended_by,
                                      explode(e.items) AS item
                               FROM (SELECT *, offsets_in(detail) AS items FROM pending_events
                                     WHERE type IN ('OffsetsCommitted', 'OffsetsDropped')
                                           AND transaction IS NOT NULL) AS e) AS x
                         GROUP BY x.group_id, x.transaction, x.item.topic, x.item.partition) AS d
              ON d.group_id = p.group_id AND d.transaction = p.transaction
                 AND d.topic = p.topic AND d.partition = p.partition
              LEFT JOIN (SELECT group_id, transaction, MIN(time) AS ended FROM pending_events
                         WHERE type IN ('OffsetsCommitted', 'OffsetsDropped')
                               AND transaction IS NOT NULL
                         GROUP BY group_id, transaction) AS f
              ON f.group_id = p.group_id AND f.transaction = p.transaction
              WHERE p.is_pending) AS w""",
}

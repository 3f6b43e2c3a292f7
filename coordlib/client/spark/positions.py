"""Positions in Spark's format: of a running query, and of a query to be started.

Spark writes offsets as `{"topic": {"0": 23}}`, the next offset to read, as Kafka's committed ones
are; -2 means the earliest and -1 the latest.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from confluent_kafka import KafkaException

from coordlib.client.admin import Admin
from coordlib.client.kit.events import TopicPartition
from coordlib.errors import CannotReach, SetupError
from coordlib.history.sql import query_tables
from coordlib.kafka.clients import open_admin, reason_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Otherwise = Literal["earliest", "latest"]
_WORDS: Final[dict[str, int]] = {"earliest": -2, "latest": -1}
_KAFKA_SOURCE: Final = "KafkaV2["
_TIMEOUT_S: Final = 30.0
#: The last event of each partition until a time, if it was a commit. Two events of one millisecond
#: have an order in the log of events.
_AS_OF: Final = """
    SELECT c.topic, c.partition, c.offset FROM (
        SELECT x.type, x.item.topic AS topic, x.item.partition AS partition,
               x.item.offset AS offset,
               ROW_NUMBER() OVER (PARTITION BY x.item.topic, x.item.partition
                                  ORDER BY x.time DESC, x.log_offset DESC) AS n
        FROM (SELECT e.type, e.time, e.log_offset, explode(e.items) AS item
              FROM (SELECT type, time, log_offset, offsets_in(detail) AS items
                    FROM group_events
                    WHERE group_id = $1 AND time <= $2 AND date <= CAST($2 AS DATE)
                      AND type IN ('OffsetsCommitted', 'OffsetsDeleted', 'OffsetsExpired')) AS e
             ) AS x) AS c
    WHERE c.n = 1 AND c.type = 'OffsetsCommitted'"""


def starting_offsets(
    group: str,
    topics: Sequence[str],
    as_of: datetime | None = None,
    *,
    config: Mapping[str, Any],
    prefix: str = "coord",
    tables: str | Path | None = None,
    otherwise: Otherwise = "earliest",
) -> str:
    """The text for Spark's option `startingOffsets`: a group's offsets, present or past.

    Every partition of the topics is named, as Spark demands with `assign` and `subscribe`.

    Args:
        group: the group whose committed offsets are used.
        topics: their topics; they must exist.
        as_of: a past time, answered from the history in Delta; None: now, by the coordinator,
            in order with all commits that were written before the call.
        config: confluent-kafka's keys, at least `bootstrap.servers`.
        tables: the folder of the history's tables; needed for a past time.
        otherwise: where partitions without a committed offset begin.

    Raises:
        SetupError: a past time without tables, or without a time zone.
        CannotReach: no broker, no coordinator, no history, or no such topic.
        GroupError: the coordinator refused the request.
    """
    if as_of is None:
        with Admin(config, prefix) as admin:
            rows = [(row.topic, row.partition, row.offset) for row in admin.committed(group)]
    else:
        rows = _history(group, as_of, tables)
    found = {TopicPartition(topic, partition): offset for topic, partition, offset in rows}
    places = partitions_of(config, topics)
    return spark_offsets({each: found.get(each, -1) for each in places}, otherwise)


def _history(group: str, as_of: datetime, tables: str | Path | None) -> list[tuple[str, int, int]]:
    if tables is None:
        hint = "Name the folder of the Delta tables: tables=..."
        raise SetupError("A past time is answered from the history.", "tables is None", hint)
    if as_of.tzinfo is None:
        hint = "Give it one, for example datetime(..., tzinfo=timezone.utc)."
        raise SetupError("A time without a time zone is no moment.", repr(as_of), hint)
    rows = query_tables(tables, _AS_OF, [group, as_of]).rows
    return [(str(topic), int(partition), int(offset)) for topic, partition, offset in rows]


def partitions_of(config: Mapping[str, Any], topics: Iterable[str]) -> tuple[TopicPartition, ...]:
    """All partitions of these topics. Raises CannotReach."""
    try:
        found = open_admin(config).list_topics(timeout=_TIMEOUT_S).topics
    except KafkaException as problem:
        what = f"The broker did not answer: {reason_of(problem)}"
        raise CannotReach(what, str(config.get("bootstrap.servers")), "Does it run?") from problem
    missing = [topic for topic in topics if topic not in found or found[topic].error]
    if missing:
        raise CannotReach("There is no such topic.", ", ".join(missing), "Check its name.")
    return tuple(
        TopicPartition(topic, each) for topic in topics for each in found[topic].partitions
    )


def spark_offsets(offsets: Mapping[TopicPartition, int], otherwise: Otherwise = "earliest") -> str:
    """As Spark's JSON; negative offsets mean that nothing is committed."""
    by_topic: dict[str, dict[str, int]] = {}
    for each in sorted(offsets):
        offset = offsets[each]
        known = offset if offset >= 0 else _WORDS[otherwise]
        by_topic.setdefault(each.topic, {})[str(each.partition)] = known
    return json.dumps(by_topic)


def spark_partitions(partitions: Iterable[TopicPartition]) -> str:
    """The text for Spark's option `assign`."""
    by_topic: dict[str, list[int]] = {}
    for each in sorted(partitions):
        by_topic.setdefault(each.topic, []).append(each.partition)
    return json.dumps(by_topic)


def finished(query: "StreamingQuery") -> dict[TopicPartition, int]:
    """The next offset to read of each partition, by the query's newest finished batch.

    Spark reports progress after a batch has ended, its commit log included; empty before the first.
    """
    progress = query.lastProgress
    return end_offsets(progress) if progress is not None else {}


def end_offsets(progress: Any) -> dict[TopicPartition, int]:
    """The same from one progress report; sources other than Kafka's are skipped."""
    found: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        if _KAFKA_SOURCE in source["description"]:
            found.update(_read(source["endOffset"]))
    return found


def _read(offsets: Any) -> dict[TopicPartition, int]:
    """Spark reports it as JSON text, `null` before the first; inside its own JSON as an object."""
    by_topic = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, rows in (by_topic or {}).items()
        for partition, offset in rows.items()
    }

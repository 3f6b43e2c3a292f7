"""What a task of `format("coord")` reads, from a real broker."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql.pandas.types import to_arrow_schema

from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark import source_reading
from coordlib.client.spark.source_offsets import PlannedRange
from coordlib.client.spark.source_options import SourceOptions, parse
from coordlib.client.spark.source_reading import Task, read_task, schema_of
from coordlib.errors import CannotReach
from coordlib.local.broker import Broker
from tests.kit.logs import delete_records

pytestmark = pytest.mark.stack


class Log:
    """A topic of two partitions, and what a task reads of it."""

    def __init__(self, servers: str) -> None:
        self.config: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
        self.topic = f"read-{uuid4().hex[:8]}"
        self.admin = AdminClient(self.config)
        config = {"max.message.bytes": str(12 << 20)}
        self.admin.create_topics([NewTopic(self.topic, 2, 1, config=config)])[self.topic].result(30)
        self.producer = Producer(self.config | {"message.max.bytes": 12 << 20})
        given = {"kafka.bootstrap.servers": servers, "subscribe": self.topic, "group.id": "g"}
        self.options: SourceOptions = parse(given)

    def write(self, *values: Any, partition: int = 0, **more: Any) -> None:
        for value in values:
            self.producer.produce(self.topic, value, partition=partition, **more)
        assert self.producer.flush(30) == 0

    def batches(self, ends: dict[int, tuple[int, int]], **more: Any) -> list[pa.RecordBatch]:
        ranges = {
            TopicPartition(self.topic, each): PlannedRange(*at, fence=7)
            for each, at in ends.items()
        }
        return list(read_task(replace(self.options, **more), Task(ranges)))

    def rows(self, ends: dict[int, tuple[int, int]], **more: Any) -> list[dict[str, Any]]:
        return [row for batch in self.batches(ends, **more) for row in batch.to_pylist()]


@pytest.fixture
def log(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    consumers = source_reading._Consumers()
    monkeypatch.setattr(source_reading, "_CONSUMERS", consumers)
    yield Log(broker.bootstrap_servers)
    for consumer, _ in consumers._idle.values():
        consumer.close()


def test_rows_are_those_of_sparks_own_source_and_no_others(log: Log) -> None:
    log.write(b"a", b"b", b"c", b"d", key=b"k", timestamp=1_700_000_000_123)
    log.write(None, partition=1, headers=[("h", b"1"), ("h", None)])
    batches = log.batches({0: (1, 3), 1: (0, 1)}, include_headers=True, include_fence=True)
    options = replace(log.options, include_headers=True, include_fence=True)
    rows = sorted(
        (row for batch in batches for row in batch.to_pylist()),
        key=lambda row: (row["partition"], row["offset"]),
    )

    assert all(
        each.schema == to_arrow_schema(schema_of(options), timezone="UTC") for each in batches
    )
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == [
        (0, 1, b"b"),
        (0, 2, b"c"),
        (1, 0, None),
    ]
    assert rows[0]["key"] == b"k"
    assert rows[0]["timestamp"].timestamp() == 1_700_000_000.123
    assert {(row["topic"], row["timestampType"], row["fence"]) for row in rows} == {
        (log.topic, 0, 7)
    }
    assert rows[0]["headers"] is None
    assert rows[2]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]


def test_a_range_ends_at_a_position_that_may_hold_no_record(log: Log) -> None:
    """Markers of transactions, and records of aborted ones, count."""
    producer = Producer(log.config | {"transactional.id": log.topic})
    producer.init_transactions()
    for commits in (True, False):
        producer.begin_transaction()
        producer.produce(log.topic, b"x", partition=0)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()
    committed = {"data": {**log.options.data, "isolation.level": "read_committed"}}

    assert [row["offset"] for row in log.rows({0: (0, 4)}, **committed)] == [0]
    assert [row["offset"] for row in log.rows({0: (0, 2)})] == [0]
    assert [row["offset"] for row in log.rows({0: (0, 4)})] == [0, 2]


def test_a_consumer_is_used_again_and_what_it_fetched_beyond_is_dropped(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    real = source_reading.Consumer
    monkeypatch.setattr(
        source_reading, "Consumer", lambda config: made.append(config) or real(config)
    )
    log.write(*(b"%d" % n for n in range(100)))

    assert [row["offset"] for row in log.rows({0: (0, 10)})] == list(range(10))
    assert [row["offset"] for row in log.rows({0: (5, 30)})] == list(range(5, 30))
    assert len(made) == 1


def test_batches_are_cut_by_rows_and_by_bytes(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_reading, "ROWS_MAX", 30)
    log.write(*(b"%d" % n for n in range(100)))
    log.write(b"x" * (10 << 20), b"y" * (10 << 20), partition=1)

    assert max(batch.num_rows for batch in log.batches({0: (0, 100)})) <= 30
    assert [batch.num_rows for batch in log.batches({1: (0, 2)})] == [1, 1]


def test_a_task_that_is_sent_nothing_names_the_newest_error(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range beyond the log's end: the log was cut after the batch was planned."""
    monkeypatch.setattr(source_reading, "SILENCE_S", 1.0)
    log.write(b"a")

    with pytest.raises(CannotReach, match=f"send no records.*\n{log.topic}-0"):
        log.rows({0: (0, 5)})


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_range_below_the_logs_start_fails_a_strict_query_alone(log: Log, is_strict: bool) -> None:
    log.write(b"a", b"b", b"c")
    log.write(b"d", partition=1)
    cut = KafkaPartition(log.topic, 0, 2)
    delete_records(log.admin, cut)
    ends = {0: (0, 3), 1: (0, 1)}
    if is_strict:
        with pytest.raises(KafkaException):
            log.rows(ends)
    else:
        rows = log.rows(ends, is_strict=False)
        assert sorted(row["value"] for row in rows) == [b"c", b"d"]

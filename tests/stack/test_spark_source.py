"""`format("coord")` on a real broker, job and Spark: queries are members, and none is restarted.

Shows INV-147 and INV-148.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.client.admin import Admin
from coordlib.client.spark.source import register
from coordlib.local.stack import Stack
from coordlib.spark_stopping import stop_between_batches
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.stack
PATIENCE_S = 120.0
KEYS = 5
PLANNER = "python_streaming_source_runner"


class Counts:
    """Queries of one group that count records per key; each keeps its own counts."""

    def __init__(self, stack: Stack, spark: "SparkSession", group: str, folder: Path) -> None:
        self.spark, self.group, self.folder = spark, group, folder
        self.config: dict[str, Any] = {
            "bootstrap.servers": stack.bootstrap_servers,
            "log_level": 0,
        }
        self.topic = f"counted-{group}"
        self.admin = AdminClient(self.config)
        self.admin.create_topics([NewTopic(self.topic, 4, 1)])[self.topic].result(30)
        self.producer = Producer(self.config)
        self.written = 0
        #: By query, its counts per key after its newest batch.
        self.counts: dict[str, dict[str, int]] = {}
        #: By query, the partitions of its newest batch with records.
        self.read: dict[str, set[int]] = {}
        #: Partition and offset of all that was read, by all queries.
        self.seen: list[tuple[int, int]] = []
        register(spark)

    def write(self, count: int = 40) -> None:
        for _ in range(count):
            number, self.written = self.written, self.written + 1
            self.producer.produce(
                self.topic, b"%d" % number, key=b"%d" % (number % KEYS), partition=number % 4
            )
        assert self.producer.flush(30) == 0

    def rows(self, **more: str) -> "DataFrame":
        options = {
            "kafka.bootstrap.servers": self.config["bootstrap.servers"],
            "subscribe": self.topic,
            "group.id": self.group,
            "startingOffsets": "earliest",
            "session.timeout.ms": "6000",
            **more,
        }
        return self.spark.readStream.format("coord").options(**options).load()

    def start(self, name: str) -> "StreamingQuery":
        """A stateful query: its counts go on over batches of other partitions."""
        rows = self.rows()

        def collect(batch: "DataFrame", _number: int) -> None:
            for row in batch.collect():
                self.counts.setdefault(name, {})[row["key"]] = row["count"]

        counted = rows.selectExpr("CAST(key AS STRING) AS key").groupBy("key").count()
        return (
            counted.writeStream.outputMode("update")
            .foreachBatch(collect)
            .option("checkpointLocation", str(self.folder / name))
            .start()
        )

    def watch(self, name: str, **more: Any) -> "StreamingQuery":
        """A query that only notes what it reads."""

        def collect(batch: "DataFrame", _number: int) -> None:
            found = [(row["partition"], row["offset"]) for row in batch.collect()]
            self.seen += found
            if found:
                self.read[name] = {partition for partition, _ in found}

        writer = self.rows().select("partition", "offset").writeStream.foreachBatch(collect)
        if more:
            writer = writer.trigger(**more)
        return writer.option("checkpointLocation", str(self.folder / name)).start()

    def total(self) -> dict[str, int]:
        """Per key, over all queries."""
        found: dict[str, int] = {}
        for counts in self.counts.values():
            for key, count in counts.items():
                found[key] = found.get(key, 0) + count
        return found

    def all_are_counted(self) -> bool:
        return sum(self.total().values()) >= self.written

    def members(self) -> int:
        with Admin(self.config) as admin:
            return len(admin.describe_group(self.group).members)


@pytest.fixture
def counts(
    shared_stack: Stack, spark: "SparkSession", group: str, tmp_path: Path
) -> Iterator[Counts]:
    yield Counts(shared_stack, spark, group, tmp_path)
    for query in spark.streams.active:
        query.stop()
    wait_until("no planner is left", lambda: not planners(), PATIENCE_S)


def planners() -> list[psutil.Process]:
    """The planners' processes below this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if PLANNER in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_count_goes_on_while_partitions_come_and_go(counts: Counts) -> None:
    """Two queries with state hand partitions over; both go on, and their sum is exact."""
    counts.write()
    one = counts.start("one")
    wait_until("one counts all", counts.all_are_counted, PATIENCE_S)
    run = one.runId
    two = counts.start("two")

    def both_count() -> bool:
        counts.write()
        return "two" in counts.counts

    wait_until("two counts, too", both_count, PATIENCE_S)
    stop_between_batches(two)
    counts.write()
    wait_until("one counts the rest", counts.all_are_counted, PATIENCE_S)

    assert counts.total() == {str(key): counts.written // KEYS for key in range(KEYS)}
    assert one.isActive
    assert one.runId == run
    assert counts.members() == 1


def test_a_query_that_stops_and_starts_reads_nothing_twice(counts: Counts) -> None:
    for _ in range(3):
        query = counts.watch("one")
        counts.write()
        wait_until("all is read", lambda: len(set(counts.seen)) == counts.written, PATIENCE_S)
        stop_between_batches(query)

    assert len(counts.seen) == counts.written


def test_available_now_ends_by_itself_and_leaves_nothing_uncommitted(counts: Counts) -> None:
    counts.write()
    query = counts.watch("one", availableNow=True)

    assert query.awaitTermination(int(PATIENCE_S))
    assert len(counts.seen) == counts.written
    with Admin(counts.config) as admin:
        rows = admin.committed(counts.group)
    assert sum(row.offset for row in rows) == counts.written


def test_a_planner_that_is_killed_fails_its_query_and_others_go_on(counts: Counts) -> None:
    counts.write()
    one = counts.watch("one")
    wait_until("all is read", lambda: len(set(counts.seen)) == counts.written, PATIENCE_S)
    (planner,) = planners()
    os.kill(planner.pid, signal.SIGKILL)
    counts.write()

    wait_until("its query fails", lambda: not one.isActive, PATIENCE_S)
    again = counts.watch("one")  # from its checkpoint
    wait_until("the rest is read", lambda: len(set(counts.seen)) == counts.written, PATIENCE_S)
    assert again.isActive

"""Spark queries as members of a group, over a real broker, job and Spark."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.cli.main.main import main
from coordlib.client.admin import Admin
from coordlib.client.spark.delta_writes import Share
from coordlib.client.spark.positions import starting_offsets
from coordlib.client.spark.progress import publish_progress
from coordlib.client.spark.reader import SparkGroupReader
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin
from coordlib.kafka.logs import Bounds, Place
from coordlib.local.stack import Stack
from tests.kit.logs import delete_records
from tests.kit.waiting import wait_until
from tests.stack.crew import Crew
from tests.stack.flow import Flow
from tests.stack.spark_crew import (
    ASSIGNED,
    PATIENCE_S,
    TIMING,
    read_again_after_it_was_finished,
    spark_holds,
    start_queries,
    until_even,
)
from tests.stack.wire import Wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.stack


@pytest.mark.chaos
def test_two_queries_and_a_consumer_share_a_topic_and_one_query_dies(
    crew: Crew, flow: Flow, wire: Wire, group: str
) -> None:
    """They come one after another; then a machine loses power. Records come at every change."""
    start_queries(crew, "spark-1")
    flow.begin()
    until_even(crew, flow.places, "spark-1")
    crew.until("it reads", lambda: crew["spark-1"].readings)

    crew.start("python", **ASSIGNED)
    until_even(crew, flow.places, "spark-1", "python")
    start_queries(crew, "spark-2")
    everybody = ("spark-1", "python", "spark-2")
    until_even(crew, flow.places, *everybody)
    crew.until("all read", lambda: all(crew[name].readings for name in everybody))
    assert not read_again_after_it_was_finished(crew)

    crew.kill("spark-2")
    until_even(crew, flow.places, "spark-1", "python")
    spark_holds(crew, flow, wire, group)


class Table:
    """A Delta table that readers of one group write to, in this process."""

    def __init__(self, spark: "SparkSession", path: Path) -> None:
        self.spark, self.path = spark, str(path)
        self.shares: list[Share] = []

    def start(self, rows: "DataFrame", share: Share) -> "DataStreamWriter":
        wanted = rows.selectExpr("topic", "partition", "CAST(value AS STRING) AS value")
        share.claim(self.spark.createDataFrame([], wanted.schema), self.path)
        self.shares.append(share)
        return wanted.writeStream.foreachBatch(
            lambda batch, number: share.write(batch, self.path, number)
        )

    def write_late(self, share: Share, value: str) -> None:
        """A batch of somebody who has not noticed that it lost everything."""
        zombie = replace(share, may_work=lambda: True)
        (partition,) = share.partitions
        columns = "topic STRING, partition INT, value STRING"
        zombie.write(self.spark.createDataFrame([(*partition, value)], columns), self.path, 1_000)

    def values(self) -> list[str]:
        return sorted(
            row["value"] for row in self.spark.read.format("delta").load(self.path).collect()
        )


@pytest.fixture
def table(spark: "SparkSession", tmp_path: Path) -> Iterator[Table]:
    yield Table(spark, tmp_path / "table")
    for query in spark.streams.active:
        query.stop()


@pytest.mark.chaos
def test_a_former_owner_writes_nothing_late_and_progress_shows(
    shared_stack: Stack,
    spark: "SparkSession",
    table: Table,
    group: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was suspended in a batch and wakes up after others took over; and once more after the
    group was deleted and made anew, so that its generations begin at 1 again."""
    config = {"bootstrap.servers": shared_stack.bootstrap_servers}
    topic = f"values-of-{group}"
    with Flow(shared_stack.bootstrap_servers, topic, 1):
        pass
    producer = Producer(config)

    def reader() -> SparkGroupReader:
        return SparkGroupReader(
            spark, group, [topic], table.start, config=config, folder=tmp_path, timing=TIMING
        )

    def comes(value: str) -> None:
        producer.produce(topic, value)
        producer.flush(30)
        wait_until(f"{value} is written", lambda: value in written(), PATIENCE_S)

    def written() -> list[str]:
        return table.values() if table.shares else []

    with reader():
        comes("first")
    with reader() as second:
        wait_until("it has claimed the table", lambda: second.query is not None, PATIENCE_S)
        table.write_late(table.shares[0], "late, before anything was written")
        comes("second")
        table.write_late(table.shares[0], "late")
    assert table.values() == ["first", "second"]

    with Admin(config) as admin:
        admin.delete_group(group)
    with reader() as third:
        comes("third")
        table.write_late(table.shares[1], "late, after the group was deleted")
        assert third.member.generation <= table.shares[1].generation
        shown = publish_progress(third.query, f"shown-{group}", config=config, spark=spark)
        comes("fourth")
        wait_until("progress is told", lambda: shown.is_written, PATIENCE_S)
    # All of the topic was read once more: nothing was committed in the new group.
    assert table.values() == ["first", "first", "fourth", "second", "second", "third"]

    assert shown.close()
    where = ["--bootstrap-servers", shared_stack.bootstrap_servers]

    def is_shown() -> bool:
        main(["groups", "describe", f"shown-{group}", *where])
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        return [f"shown-{group}", topic, "0", "4", "4", "0"] in [row[:6] for row in rows]

    wait_until("the group shows where the query is", is_shown, PATIENCE_S)
    # Another query may go on from there, or from the end of the log, which is the same place.
    text = starting_offsets(f"shown-{group}", [topic], config=config)
    assert json.loads(text) == {topic: {"0": 4}}
    place = Place(topic, 0)
    assert log_bounds(open_admin(config), [place]) == {place: Bounds(0, 4)}


@pytest.mark.chaos
def test_a_reader_whose_logs_are_cut_and_deleted_reads_what_is_left(
    shared_stack: Stack, spark: "SparkSession", table: Table, group: str, tmp_path: Path
) -> None:
    """Retention passes a reader that was away; then one of its topics is deleted while it reads,
    and made anew, with other records at the same offsets."""
    config = {"bootstrap.servers": shared_stack.bootstrap_servers}
    kept, doomed = f"kept-of-{group}", f"doomed-of-{group}"
    admin, producer = AdminClient(config), Producer(config)

    def make(topic: str) -> None:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)

    def comes(topic: str, *values: str) -> None:
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(30) == 0

    def until_written(*values: str) -> None:
        wait_until(f"{values} are written", lambda: set(values) <= set(table.values()), PATIENCE_S)

    def reader() -> SparkGroupReader:
        topics = [kept, doomed]
        return SparkGroupReader(
            spark, group, topics, table.start, config=config, folder=tmp_path, timing=TIMING
        )

    for topic in (kept, doomed):
        make(topic)
    comes(kept, "kept 0")
    comes(doomed, "doomed 0", "doomed 1")
    with reader() as first:
        wait_until("it reads", lambda: first.query is not None, PATIENCE_S)
        until_written("kept 0", "doomed 0", "doomed 1")
    comes(kept, "kept 1, deleted by retention", "kept 2")
    cut = KafkaTopicPartition(kept, 0, 2)
    delete_records(admin, cut)

    with reader() as second:
        until_written("kept 2")
        runs = second.runs
        admin.delete_topics([doomed])[doomed].result(30)
        wait_until("its query goes on without it", lambda: second.runs > runs, PATIENCE_S)
        comes(kept, "kept 3")
        until_written("kept 3")
        make(doomed)
        comes(doomed, "anew 0")
        until_written("anew 0")

    assert table.values() == ["anew 0", "doomed 0", "doomed 1", "kept 0", "kept 2", "kept 3"]

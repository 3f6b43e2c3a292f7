"""Spark at secured brokers: a query as a member, and the archive, each with its rows alone."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordlib.client.spark.delta_writes import Share
from coordlib.client.spark.reader import SparkGroupReader
from coordlib.errors import CoordError, NotAllowed
from coordlib.history.archive import Archive
from coordlib.history.plan import ArchiveOptions
from coordlib.kafka.options import SERVERS, KafkaOptions
from coordlib.kafka.roles import Kind, Operation, Right, Role
from tests.stack.secured.scene import RECORDS, TOPIC, Options, Scene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = [pytest.mark.stack, pytest.mark.chaos, pytest.mark.usefixtures("secured_stack")]


class Counter:
    """A query that only counts what it reads."""

    def __init__(self) -> None:
        self.values: set[bytes] = set()

    def start(self, rows: "DataFrame", share: Share) -> "DataStreamWriter":
        def note(batch: "DataFrame", number: int) -> None:
            self.values |= {bytes(row.value) for row in batch.select("value").collect()}

        return rows.writeStream.foreachBatch(note)


def reader(
    spark: "SparkSession", counter: Counter, options: Options, folder: Path
) -> SparkGroupReader:
    return SparkGroupReader(
        spark, "spark-readers", [TOPIC], counter.start, config=options, folder=folder
    )


def test_a_query_is_a_member_with_a_members_rows(
    scene: Scene, spark: "SparkSession", tmp_path: Path
) -> None:
    counter = Counter()
    with reader(spark, counter, scene.lacking(Role.MEMBER, None), tmp_path) as reading:
        deadline = time.monotonic() + 120
        while len(counter.values) < RECORDS:
            assert time.monotonic() < deadline, counter.values
            assert not reading.await_termination(0.2)


def test_a_query_that_may_not_read_its_topic_says_so(
    scene: Scene, spark: "SparkSession", tmp_path: Path
) -> None:
    right = Right(Kind.TOPIC, TOPIC, Operation.READ)
    somebody = scene.lacking(Role.MEMBER, right)
    reading = reader(spark, Counter(), somebody, tmp_path).start()

    with pytest.raises(CoordError, match=f"A right is missing: {right}"):
        reading.await_termination(120)


def archive(scene: Scene, spark: "SparkSession", options: Options, folder: Path) -> Archive:
    mine = {key: value for key, value in options.items() if key != SERVERS}
    return Archive(
        spark,
        ArchiveOptions(
            bootstrap_servers=options[SERVERS],
            prefix=scene.stack.prefix,
            tables=str(folder / "tables"),
            checkpoint=str(folder / "archive"),
            kafka=KafkaOptions(mine),
        ),
    )


def test_the_archive_writes_history_with_its_rows(
    scene: Scene, spark: "SparkSession", tmp_path: Path
) -> None:
    scene.work(Role.MEMBER, scene.lacking(Role.MEMBER, None))
    archive(scene, spark, scene.lacking(Role.ARCHIVE, None), tmp_path).catch_up()

    assert spark.read.format("delta").load(str(tmp_path / "tables" / "events")).count() > 0


def test_an_archive_without_a_right_says_which(
    scene: Scene, spark: "SparkSession", tmp_path: Path
) -> None:
    lag = Right(Kind.TOPIC, f"{scene.stack.prefix}.lag", Operation.READ)

    with pytest.raises(NotAllowed, match=r"Read on the topic coord\.lag"):
        archive(scene, spark, scene.lacking(Role.ARCHIVE, lag), tmp_path).catch_up()

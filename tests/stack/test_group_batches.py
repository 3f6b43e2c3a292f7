"""A loop over batches, over a real broker, job and Spark."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.client.admin import Admin
from coordlib.client.kit.fence import MemberFenced
from coordlib.local.stack import Stack
from coordlib.spark import group_batches
from tests.kit.waiting import wait_until
from tests.stack.wire import close

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack
PARTITIONS, RECORDS = 4, 1_000


class Records:
    """A topic, and the records that were written into it."""

    def __init__(self, servers: str, group: str) -> None:
        self.group, self.topic = group, f"records-of-{group}"
        self.config: dict[str, Any] = {
            "bootstrap.servers": servers,
            "session.timeout.ms": 15_000,
            "heartbeat.interval.ms": 3_000,
        }
        self._count = 0
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(30)
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def come(self, count: int) -> None:
        for _ in range(count):
            value = str(self._count).encode() if self._count else None
            self._producer.produce(self.topic, value, partition=self._count % PARTITIONS)
            self._count += 1
        assert self._producer.flush(30) == 0

    @property
    def all(self) -> Counter[str | None]:
        """Each once; the first has no value."""
        return Counter(str(number) if number else None for number in range(self._count))

    def committed(self) -> dict[int, int]:
        with Admin(self.config) as admin:
            return {row.partition: row.offset for row in admin.committed(self.group)}

    def close(self) -> None:
        close(self._producer)


@pytest.fixture
def records(shared_stack: Stack, group: str) -> Iterator[Records]:
    made = Records(shared_stack.bootstrap_servers, group)
    yield made
    made.close()


def written(spark: "SparkSession", path: str) -> Counter[str | None]:
    return Counter(row["value"] for row in spark.read.format("delta").load(path).collect())


def test_batches_are_written_once_and_the_next_loop_goes_on_behind_them(
    spark: "SparkSession", records: Records, tmp_path: Path
) -> None:
    """The first loop is left by break in the middle of a batch: those records are read again."""
    table = str(tmp_path / "table")
    records.come(RECORDS)
    sizes: list[int] = []
    for batch in group_batches(
        spark, records.group, [records.topic], records.config, max_records=300
    ):
        if len(sizes) == 2:
            break
        sizes.append(batch.rows.count())
        batch.write_once(batch.rows.selectExpr("CAST(value AS STRING) AS value"), table)
        assert not batch.may_work()
    with pytest.raises(MemberFenced):
        batch.commit()
    assert sizes == [300, 300]

    records.come(100)
    for batch in group_batches(spark, records.group, [records.topic], records.config):
        batch.write_once(batch.rows.selectExpr("CAST(value AS STRING) AS value"), table)
        if written(spark, table).total() >= RECORDS + 100:
            break

    assert written(spark, table) == records.all
    ends = dict.fromkeys(range(PARTITIONS), (RECORDS + 100) // PARTITIONS)
    wait_until("all is committed", lambda: records.committed() == ends)


def test_two_loops_share_the_partitions_and_read_each_record(
    spark: "SparkSession", records: Records, tmp_path: Path
) -> None:
    """The second comes while the first is in a batch, which is waited for and committed."""
    records.come(RECORDS)
    read: Counter[tuple[int, int]] = Counter()

    def note(batch: Any) -> None:
        rows = batch.rows.select("partition", "offset").collect()
        read.update((row["partition"], row["offset"]) for row in rows)

    config, topics = records.config, [records.topic]
    with (
        group_batches(spark, records.group, topics, config, max_records=200) as first,
        group_batches(spark, records.group, topics, config, max_records=200) as second,
    ):
        batch = next(first)
        note(batch)
        batch.commit()
        batch = next(first)
        second._loop.start(topics)
        note(batch)
        batch.commit()
        wait_until("they share", lambda: len(second.member.assignment) == PARTITIONS // 2)
        while read.total() < RECORDS:
            for each in (first, second):
                if (some := each._loop.take()) is not None:
                    note(some)
                    some.commit()
        assert len(first.member.assignment) == PARTITIONS // 2
    assert set(read.values()) == {1}
    assert len(read) == RECORDS

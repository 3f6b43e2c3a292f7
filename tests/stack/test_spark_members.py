"""Spark queries as members of a group, over a real broker, job and Spark."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer

from coordlib.cli.main import main
from coordlib.client.admin import Admin
from coordlib.client.signals import TopicPartition
from coordlib.client.spark_positions import log_ends, starting_offsets
from coordlib.client.spark_progress import publish_progress
from coordlib.client.spark_reader import SparkGroupReader
from coordlib.client.spark_share import Share
from coordlib.client.wording import Timing
from coordlib.local.stack import Stack
from tests.stack.conftest import wait_until
from tests.stack.crew import Crew, Place, Reading
from tests.stack.flow import Flow
from tests.stack.truths import committed, ends_are_committed
from tests.stack.wire import Wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.stack

#: The members' machine does much else: a second Spark starts on it meanwhile.
ASSIGNED: Final = {
    "group__protocol": "assigned",
    "partition__assignment__strategy": None,
    "session__timeout__ms": 15_000,
    "heartbeat__interval__ms": 3_000,
}
TIMING: Final = Timing(
    session_timeout_ms=15_000, heartbeat_interval_ms=3_000, rebalance_timeout_ms=60_000
)
PATIENCE_S: Final = 180.0


def owned(crew: Crew, name: str) -> set[Place]:
    """By a reader's newest query, or a consumer's own word."""
    member = crew[name]
    if (queries := member.told("query")) and name not in killed(crew):
        return {(topic, partition) for topic, partition in queries[-1]["partitions"]}
    return set(member.owned)


def killed(crew: Crew) -> set[str]:
    return {name for name, member in crew.members.items() if member.killed_ns is not None}


def until_even(crew: Crew, places: set[Place], *names: str) -> None:
    def is_even() -> bool:
        shares = [owned(crew, name) for name in names]
        counts = [len(share) for share in shares]
        everything = sorted(place for share in shares for place in share)
        return max(counts) - min(counts) <= 1 and everything == sorted(places)

    crew.until(f"{', '.join(names)} share {len(places)} partitions", is_even)


def read_again_after_it_was_finished(crew: Crew) -> list[Reading]:
    """Records that a query had finished with, by Spark's word, and that were read once more."""
    finished: dict[tuple[str, Place], list[tuple[int, int]]] = defaultdict(list)
    for member in crew.members.values():
        for line in member.told("finished"):
            for topic, partition, end in line["offsets"]:
                finished[member.name, (topic, partition)].append((line["at_ns"], end))
    first: dict[tuple[Place, int], Reading] = {}

    def was_finished(before: Reading, again: Reading) -> bool:
        # Spark's word may come late. Of one process, what it finished later says nothing.
        is_other = before.process != again.process
        ends = finished[before.process, before.place]
        return any(end > again.offset for at, end in ends if is_other or at < again.at_ns)

    found = []
    for each in crew.readings:
        before = first.setdefault((each.place, each.offset), each)
        if before is not each and was_finished(before, each):
            found.append(each)
    return found


def only_owners_read_in_turn(crew: Crew, wire: Wire, group: str) -> None:
    """Whoever read a partition was given it, and not after its next owner had begun to."""
    wire.read_everything()
    given = {
        (event["member"], topic, partition)
        for event in wire.events(group, "AssignmentIssued")
        for topic, numbers in event["detail"]["partitions"].items()
        for partition in numbers
    }
    newest: dict[Place, int] = {}
    for each in crew.readings:
        assert (each.member, *each.place) in given, each
        assert newest.get(each.place, -1) <= each.fence, f"{each} after fence {newest[each.place]}"
        newest[each.place] = each.fence


def test_two_queries_and_a_consumer_share_a_topic_and_one_query_dies(
    crew: Crew, flow: Flow, wire: Wire, group: str
) -> None:
    """They come one after another; then a machine loses power. Records come at every change."""
    crew.start("spark-1", program="tests.stack.spark_member", **ASSIGNED)
    flow.begin()
    until_even(crew, flow.places, "spark-1")
    crew.until("it reads", lambda: crew["spark-1"].readings)

    crew.start("python", **ASSIGNED)
    until_even(crew, flow.places, "spark-1", "python")
    crew.start("spark-2", program="tests.stack.spark_member", **ASSIGNED)
    everybody = ("spark-1", "python", "spark-2")
    until_even(crew, flow.places, *everybody)
    crew.until("all read", lambda: all(crew[name].readings for name in everybody))
    assert not read_again_after_it_was_finished(crew)

    crew.kill("spark-2")
    until_even(crew, flow.places, "spark-1", "python")
    ends_are_committed(crew, flow, wire, group)
    crew.stop()

    assert committed(wire, group) == {
        (flow.topic, partition): end for partition, end in flow.ends.items()
    }
    only_owners_read_in_turn(crew, wire, group)
    assert not wire.events(group, "GroupQuarantined")


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
    assert log_ends(config, [TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 4}

"""A topic is deleted and made anew under groups, claims and readers, on real brokers.

Reports: strimzi-kafka-operator#9269, librdkafka#3255, kop#530. Kafka deletes a group's committed
offsets with the topic.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.client import CommittedReader, CoordinatedConsumer
from coordlib.client.claims import Marshaler
from coordlib.core.wire import stored
from coordlib.kafka.cluster import read_topic_ids
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.wire import Wire, close

pytestmark = pytest.mark.stack
OLD, NEW = 20, 30


class Topic:
    """A topic of one partition, which may be made again."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.name = f"again-{uuid4().hex[:8]}"
        self.where = {"bootstrap.servers": bootstrap_servers}
        self._admin = AdminClient(self.where)
        self._make()

    def _make(self) -> None:
        made = self._admin.create_topics([NewTopic(self.name, 1, 1)])
        made[self.name].result()
        wait_until("it has a leader", lambda: bool(self.id()))

    def id(self) -> str:
        found = read_topic_ids(self._admin, [self.name], 10)
        return found.get(self.name, "")

    def fill(self, word: str, count: int) -> None:
        producer = Producer(self.where)
        for number in range(count):
            producer.produce(self.name, f"{word}-{number}", partition=0)
        close(producer)

    def delete(self) -> None:
        self._admin.delete_topics([self.name])[self.name].result()
        wait_until("it is gone", lambda: not self.id())

    def make_again(self) -> None:
        def is_made() -> bool:
            with suppress(KafkaException):  # the former one is not gone yet
                self._make()
                return True
            return False

        wait_until("it is there again", is_made)


@pytest.fixture
def topic(shared_stack: Stack) -> Topic:
    return Topic(shared_stack.bootstrap_servers)


def read(consumer: Any, wanted: int, patience_s: float = 60) -> list[str]:
    """So many records, or as many as come."""
    found: list[str] = []
    until_s = time.monotonic() + patience_s
    while len(found) < wanted and time.monotonic() < until_s:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value().decode())
    return found


@pytest.mark.parametrize("is_running", [False, True], ids=["stopped", "running"])
@pytest.mark.parametrize("kind", ["classic", "assigned"])
def test_a_group_reads_all_of_the_new_topic(
    topic: Topic, group: str, kind: str, is_running: bool
) -> None:
    """20 of 30 records were skipped, the lag was 0, and nothing was logged.  # INV-130"""
    config = {
        **topic.where,
        "group.id": group,
        "group.protocol": kind,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    topic.fill("old", OLD)
    consumer = CoordinatedConsumer(config)
    consumer.subscribe([topic.name])
    assert len(read(consumer, OLD)) == OLD
    consumer.commit(asynchronous=False)
    if not is_running:
        consumer.close()
    topic.delete()
    assert not is_running or read(consumer, 1, 3) == []
    topic.make_again()
    topic.fill("new", NEW)
    if not is_running:
        consumer = CoordinatedConsumer(config)
        consumer.subscribe([topic.name])

    found = read(consumer, NEW)
    while len(set(found)) < NEW and (more := read(consumer, 1, 20)):  # some may come twice
        found += more
    assert set(found) == {f"new-{number}" for number in range(NEW)}
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.fault
@pytest.mark.timeout(900)
@pytest.mark.chaos
def test_a_rebuild_remembers_which_topic_was_replaced(
    own_stack: Stack, start_job: Callable[..., None], tmp_path: Path
) -> None:
    """INV-150: the checkpoint is lost, and the topic is made anew before the job starts again."""
    quick = ("--set", "engine.topic_watch_interval_ms=500")
    start_job(*quick)
    topic = Topic(own_stack.bootstrap_servers)
    old = topic.id()
    with Wire(own_stack.bootstrap_servers) as wire:

        def shown() -> dict[str, tuple[str, ...]]:
            wire.read_everything()
            rows = ((m.key(), m.value()) for m, _ in wire.seen["progress"])
            return stored.read_topic_ids(dict(rows))

        def ask() -> list[Any]:
            return wire.answer(wire.send("OffsetFetch", "g"))["offsets"]

        row = {"topic": topic.name, "partition": 0, "offset": 20, "topic_id": old}
        elsewhere = {**row, "partition": 1, "topic_id": "A" * 22}
        wire.answer(wire.send("OffsetCommit", "g", offsets=[row, elsewhere]))
        wait_until("the listing is kept", lambda: shown().get(topic.name) == (old,))
        assert len(ask()) == 2
        own_stack.stop_job()
        topic.delete()
        topic.make_again()
        own_stack.checkpoint.rename(tmp_path / "lost")
        start_job("--rebuild", *quick)

        wait_until("the listing shows it", lambda: shown()[topic.name] == (old, topic.id()))
        wait_until("its offset is gone", lambda: len(ask()) == 1)
        (kept,) = ask()
        assert kept["topic_id"] == "A" * 22, "no listing has shown it: it is of another cluster"
        (line,) = [each for each in wire.values("events") if each["type"] == "OffsetsDeleted"]
        assert line["detail"]["offsets"][0]["present_id"] == topic.id()


@pytest.fixture
def marshaler(shared_stack: Stack, group: str) -> Iterator[Marshaler]:
    where = {"bootstrap.servers": shared_stack.bootstrap_servers}
    name = f"claims-of-{group}.6s"
    admin = AdminClient(where)
    stamped = {"message.timestamp.type": "LogAppendTime"}
    admin.create_topics([NewTopic(name, 1, 1, config=stamped)])[name].result()
    made = Marshaler({**where, "group.id": group, "client.id": "c"}, coordination_topic=name)
    yield made
    made.close()


@pytest.mark.parametrize("is_running", [False, True], ids=["stopped", "running"])
def test_claims_read_all_of_the_new_topic(
    topic: Topic, marshaler: Marshaler, is_running: bool
) -> None:
    """10 of 30 records were read, and the sign carried the old position on.  # INV-146"""
    topic.fill("old", OLD)
    consumer = marshaler.consumer([topic.name])
    for _ in range(OLD):
        consumer.commit(consumer.poll(60))
    consumer.flush()
    if not is_running:
        consumer.close()
    topic.delete()
    topic.make_again()
    topic.fill("new", NEW)
    if not is_running:
        consumer = marshaler.consumer([topic.name])

    found: set[str] = set()
    until_s = time.monotonic() + 90
    while len(found) < NEW and time.monotonic() < until_s:
        found |= set(read(consumer, 1, 1))
    assert found >= {f"new-{number}" for number in range(NEW)}
    consumer.close()


def test_a_committed_reader_alone_begins_the_new_topic_by_its_configuration(topic: Topic) -> None:
    """It has no group, and nothing is committed: it reads by offsets, as a plain consumer. In a
    topic that is shorter than what it has read, that is out of range."""
    topic.fill("old", OLD)
    reader = CommittedReader({**topic.where, "auto.offset.reset": "earliest", "group.id": "none"})
    reader.assign([TopicPartition(topic.name, 0, 0)])
    assert len(read(reader, OLD)) == OLD
    topic.delete()
    topic.make_again()
    topic.fill("new", OLD - 1)

    found = set(read(reader, OLD - 1, 60))
    assert found == {f"new-{number}" for number in range(OLD - 1)}
    reader.close()

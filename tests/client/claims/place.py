"""A coordination topic of its own on a real broker, and a topic to claim."""

import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.client.claims import ConsumerOptions, MarshalConsumer, Marshaler
from coordlib.client.claims.admin import Survey
from coordlib.core.claims.snapshots import pages_of
from coordlib.core.claims.world import World
from coordlib.kafka.cluster import create_topic
from coordlib.kafka.coordination import create_coordination
from tests.kit.logs import delete_records

COMPACT = {"cleanup.policy": "compact"}


class Place:
    """A coordination topic of its own, with a topic of two partitions to claim."""

    def __init__(self, servers: str, partitions: int = 1) -> None:
        self.options = {"bootstrap.servers": servers}
        self.partitions = partitions
        word = uuid.uuid4().hex[:8]
        self.coordination, self.topic = f"claims-{word}.6s", f"records-{word}"
        self.prefix = f"p{word}"
        create_coordination(self.options, self.coordination, partitions, 1)
        create_topic(self.options, self.topic, 2)
        self.open: list[Marshaler] = []

    def marshaler(self, client: str = "a", **more: Any) -> Marshaler:
        config = {**self.options, "group.id": "g", "client.id": client, "coord.prefix": self.prefix}
        made = Marshaler({**config, **more}, coordination_topic=self.coordination)
        self.open.append(made)
        return made

    def consumer(self, client: str = "a", **options: Any) -> MarshalConsumer:
        options = {"greedy_claims": True, "release_claims_if_behind": False, **options}
        return self.marshaler(client).consumer([self.topic], ConsumerOptions(**options))

    def put(self, count: int) -> None:
        producer = Producer(self.options)
        for number in range(count):
            producer.produce(self.topic, b"x", partition=number % 2)
        assert producer.flush(60) == 0

    def write_bytes(self, partition: int, count: int) -> None:
        """So many records in a coordination partition that are no messages."""
        producer = Producer(self.options)
        for _ in range(count):
            producer.produce(self.coordination, b"banana", partition=partition)
        assert producer.flush(60) == 0

    def cut(self, partition: int, before: int) -> None:
        """Delete the records of a coordination partition before an offset, as retention does."""
        place = TopicPartition(self.coordination, partition, before)
        admin = AdminClient(self.options)
        delete_records(admin, place)

    def make_anew(self) -> None:
        """Delete the coordination topic, and create it again."""
        admin = AdminClient(self.options)
        admin.delete_topics([self.coordination])[self.coordination].result(60)
        until(lambda: create_coordination(self.options, self.coordination, self.partitions, 1))

    def world(self, partition: int = 0) -> World:
        survey = Survey(self.options, self.coordination, self.prefix)
        try:
            return survey.read([partition], is_whole=True)[partition].world
        finally:
            survey.close()

    def topic_id(self) -> str:
        survey = Survey(self.options, self.coordination, self.prefix)
        survey.close()
        return survey.place.topic_id

    def save(self, world: World, topic_id: str, partitions: int = 1, number: int = 0) -> None:
        """Write a snapshot of a coordination partition, as the engine does."""
        name = f"{self.prefix}.claims.snapshots"
        admin = AdminClient(self.options)
        if name not in admin.list_topics(timeout=10).topics:
            new = NewTopic(name, self.partitions, 1, config=COMPACT)
            admin.create_topics([new])[name].result(60)
        producer = Producer(self.options)
        pages = pages_of(world.snapshot(), topic_id, partitions, world.offset, world.clock_ms)
        for page in pages:
            producer.produce(name, page.value, key=str(page.page).encode(), partition=number)
        assert producer.flush(60) == 0


def until(holds: Callable[[], object], *consumers: MarshalConsumer, patience_s: float = 60) -> None:
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        for each in consumers:
            each.poll(0.02)

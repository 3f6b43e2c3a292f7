"""A coordination topic of its own on a real broker, and a topic to claim."""

import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.client.claims import ConsumerOptions, MarshalConsumer, Marshaler
from coordlib.client.claims.shell.survey import Survey
from coordlib.coordinators.claims.pages import pages_of
from coordlib.coordinators.claims.world import World
from coordlib.kafka.cluster import create_topic
from coordlib.kafka.coordination import create_coordination


class Place:
    """A coordination topic of its own, with a topic of two partitions to claim."""

    def __init__(self, servers: str, partitions: int = 1) -> None:
        self.options = {"bootstrap.servers": servers}
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
        assert producer.flush(30) == 0

    def world(self) -> World:
        survey = Survey(self.options, self.coordination, self.prefix)
        try:
            return survey.read([0], is_whole=True)[0].world
        finally:
            survey.close()

    def topic_id(self) -> str:
        survey = Survey(self.options, self.coordination, self.prefix)
        survey.close()
        return survey.place.topic_id

    def save(self, world: World, topic_id: str, partitions: int = 1) -> None:
        """Write a snapshot, as the engine does."""
        name = f"{self.prefix}.claims.snapshots"
        admin = AdminClient(self.options)
        new = NewTopic(name, 1, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([new])[name].result(30)
        self.save_again(world, topic_id, partitions)

    def save_again(self, world: World, topic_id: str, partitions: int = 1) -> None:
        """Another one, in the same place."""
        name = f"{self.prefix}.claims.snapshots"
        producer = Producer(self.options)
        pages = pages_of(world.snapshot(), topic_id, partitions, world.offset, world.clock_ms)
        for page in pages:
            producer.produce(name, page.value, key=str(page.page).encode(), partition=0)
        assert producer.flush(30) == 0


def until(holds: Callable[[], object], *consumers: MarshalConsumer, patience_s: float = 40) -> None:
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        for each in consumers:
            each.poll(0.02)

"""What Kafka's consumers really write as `subscription` and `assignment`, read from a real broker.

    python -m tests.core.wire.capture_consumer_bytes      writes consumer_bytes.json afresh

Needs javac, and a minute. Each group is one story: a first consumer is alone and gets everything,
then a second one joins. The broker keeps every generation in `__consumer_offsets` (GroupMetadata
values, which have each member's bytes as it sent and got them). Beside the bytes stands what they
must say: how the consumer was configured, and what it held, by its own account.
"""

import base64
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from coordlib.core.wire import consumer_protocol as cp
from coordlib.local.broker import Broker
from tests import java_peer
from tests.core.wire.talking_consumers import KafkaClients, Librdkafka, Rows, TalkingConsumer

CAPTURED = Path(__file__).with_name("consumer_bytes.json")
JAVA_SOURCE = Path(__file__).with_name("TalkingConsumer.java")
PARTITIONS = {"orders": 3, "clicks": 2}
EVERYTHING: Rows = {topic: list(range(count)) for topic, count in PARTITIONS.items()}
PATIENCE_S = 60.0
GROUP_METADATA = 2  # the version of a key is the type of its record

Make = Callable[[dict[str, Any], Sequence[str]], TalkingConsumer]


@dataclass(frozen=True)
class Setup:
    """How a consumer is configured."""

    topics: tuple[str, ...]
    rack: str | None = None
    instance: str | None = None


@dataclass(frozen=True)
class Story:
    """One group: its assignor, the consumer that comes first, and the one that joins it."""

    assignor: str
    first: Setup
    second: Setup

    @property
    def is_cooperative(self) -> bool:
        return self.assignor == "cooperative-sticky"


@dataclass(frozen=True)
class Captured:
    """One member in one generation."""

    client: str
    assignor: str
    generation: int
    topics: tuple[str, ...]
    rack: str | None
    instance: str | None
    #: The generation that it came from, and what it held in that; -1 and nothing: it is new.
    came_from: int
    had: Rows
    #: What it did not let go of before it joined.
    kept: Rows
    given: Rows
    subscription: str
    assignment: str


ALL, ONE = ("orders", "clicks"), ("orders",)
NO_RACKS = Setup(ALL), Setup(ONE)
RACKS = Setup(ALL, rack="zone-ü"), Setup(ONE, rack="zone-2")
STATIC = Setup(ALL, instance="till-7"), Setup(ONE)
OF_LIBRDKAFKA = (
    Story("range", *NO_RACKS),
    Story("range", *STATIC),
    Story("roundrobin", *RACKS),
    Story("cooperative-sticky", *RACKS),
)
OF_JAVA = (
    Story("range", *NO_RACKS),
    Story("sticky", *RACKS),
    Story("cooperative-sticky", *RACKS),
)


@dataclass(frozen=True)
class _Member:
    """A member in a GroupMetadata value."""

    client: str
    instance: str | None
    subscription: bytes
    assignment: bytes


def generations(bootstrap: str, group: str) -> dict[int, dict[str, _Member]]:
    """Every generation of a group that had members: client id -> member."""
    found: dict[int, dict[str, _Member]] = {}
    for key, value in _offsets_topic(bootstrap):
        reader = cp.Reader(key)
        if reader.int16() == GROUP_METADATA and reader.string() == group:
            generation, members = _group_metadata(value)
            if members:
                found[generation] = {member.client: member for member in members}
    return found


def _offsets_topic(bootstrap: str) -> Iterator[tuple[bytes, bytes]]:
    """All records of `__consumer_offsets` that are no tombstones."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader-of-offsets",  # needed by the library, never used
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    with closing(Consumer(settings)) as consumer:
        numbers = consumer.list_topics(timeout=30).topics["__consumer_offsets"].partitions
        consumer.assign([TopicPartition("__consumer_offsets", each, 0) for each in numbers])
        unread = len(numbers)
        while unread:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "the broker does not answer"
            if message.error() is not None:
                unread -= 1  # the end of a partition
            elif message.value() is not None:
                yield message.key(), message.value()


def _group_metadata(value: bytes) -> tuple[int, list[_Member]]:
    """A GroupMetadata value of version 3: generation and members."""
    reader = cp.Reader(value)
    assert reader.int16() == 3, "the broker writes another version"
    reader.string()  # protocol type
    generation = reader.int32()
    reader.nullable_string(), reader.nullable_string()  # protocol, leader
    reader.int32(), reader.int32()  # the time of the newest change of state, an int64
    return generation, [_member(reader) for _ in range(reader.count(8))]


def _member(reader: cp.Reader) -> _Member:
    reader.string()  # member id
    instance, client = reader.nullable_string(), reader.string()
    reader.string()  # host
    reader.int32(), reader.int32()  # rebalance and session timeout
    subscription, assignment = reader.nullable_bytes(), reader.nullable_bytes()
    assert subscription is not None
    assert assignment is not None
    return _Member(client, instance, subscription, assignment)


def capture(bootstrap: str, make: Make, story: Story) -> list[Captured]:
    """Let a story happen, and read what was written."""
    group = f"captured-{time.monotonic_ns()}"
    with closing(_start(make, bootstrap, group, story, "first")) as first:
        _until(lambda: first.held() == EVERYTHING, "the first consumer gets everything")
        with closing(_start(make, bootstrap, group, story, "second")) as second:
            held: list[Rows] = []

            def is_settled() -> bool:
                held[:] = first.held(), second.held()
                return all(held) and _together(held) == EVERYTHING

            _until(is_settled, "both have their share")
            written = generations(bootstrap, group)
            client = first.client
    told = _cooperative(*held) if story.is_cooperative else _eager(*held)
    if [*written] != sorted({generation for generation, _ in told}):
        raise RuntimeError(f"{group}: generations {[*written]}; it took another way, try again")
    return [
        _captured(client, story, generation, name, written[generation][name], rows)
        for (generation, name), rows in told.items()
    ]


def _start(make: Make, bootstrap: str, group: str, story: Story, name: str) -> TalkingConsumer:
    setup: Setup = getattr(story, name)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": name,
        "partition.assignment.strategy": story.assignor,
        "session.timeout.ms": 30_000,
        "heartbeat.interval.ms": 300,
        "enable.auto.commit": "false",
        "client.rack": setup.rack,
        "group.instance.id": setup.instance,
    }
    return make({key: each for key, each in settings.items() if each is not None}, setup.topics)


#: By generation and consumer: what it had, what it kept while it joined, what it was given.
Told = dict[tuple[int, str], tuple[Rows, Rows, Rows]]


def _eager(first: Rows, second: Rows) -> Told:
    """Everybody lets go, and the whole is divided anew."""
    return {
        (1, "first"): ({}, {}, EVERYTHING),
        (2, "first"): (EVERYTHING, {}, first),
        (2, "second"): ({}, {}, second),
    }


def _cooperative(first: Rows, second: Rows) -> Told:
    """What moves is revoked in one generation, and given in the next."""
    return {
        (1, "first"): ({}, {}, EVERYTHING),
        (2, "first"): (EVERYTHING, EVERYTHING, first),
        (2, "second"): ({}, {}, {}),
        (3, "first"): (first, first, first),
        (3, "second"): ({}, {}, second),
    }


def _captured(
    client: str,
    story: Story,
    generation: int,
    name: str,
    member: _Member,
    rows: tuple[Rows, Rows, Rows],
) -> Captured:
    setup: Setup = getattr(story, name)
    had, kept, given = rows
    assert member.instance == setup.instance
    is_new = generation == 1 or (generation == 2 and name == "second")
    return Captured(
        client=client,
        assignor=story.assignor,
        generation=generation,
        **asdict(setup),
        came_from=-1 if is_new else generation - 1,
        had=had,
        kept=kept,
        given=given,
        subscription=base64.b64encode(member.subscription).decode(),
        assignment=base64.b64encode(member.assignment).decode(),
    )


def _together(held: Sequence[Rows]) -> Rows:
    return {topic: sorted(n for rows in held for n in rows.get(topic, ())) for topic in PARTITIONS}


def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.02)


def create_topics(bootstrap: str) -> None:
    """The topics of the stories, once the metadata have them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(topic, count, 1) for topic, count in PARTITIONS.items()]
    for made in admin.create_topics(new).values():
        made.result(PATIENCE_S)
    known = partial(admin.list_topics, timeout=PATIENCE_S)
    _until(lambda: PARTITIONS.keys() <= known().topics.keys(), "the metadata have the topics")


def main() -> None:
    """Capture all stories."""
    from coordlib.local.jars import ensure_jars

    with tempfile.TemporaryDirectory() as folder:
        java = partial(KafkaClients, java_peer.command_of(JAVA_SOURCE, Path(folder)))
        broker = Broker(Path(folder) / "broker", ensure_jars().broker)
        broker.start()
        try:
            bootstrap = broker.bootstrap_servers
            create_topics(bootstrap)
            stories: list[tuple[Make, Story]] = [(Librdkafka, each) for each in OF_LIBRDKAFKA]
            stories += [(java, each) for each in OF_JAVA]
            rows = [row for make, story in stories for row in capture(bootstrap, make, story)]
        finally:
            broker.stop()
    lines = ",\n".join(json.dumps(asdict(row), ensure_ascii=False) for row in rows)
    CAPTURED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    sys.stdout.write(f"{len(rows)} members in {CAPTURED}\n")


if __name__ == "__main__":
    main()

"""What one member, writer or consumer says reaches the processes of others: real ones, on a broker.

Fakes had answered any question about any name; Kafka's clients do not. Whatever is written, those
who do nothing wrong go on reading, and their polls raise nothing (INV-110, INV-70).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from coordlib.client import ClassicMember, CommittedReader, CoordinatedConsumer
from coordlib.client.admin import Admin
from coordlib.client.groups.assignors import BUILT_IN
from coordlib.client.kit.requests import Timing
from coordlib.core.wire import api, codec
from coordlib.core.wire.data_headers import MARKER_HEADER, TXN_HEADER, Marker, Stamp
from coordlib.core.wire.envelope import shard_of
from coordlib.local.stack import Stack
from tests.client.claims.place import Place
from tests.client.groups.classic.test_words_of_others import ODD, Saying, drawn, subscribed
from tests.tools.claims import logs

pytestmark = pytest.mark.stack
QUICK = {
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
    "max.poll.interval.ms": 20_000,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
}
TIMING = Timing(6_000, 10_000, 1_000)
ODD_NAMES = [*ODD, "coord.requests", "__consumer_offsets", "\N{RIGHT-TO-LEFT OVERRIDE}x", "'\"`;--"]


class Reading:
    """Two consumers that do nothing wrong, and what comes to them."""

    def __init__(self, servers: str, kind: str, **config: Any) -> None:
        self.where, self.group = {"bootstrap.servers": servers}, f"g-{uuid4().hex[:8]}"
        self.topic, self.written = f"t-{uuid4().hex[:8]}", 0
        admin = AdminClient(self.where)
        admin.create_topics([NewTopic(self.topic, 4, 1)])[self.topic].result(60)
        self.producer = Producer(self.where)
        keys = {**self.where, **QUICK, "group.id": self.group, "group.protocol": kind, **config}
        self.consumers = [CoordinatedConsumer(keys) for _ in range(2)]
        for each in self.consumers:
            each.subscribe([self.topic])
        self.read: set[bytes] = set()

    def turn(self) -> None:
        """Whatever others have said, no poll raises, and nothing but messages comes."""
        for each in self.consumers:
            for message in each.consume(100, 0.05):
                assert message.error() is None, message.error()
                self.read.add(message.value())

    def goes_on(self, timeout_s: float = 90.0) -> None:
        """Records of all partitions come to the two, after what was said."""
        fresh = {f"{self.written}-{partition}".encode() for partition in range(4)}
        self.written += 1
        for value in fresh:
            self.producer.produce(self.topic, value, partition=int(value[-1:]))
        assert self.producer.flush(60) == 0
        until = time.monotonic() + timeout_s
        while not fresh <= self.read:
            self.turn()
            assert time.monotonic() < until, f"missing: {sorted(fresh - self.read)}"

    def close(self) -> None:
        for each in self.consumers:
            each.close(5.0)


@contextmanager
def reading(servers: str, kind: str, **config: Any) -> Iterator[Reading]:
    made = Reading(servers, kind, **config)
    try:
        made.goes_on()
        yield made
    finally:
        made.close()


def written(place: Reading, request: Callable[..., api.Request], count: int = 1) -> None:
    """Put requests of a program that is none of ours into the group's shard."""
    producer = Producer(place.where)
    shards = len(producer.list_topics("coord.requests", 30).topics["coord.requests"].partitions)
    for number in range(count):
        made = request(v=1, id=f"odd-{uuid4().hex[:8]}-{number}", client="odd", group=place.group)
        producer.produce(
            "coord.requests",
            codec.encode(made),
            key=place.group.encode(),
            partition=shard_of(place.group, shards),
        )
    assert producer.flush(60) == 0


def play_classic(servers: str, assignor: str, seed: int, rounds: int = 6) -> None:
    """Members of other code, or of none: topics, owned partitions, user data, racks."""
    luck = Random(f"{assignor} {seed}")
    with reading(servers, "classic", **{"partition.assignment.strategy": assignor}) as place:
        for number in range(rounds):
            said = drawn(luck)
            if number == 0:
                said = subscribed(place.topic, *ODD_NAMES, rack="\0")
            odd = ClassicMember(
                place.group,
                place.where,
                timing=TIMING,
                assignors=[Saying(BUILT_IN[assignor](), said)],
            )
            odd.subscribe([place.topic])
            until = time.monotonic() + 8
            while odd.generation < 0 and time.monotonic() < until:
                odd.poll(0.05)
                place.turn()
            end = time.monotonic() + 2
            while time.monotonic() < end:
                odd.poll(0.05)
                place.turn()
            odd.close(5.0)
            place.goes_on()


def play_assigned(servers: str) -> None:
    """Subscriptions that no client of ours writes: topics, expressions, strategies, capacities."""
    with reading(servers, "assigned") as place:
        for fields in (
            {"topics": tuple(ODD_NAMES)},
            *({"topics": (name,)} for name in ODD_NAMES),
            {"topics": (), "pattern": "("},
            {"topics": (), "pattern": ".*" * 400},
            {"topics": (place.topic,), "strategy": "of tomorrow"},
            {"topics": (place.topic,), "capacity": 2**40},
        ):

            def subscribe(fields: dict[str, Any] = fields, **named: Any) -> api.Request:
                wanted = {"topics": (), "session_timeout_ms": 6_000, "rebalance_timeout_ms": 6_000}
                return api.Subscribe(**{**named, **wanted, **fields})

            written(place, subscribe)
        place.goes_on()


def play_offsets(servers: str, kind: str) -> None:
    """Offsets that a member has committed are read by others: members, admins, the job."""
    with reading(servers, kind) as place:
        rows = [
            api.CommittedOffset(topic=name, partition=number, offset=offset, metadata=said)
            for name in ODD_NAMES
            for number in (0, 2**31 - 1)
            for offset, said in ((0, ""), (2**63 - 1, "a\0b\n\N{SNOWMAN}"))
        ]
        for row in rows:
            written(place, lambda row=row, **named: api.OffsetCommit(**named, offsets=(row,)))
        mine = place.consumers[0]
        mine.member.commit_async([row for row in rows if row.topic.isprintable()])
        place.goes_on()
        asked = [TopicPartition(place.topic, n) for n in range(4)]
        assert len(mine.committed(asked)) == 4
        with Admin(place.where) as admin:
            admin.committed(place.group)
            admin.describe_group(place.group)


def play_headers(servers: str) -> None:
    """Whoever may write a topic can write headers that look like the coordinator's."""
    luck, where = Random(7), {"bootstrap.servers": servers}
    topic, producer = f"h-{uuid4().hex[:8]}", Producer(where)
    admin = AdminClient(where)  # a name for it: the answer dies with the client
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    stamp = codec.encode(Stamp(i="nobody00", p=1, s=0, t="nobody", e=1))
    marker = codec.encode(Marker(i="nobody00", t="nobody", p=1, e=1, r="ABORT", n=3))
    for number in range(300):
        name = luck.choice((TXN_HEADER, MARKER_HEADER))
        said = bytearray(luck.choice((stamp, marker, b"", b"[" * 5_000, b"\xff", b"null")))
        for _ in range(luck.choice((0, 1, 4)) if said else 0):
            said[luck.randrange(len(said))] = luck.randrange(256)
        value = None if luck.random() < 0.3 else b"x"
        # A marker ends what a stamp has begun, so that nothing waits for a coordinator.
        producer.produce(topic, value, headers=[(name, bytes(said)), ("n", str(number))])
    producer.produce(topic, None, headers=[(MARKER_HEADER, marker)])
    producer.produce(topic, b"last")
    assert producer.flush(60) == 0
    with CommittedReader({**where, "auto.offset.reset": "earliest"}) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        until, found = time.monotonic() + 60, b""
        while found != b"last" and time.monotonic() < until:
            try:
                message = reader.poll(0.5)
            except Exception as problem:  # noqa: BLE001  # of records that nobody can decide
                assert type(problem).__name__ in ("UndecidedTransaction", "TornTransaction")  # noqa: PT017
                if type(problem).__name__ == "TornTransaction":
                    reader.give_up(problem, TopicPartition(topic, 0))  # type: ignore[arg-type]
                else:
                    return  # it says so, and of whom: that is the promise
                continue
            found = b"" if message is None or message.value() is None else message.value()
        assert found == b"last"


def play_claims(servers: str) -> None:
    """The coordination topic is written by everybody: fields, epochs, positions, names."""
    place = Place(servers)
    consumer = place.consumer()
    until, read = time.monotonic() + 60, 0
    place.put(4)
    while read < 4:
        read += sum(each.error() is None for each in consumer.consume(10, 0.2))
        assert time.monotonic() < until
    producer = Producer(place.options)
    for seed in range(4):
        for each in logs.hostile(seed, 150, topic=place.coordination, partition=0, partitions=1):
            producer.produce(place.coordination, each.value, partition=0)
    for name in ODD_NAMES:
        text = f"ClaimPartition/1/{int(time.time())}/aaaaaaaa/odd/g/{name}/0/0"
        producer.produce(place.coordination, text.encode("utf-8", "replace"), partition=0)
    assert producer.flush(60) == 0
    place.put(4)
    until = time.monotonic() + 90
    while read < 8:
        read += sum(each.error() is None for each in consumer.consume(10, 0.2))
        assert time.monotonic() < until
    place.world()
    for each in place.open:
        each.close(release=True)


@pytest.mark.parametrize(
    "assignor",
    [
        each if each == "range" else pytest.param(each, marks=pytest.mark.chaos)
        for each in sorted(BUILT_IN)
    ],
)
def test_whatever_a_member_says_of_itself_others_read_on(
    shared_stack: Stack, assignor: str
) -> None:
    play_classic(shared_stack.bootstrap_servers, assignor, 0)


def test_subscriptions_of_other_code_stop_no_member(shared_stack: Stack) -> None:
    play_assigned(shared_stack.bootstrap_servers)


@pytest.mark.parametrize("kind", ["classic", "assigned"])
def test_offsets_of_other_code_stop_no_reader(shared_stack: Stack, kind: str) -> None:
    play_offsets(shared_stack.bootstrap_servers, kind)


def test_headers_of_other_code_stop_no_reader(shared_stack: Stack) -> None:
    play_headers(shared_stack.bootstrap_servers)


@pytest.mark.chaos
def test_messages_of_other_code_stop_no_consumer_of_claims(shared_stack: Stack) -> None:
    play_claims(shared_stack.bootstrap_servers)

"""The protocol by hand: produce requests, read what the engine wrote. No coordlib client in it,

so that a test says what any program in any language would see."""

import base64
import json
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from coordlib.core.wire.envelope import shard_of

OUTPUT_TOPICS = ("responses", "events", "assignments", "groups", "committed", "progress")
SESSION_MS = 6_000
REBALANCE_MS = 6_000
#: Longer than any wait here should be; a test that reaches it fails with what it has seen.
PATIENCE_S = 60.0


def close(producer: Producer) -> None:
    """Also where the broker is away: what it has not taken by then is given up."""
    producer.flush(5)
    producer.purge()
    producer.close()


class Wire:
    """All of a prefix's topics, from their beginning on, as a read-committed reader sees them."""

    def __init__(self, bootstrap_servers: str, prefix: str = "coord", shards: int = 2) -> None:
        self.prefix, self.shards = prefix, shards
        self.bootstrap_servers = bootstrap_servers
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.max.bytes": 1_100_000,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self.seen: dict[str, list[tuple[Message, Any]]] = {name: [] for name in OUTPUT_TOPICS}
        self._ends: dict[tuple[str, int], int] = {}
        self._arrived = threading.Condition()
        self._repeated: list[tuple[threading.Event, threading.Thread]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        for over, _ in self._repeated:
            over.set()
        for _, thread in self._repeated:
            thread.join(PATIENCE_S)
        self._stop.set()
        self._thread.join(10)
        close(self._producer)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- writing ---------------------------------------------------------------------------

    def send(self, type_: str, group: str, client: str = "c", **fields: Any) -> str:
        """Write a request; returns its coordinate, known from the acknowledgement."""
        request = {"v": 1, "type": type_, "id": uuid4().hex, "client": client, "group": group}
        return self.send_raw(json.dumps(request | fields).encode(), group)

    def send_raw(
        self, value: bytes | None, group: str, topic: str = "requests", shard: int | None = None
    ) -> str:
        shard = shard_of(group, self.shards) if shard is None else shard
        acknowledged: list[KafkaError | Message] = []
        self._producer.produce(
            f"{self.prefix}.{topic}",
            value,
            group,
            partition=shard,
            on_delivery=lambda error, message: acknowledged.append(error or message),
        )
        self._producer.flush(PATIENCE_S)
        assert acknowledged, "not acknowledged"
        assert isinstance(acknowledged[0], Message), acknowledged[0]
        return f"{'r' if topic == 'requests' else 'o'}{shard}-{acknowledged[0].offset()}"

    def commit_position(self, group: str, **fields: Any) -> str:
        """An OffsetCommit of one who is no member."""
        request = {"v": 1, "type": "OffsetCommit", "id": uuid4().hex, "client": "p", "group": group}
        return self.send_raw(json.dumps(request | fields).encode(), group, "offsets")

    def repeat(self, what: Callable[[], Any], every_s: float) -> threading.Event:
        """Do it again and again, until the event is set or this is closed."""
        over = threading.Event()

        def run() -> None:
            while not over.wait(every_s):
                what()

        thread = threading.Thread(target=run, daemon=True)
        self._repeated.append((over, thread))
        thread.start()
        return over

    # -- reading ---------------------------------------------------------------------------

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": f"test-{uuid4().hex}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "fetch.message.max.bytes": 9_000_000,
                "reconnect.backoff.max.ms": 500,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        metadata = consumer.list_topics(timeout=PATIENCE_S).topics
        consumer.assign(
            [
                TopicPartition(f"{self.prefix}.{name}", partition, 0)
                for name in OUTPUT_TOPICS
                for partition in metadata[f"{self.prefix}.{name}"].partitions
            ]
        )
        while not self._stop.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error():
                self._note_end(message)
                continue
            value = message.value()
            name = (message.topic() or "").removeprefix(f"{self.prefix}.")
            with self._arrived:
                self.seen[name].append((message, json.loads(value) if value else None))
                self._arrived.notify_all()
        consumer.close()

    def _note_end(self, message: Message | None) -> None:
        """Which offset was the end, when one was reached: markers take offsets that nobody sees."""
        error = message.error() if message is not None else None
        if message is not None and error is not None and error.code() == KafkaError._PARTITION_EOF:
            with self._arrived:
                place = (message.topic() or "", message.partition() or 0)
                self._ends[place] = message.offset() or 0
                self._arrived.notify_all()

    def read_everything(self) -> None:
        """Wait until all outputs that can be read now are here."""
        asking = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": f"test-{uuid4().hex}",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        metadata = asking.list_topics(timeout=PATIENCE_S).topics
        ends = {
            (topic, partition): asking.get_watermark_offsets(TopicPartition(topic, partition))[1]
            for topic in (f"{self.prefix}.{name}" for name in OUTPUT_TOPICS)
            for partition in metadata[topic].partitions
        }
        asking.close()
        self.wait(
            "all outputs",
            lambda: all(self._ends.get(place, -1) >= end for place, end in ends.items()),
        )

    def values(self, topic: str) -> list[Any]:
        with self._arrived:
            return [value for _, value in self.seen[topic]]

    def wait(self, what: str, find: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
        """Wait until `find()` is true, and return it."""
        deadline = time.monotonic() + patience_s
        with self._arrived:
            while True:
                found = find()
                if found:
                    return found
                left = deadline - time.monotonic()
                assert left > 0, f"{what}: not within {patience_s} s"
                self._arrived.wait(min(left, 0.5))

    def answer(self, coordinate: str, patience_s: float = PATIENCE_S) -> Any:
        """The first response that this request got."""
        return self.wait(
            f"answer to {coordinate}",
            lambda: next(iter(self.answers(coordinate)), None),
            patience_s,
        )

    def answers(self, coordinate: str) -> list[Any]:
        return [v for v in self.values("responses") if v.get("cause") == coordinate and "id" in v]

    def events(self, group: str, type_: str | None = None) -> list[Any]:
        """All that can be read now: whoever saw the effect of a batch gets its events, too."""
        self.read_everything()
        return self._events_here(group, type_)

    def _events_here(self, group: str, type_: str | None) -> list[Any]:
        return [
            event
            for event in self.values("events")
            if event["group"] == group and type_ in (None, event["type"])
        ]

    def event(self, group: str, type_: str, patience_s: float = PATIENCE_S, **fields: Any) -> Any:
        """The first event of this type whose fields are these."""
        return self.wait(
            f"{type_} of {group} with {fields}",
            lambda: next(
                (
                    event
                    for event in self._events_here(group, type_)
                    if all(event[key] == value for key, value in fields.items())
                ),
                None,
            ),
            patience_s,
        )

    def judged(self, coordinate: str) -> None:
        """Wait until the engine has judged this request (its marker says so)."""
        shard, offset = coordinate[1:].split("-")
        self.wait(
            f"{coordinate} judged",
            lambda: any(
                value["shards"].get(shard, {"offsets": {}})["offsets"].get("r", -1) >= int(offset)
                for value in self.values("progress")
                if "batch" in value
            ),
        )


class RawMember:
    """A member that does what it is told when the test says so, and heartbeats if asked."""

    def __init__(self, wire: Wire, group: str, client: str, **timeouts: int) -> None:
        self.wire, self.group, self.client = wire, group, client
        self.timeouts = {
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
        } | timeouts
        self.protocol_type, self.protocol = "test", "p"
        self.member, self.generation, self.leader = "", -1, ""
        self.members: list[Any] = []
        self._beating: threading.Event | None = None

    def ask_join(self, metadata: bytes = b"m") -> str:
        return self.wire.send(
            "JoinGroup",
            self.group,
            self.client,
            member=self.member,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocols=[{"name": self.protocol, "metadata": base64.b64encode(metadata).decode()}],
            **self.timeouts,
        )

    def joined(self, coordinate: str) -> Any:
        answer = self.wire.answer(coordinate)
        if answer["error"] == "NONE":
            self.member, self.generation = answer["member"], answer["generation"]
            self.leader, self.members = answer["leader"], answer["members"]
        return answer

    def ask_sync(self) -> str:
        rows = [
            {
                "member": row["member"],
                "assignment": base64.b64encode(row["member"].encode()).decode(),
            }
            for row in self.members
        ]
        return self.wire.send(
            "SyncGroup",
            self.group,
            self.client,
            generation=self.generation,
            member=self.member,
            assignments=rows,
        )

    def heartbeat(self) -> str:
        return self.wire.send(
            "Heartbeat", self.group, self.client, generation=self.generation, member=self.member
        )

    def commit(self, offset: int, topic: str = "t", partition: int = 0) -> str:
        return self.wire.send(
            "OffsetCommit",
            self.group,
            self.client,
            generation=self.generation,
            member=self.member,
            offsets=[{"topic": topic, "partition": partition, "offset": offset}],
        )

    def start_heartbeats(self, every_s: float = 1.0) -> None:
        """Until `die`. Other than coordlib's client it heartbeats whatever it is told."""
        self._beating = self.wire.repeat(self.heartbeat, every_s)

    def die(self) -> None:
        """Fall silent."""
        if self._beating is not None:
            self._beating.set()
            self._beating = None


def settle(members: list[RawMember]) -> None:
    """Bring these new members into one stable generation."""
    first = members[0]
    first.joined(first.ask_join())
    asked = [member.ask_join() for member in members[1:]]
    if asked:
        first.wire.judged(asked[-1])
        asked = [first.ask_join(), *asked]
        for member, coordinate in zip(members, asked, strict=True):
            member.joined(coordinate)
    for coordinate in [member.ask_sync() for member in members]:
        assert first.wire.answer(coordinate)["error"] == "NONE"

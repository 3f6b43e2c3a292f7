"""Clients of a coordination topic, as text in Marshal's form, and what the log says of them."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Producer

from coordlib.coordinators.claims.blob import Coordination
from coordlib.coordinators.claims.pages import read_pages
from coordlib.coordinators.claims.world import World
from coordlib.coordinators.shard.blob import InputRecord, ShardSettings
from coordlib.effects.routing import Output
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin
from coordlib.kafka.compacted import newest_by_key
from coordlib.kafka.coordination import require
from coordlib.kafka.places import Place
from coordlib.kafka.reading import read_to_end
from coordlib.records import marshal as m
from coordlib.records.stored import decode_marker
from coordlib.streaming.plane import claims
from coordlib.streaming.replay import KafkaInput
from tests.stack.conftest import wait_until

TOPIC: Final = "__marshal.6s"
GROUP: Final = "billing"
PREFIX: Final = "coord.claims"


@dataclass
class Claimants:
    """Two clients that claim partitions of two topics, keep some of them, and lose others."""

    bootstrap_servers: str
    partitions: int = 4
    sent: int = 0
    _epochs: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = {"bootstrap.servers": self.bootstrap_servers}
        self._producer = Producer({**self.client, "linger.ms": 0, "log_level": 0})
        self._stop = threading.Event()

    def send(self, value: bytes, partition: int) -> int:
        """Write it; returns its offset."""
        offsets: list[int] = []
        self._producer.produce(
            TOPIC, value, partition=partition, on_delivery=lambda _, r: offsets.append(r.offset())
        )
        assert self._producer.flush(30) == 0
        self.sent += 1
        return offsets[0]

    def turn(self, number: int) -> None:
        """A turn of both clients: signs, attempts, a release now and then, and foreign bytes."""
        for which, client in enumerate(("worker-1", "worker-2")):
            process = f"0000000{which + 1}"
            for topic in ("orders", "clicks"):
                for partition in (which, 2):
                    self._act(number, client, process, topic, partition)
        self.send(b"banana", number % self.partitions)

    def _act(self, number: int, client: str, process: str, topic: str, partition: int) -> None:
        here, now_s = m.partition_of(topic, self.partitions), int(time.time())
        at = (f"{client}/{topic}", partition)
        if at not in self._epochs:
            attempt = m.ClaimingPartition(2, now_s, process, client, GROUP, topic, partition)
            self._epochs[at] = self.send(m.encode(attempt), here)
            return
        instance = m.instance_of(process, self._epochs[at])
        kind = m.ReleasingPartition if (number + partition) % 5 == 4 else m.Heartbeat
        message = kind(2, now_s, instance, client, GROUP, topic, partition, number)
        self.send(m.encode(message), here)
        if kind is m.ReleasingPartition:
            del self._epochs[at]

    @contextmanager
    def at_work(self, every_s: float = 0.25) -> Iterator[None]:
        """Turns, until the block ends."""

        def run() -> None:
            number = 0
            while not self._stop.wait(every_s):
                self.turn(number)
                number += 1

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
            self._stop.clear()

    # -- the log, and what the job made of it ------------------------------------------------

    def log(self, shard: int, first: int = 0) -> list[InputRecord]:
        """What a coordination partition holds."""
        log = KafkaInput(self.client, "m", TOPIC, self.partitions)
        return list(log.read(shard, first, self.ends()[shard]))

    def ends(self) -> list[int]:
        """Where each coordination partition ends."""
        places = [Place(TOPIC, shard) for shard in range(self.partitions)]
        admin = open_admin(self.client)
        found = log_bounds(admin, places)
        return [found[place].end for place in places]  # type: ignore[union-attr]

    def events(self) -> list[Any]:
        """History, as read-committed readers have it."""
        return [
            json.loads(each.value() or b"")
            for shard in range(self.partitions)
            for each in read_to_end(self.client, f"{PREFIX}.events", shard)
        ]

    def settings(self, shard: int) -> ShardSettings:
        found, _ = require(self.client, "coord", TOPIC)
        return ShardSettings(
            shard=shard,
            shards=found.shards,
            reply_partitions=0,
            incarnation=found.incarnation,
            families={"claims": Coordination(topic=TOPIC, topic_id=found.topic_ids[TOPIC])},
        )

    def expected(self, shard: int) -> list[Output]:
        """Whatever the whole log gives, in one batch."""
        return claims("coord", TOPIC).fold(None, self.log(shard), self.settings(shard)).outputs

    def judged(self) -> dict[str, int]:
        """Next offset of each coordination partition, by the job's newest committed batch."""
        value = newest_by_key(self.client, f"{PREFIX}.progress", 0).get(b"marker")
        return {} if value is None else decode_marker(value).next_offsets.get(TOPIC, {})

    def until_all_is_judged(self) -> None:
        ends = {str(shard): end for shard, end in enumerate(self.ends()) if end}
        wait_until("all is judged", lambda: self.judged() == ends, 240.0)

    def holds(self) -> int:
        """History exactly once, owners and positions as the log says; returns how many events.

        # INV-34, INV-61, INV-65
        """
        count = 0
        for shard in range(self.partitions):
            expected = self.expected(shard)
            found = [
                json.loads(each.value() or b"")
                for each in read_to_end(self.client, f"{PREFIX}.events", shard)
            ]
            told = [json.loads(o.value or b"") for o in expected if o.topic == "events"]
            assert found == told, f"history of shard {shard}"
            count += len(told)
            for topic in ("assignments", "committed"):
                newest = newest_by_key(self.client, f"{PREFIX}.{topic}", shard)
                assert newest == self._newest(expected, topic), f"{topic} of shard {shard}"
            self._snapshot_holds(shard)
        return count

    def _newest(self, outputs: list[Output], topic: str) -> dict[bytes, Any]:
        newest = {o.key: o.value for o in outputs if o.topic == topic}
        return {key: value for key, value in newest.items() if value is not None}

    def _snapshot_holds(self, shard: int) -> None:
        """Of a partition in which the clock has crossed an interval."""
        found = read_pages(newest_by_key(self.client, f"{PREFIX}.snapshots", shard).values())
        if found is None:
            return
        world = World(TOPIC, shard, self.partitions)
        for record in self.log(shard):
            if record.offset <= found.offset:
                world.judge(record)
        assert found.world == world.snapshot(), f"snapshot of shard {shard}"

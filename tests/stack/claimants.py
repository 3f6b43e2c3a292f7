"""Clients of a coordination topic, as text in Marshal's form, and what the log says of them."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic as now
from typing import Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message, Producer

from coordlib.cli.claims.app import agreed, compare, differences
from coordlib.client.claims.admin import Survey
from coordlib.core.claims.fold import Coordination
from coordlib.core.claims.slots import Judgement, Verdict
from coordlib.core.claims.snapshots import read_pages
from coordlib.core.claims.world import World
from coordlib.core.engine.effects import Output
from coordlib.core.engine.state import InputRecord, ShardSettings
from coordlib.core.wire import claims as m
from coordlib.core.wire.stored import decode_marker
from coordlib.job.pipelines import claims
from coordlib.job.rebuild import KafkaInput
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin
from coordlib.kafka.coordination import require
from coordlib.kafka.logs import Place
from coordlib.kafka.reading import newest_by_key, read_to_end
from tests.kit.waiting import wait_until

TOPIC: Final = "__marshal.6s"
HI_S: Final = 6.0
GROUP: Final = "billing"
PREFIX: Final = "coord.claims"


@dataclass
class Claim:
    """What one client holds."""

    epoch: int
    #: When its newest sign was sent, by this process's clock.
    signed_s: float


@dataclass
class Claimants:
    """Two clients that claim partitions of two topics, keep some of them, and lose others.

    They judge what they write as every reader does, and keep their fence: a late reader owes
    agreement to such logs alone.  # INV-62
    """

    bootstrap_servers: str
    partitions: int = 4
    sent: int = 0
    #: (client, topic, partition) -> what it has won and not given up.
    _claims: dict[tuple[str, str, int], Claim] = field(default_factory=dict)
    _worlds: dict[int, World] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = {"bootstrap.servers": self.bootstrap_servers}
        own = {"enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        self._producer = Producer({**self.client, **own})
        self._stop = threading.Event()

    def send(self, value: bytes, partition: int) -> Judgement:
        """Write it; what becomes of it."""
        written: list[Message] = []
        self._producer.produce(
            TOPIC, value, partition=partition, on_delivery=lambda _, record: written.append(record)
        )
        assert self._producer.flush(30) == 0
        self.sent += 1
        (record,) = written
        kind, stamp_ms = record.timestamp()
        offset = record.offset()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert offset is not None
        fresh = World(TOPIC, partition, self.partitions)
        world = self._worlds.setdefault(partition, fresh)
        return world.judge(InputRecord("m", offset, stamp_ms, value))

    def turn(self, number: int) -> None:
        """A turn of both clients: signs, attempts, a release now and then, and foreign bytes."""
        for which, client in enumerate(("worker-1", "worker-2")):
            process = f"0000000{which + 1}"
            for topic in ("orders", "clicks"):
                for partition in (which, 2):
                    self._act(number, client, process, topic, partition)
        self.send(b"banana", number % self.partitions)

    def _act(self, number: int, client: str, process: str, topic: str, partition: int) -> None:
        here, now_s, began_s = m.partition_of(topic, self.partitions), int(time.time()), now()
        where = (client, GROUP, topic, partition)
        at = (client, topic, partition)
        claim = self._claims.pop(at, None)
        if claim is None or began_s - claim.signed_s >= HI_S:
            attempt = m.encode(m.ClaimingPartition(2, now_s, process, *where))
            judgement = self.send(attempt, here)
            if judgement.verdict is Verdict.WON:
                self._claims[at] = Claim(judgement.offset, began_s)
            return
        instance = m.instance_of(process, claim.epoch)
        sign = m.encode(m.Heartbeat(2, now_s, instance, *where, number))
        if (number + partition) % 5 == 4:
            release = m.ReleasingPartition(2, now_s, instance, *where, number)
            self.send(m.encode(release), here)
            # It was on its way meanwhile, and undoes no release.
            assert self.send(sign, here).verdict is Verdict.REFUSED
        elif self.send(sign, here).verdict is Verdict.SIGN:
            self._claims[at] = Claim(claim.epoch, began_s)

    @contextmanager
    def at_work(self, every_s: float = 0.25) -> Iterator[None]:
        """Turns, until the block ends."""

        def run() -> None:
            number = 0
            while not self._stop.wait(every_s):
                self.turn(number)
                number += 1

        with ThreadPoolExecutor(1) as beside:
            working = beside.submit(run)
            try:
                yield
            finally:
                self._stop.set()
                wait([working])
                self._stop.clear()
            working.result()

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
        """History exactly once, owners and positions as the log says, and every reader of the same
        mind; returns how many events.  # INV-34, INV-61, INV-62, INV-65"""
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
        self.readers_agree()
        return count

    def _newest(self, outputs: list[Output], topic: str) -> dict[bytes, Any]:
        newest = {o.key: o.value for o in outputs if o.topic == topic}
        return {key: value for key, value in newest.items() if value is not None}

    def readers_agree(self) -> None:
        """Those that begin with the log, at the job's snapshot, and late.

        # INV-61, INV-62, INV-65
        """
        self.is_verified()
        late = 0
        for shard in range(self.partitions):
            log = self.log(shard)
            whole = judged_by(World(TOPIC, shard, self.partitions), log)
            pages = newest_by_key(self.client, f"{PREFIX}.snapshots", shard).values()
            if (found := read_pages(pages)) is not None:
                restored = World.restore(found.world, TOPIC, shard, self.partitions)
                behind = judged_by(restored, log[found.offset + 1 :])
                assert behind.snapshot() == whole.snapshot(), f"behind the snapshot of {shard}"
            late += sum(self._agrees_late(whole, log[len(log) * n // 8 :]) for n in range(1, 8))
        assert late, "no log is long enough for a late reader"

    def _agrees_late(self, whole: World, log: list[InputRecord]) -> int:
        """Of how many owners one that begins there is sure; none, until it may act."""
        late = judged_by(World(TOPIC, whole.partition, self.partitions, is_late=True), log)
        if not late.is_settled:
            return 0
        compared, different = differences(late, whole, is_late=True)
        assert not different, f"late, from {log[0].offset} of {whole.partition}: {different}"
        return compared

    def is_verified(self) -> None:
        """By the code of `coord claims verify`, each partition that the job must have a snapshot
        of."""
        survey = Survey(self.client, TOPIC, "coord")
        try:
            rows = list(compare(survey))
        finally:
            survey.close()
        assert agreed(rows) is True, rows


def judged_by(world: World, log: list[InputRecord]) -> World:
    """The world behind these records."""
    for record in log:
        world.judge(record)
    return world

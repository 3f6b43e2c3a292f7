"""The load generator: one producer, one consumer and one thread for all members and probes.

Each round: heartbeats that are due, probes that are due, then whatever has come. A round that took
too long is caught up with, so that the rate holds; how late the worst was is told.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from coordlib.client.kit.transport import PRODUCER_CONFIG
from coordlib.core.wire import cells, codec
from coordlib.core.wire.stored import Marker, decode_marker
from coordlib.errors import CannotReach
from coordlib.kafka.layout import find_place
from tests.tools.bench.crowd import Crowd, Record
from tests.tools.bench.gauges import Pace
from tests.tools.bench.probes import Probes

WAIT_S: Final = 0.002
READ_AT_ONCE: Final = 1000
#: A round sends no more than this, so that answers are seen in time.
BEATS_PER_ROUND: Final = 2000
ANSWERS_LIMIT_S: Final = 5.0
SETTLE_TIMEOUT_S: Final = 180.0


class Generator:
    """All members of the load, over a connection each way."""

    def __init__(self, config: dict[str, str], prefix: str, groups: int, members: int) -> None:
        self.place = find_place(config, prefix)
        shards, replies = self.place.shards, self.place.reply_partitions
        token = uuid4().hex[:6]
        self.crowd = Crowd(groups, members, shards, replies, token)
        self.probes = Probes(shards, replies, token)
        self.pace = Pace()
        self.sent = self.commits = 0
        #: Commits of one partition, each by another member in turn.
        self.commits_per_second = 0.0
        self.lateness_s = 0.0
        self.write_errors: Counter[str] = Counter()
        self._next_beat = self._next_commit = 0
        self._markers: dict[cells.Owned, Marker] = {}
        self._producer = Producer(
            {
                **config,
                **PRODUCER_CONFIG,
                "queue.buffering.max.messages": 1_000_000,
                "delivery.report.only.error": True,
                "on_delivery": self._delivered,
            }
        )
        self._consumer = self._reader(config)

    def close(self) -> None:
        self._producer.flush(10)
        self._producer.close()
        self._consumer.close()

    # -- what it does ------------------------------------------------------------------------

    def settle(self) -> float:
        """Let everybody join; seconds until all have their share. Raises CannotReach."""
        began = time.monotonic()
        self._write(self.crowd.join_all())
        self._run(lambda: self.crowd.is_settled, SETTLE_TIMEOUT_S, rate=0, probes_per_second=0)
        if not self.crowd.is_settled:
            missing = len(self.crowd) - self.crowd.settled
            raise CannotReach(f"{missing} members of the load never got their share")
        return time.monotonic() - began

    def load(self, seconds: float, rate: float, probes_per_second: float) -> None:
        """Heartbeats at this rate, over all members in turn, with probes."""
        self._run(lambda: False, seconds, rate, probes_per_second, self.commits_per_second)

    def drain(self, limit_s: float) -> float | None:
        """Send nothing until everything is judged; seconds that it took, None: not in time."""
        self._producer.flush(limit_s)
        began, end = time.monotonic(), self.log_end()
        self._run(lambda: self.pace.judged >= end, limit_s, rate=0, probes_per_second=0)
        drained_s = time.monotonic() - began if self.pace.judged >= end else None
        # Answers come with the marker, but from other partitions.
        self._run(lambda: not self.probes.unanswered, ANSWERS_LIMIT_S, rate=0, probes_per_second=0)
        return drained_s

    def log_end(self) -> int:
        """Sum over the shards of the next request that will be written."""
        topic = self.place.requests
        ends = [
            self._consumer.get_watermark_offsets(TopicPartition(topic, shard), timeout=10)
            for shard in range(self.place.shards)
        ]
        return sum(end for _, end in ends)

    # -- its rounds --------------------------------------------------------------------------

    def _run(
        self,
        is_done: Callable[[], bool],
        seconds: float,
        rate: float,
        probes_per_second: float,
        commits_per_second: float = 0.0,
    ) -> None:
        began = time.monotonic()
        beats = probes = commits = 0
        while (spent_s := time.monotonic() - began) < seconds and not is_done():
            due = min(int(spent_s * rate) - beats, BEATS_PER_ROUND)
            if due > 0:
                self.lateness_s = max(self.lateness_s, spent_s - beats / rate)
                self._beat(due)
                beats += due
            due = min(int(spent_s * commits_per_second) - commits, BEATS_PER_ROUND)
            if due > 0:
                self._commit(due)
                commits += due
            if probes < int(spent_s * probes_per_second):
                self._write([self.probes.next(time.monotonic())])
                probes += 1
            self._producer.poll(0)
            self._read()

    def _beat(self, count: int) -> None:
        crowd, first = self.crowd, self._next_beat
        self._next_beat += count
        beats = [crowd.heartbeat(number) for number in range(first, first + count)]
        self.sent += self._write(each for each in beats if each is not None)

    def _commit(self, count: int) -> None:
        crowd, first = self.crowd, self._next_commit
        self._next_commit += count
        numbers = (number % len(crowd) for number in range(first, first + count))
        settled = (number for number in numbers if crowd.heartbeat(number) is not None)
        self.commits += self._write(crowd.commit(number, 1) for number in settled)

    def _write(self, records: Iterable[Record]) -> int:
        count = 0
        for value, key, shard in records:
            while True:
                try:
                    self._producer.produce(self.place.requests, value, key, partition=shard)
                    break
                except BufferError:
                    self._producer.poll(0.01)
            count += 1
        return count

    def _read(self) -> None:
        for message in self._consumer.consume(READ_AT_ONCE, timeout=WAIT_S):
            if (error := message.error()) is not None:
                raise CannotReach("The load generator cannot read", error.str())
            if message.topic() == self.place.responses:
                self._hear(message)
            else:
                self._saw(message)

    def _saw(self, message: Message) -> None:
        """A record of the progress topic: of each cell a marker, else one."""
        match cells.read_key(message.key() or b""):
            case (what, whose) if what == cells.MARKER:
                self._markers[whose] = decode_marker(message.value() or b"")
                _, written_ms = message.timestamp()
                marker = cells.composed(self._markers, None, self.place.shards)
                assert marker is not None
                self.pace.saw(marker, written_ms / 1000, self.place.requests)

    def _hear(self, message: Message) -> None:
        if not message.key():
            return  # Progress
        heard = codec.decode_response(message.value() or b"")
        self._write(self.crowd.hear(heard))
        self._write(self.probes.hear(heard, time.monotonic()))

    # -- Kafka -------------------------------------------------------------------------------

    def _reader(self, config: dict[str, str]) -> Consumer:
        consumer = Consumer(
            {
                **config,
                "group.id": f"coordlib-unused-{uuid4().hex}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        progress = TopicPartition(f"{self.place.prefix}.progress", 0)
        sources = [
            TopicPartition(self.place.responses, number)
            for number in range(self.place.reply_partitions)
        ]
        for each in (progress, *sources):
            try:
                _, each.offset = consumer.get_watermark_offsets(each, timeout=10)
            except KafkaException as problem:
                raise CannotReach("The end of the answers is not known", str(each)) from problem
        consumer.assign([progress, *sources])
        return consumer

    def _delivered(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            self.write_errors[error.name()] += 1

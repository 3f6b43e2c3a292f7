"""A program whose signal handler raises at random moments inside the library, and which goes on.

    python -m tests.stack.interrupted SERVERS KIND TOPIC COUNT SEED [COORDINATION]

It reads until it has been given every offset below COUNT of both partitions, commits as it goes,
closes while it is interrupted, and prints what it has seen.
"""

import json
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import TopicPartition

from coordlib.client import CommittedReader, CoordinatedConsumer
from coordlib.client.claims import ConsumerOptions, Marshaler

PATIENCE_S = 240.0


class Rang(BaseException):
    """As KeyboardInterrupt."""


def ring(_signal: int, frame: Any) -> None:
    """Not in this program: what is lost between a return and an assignment here is its own."""
    if "/coordlib/" in frame.f_code.co_filename:
        raise Rang


class Program:
    """One client, whatever its kind, and how often it was interrupted."""

    def __init__(self, servers: str, kind: str, topic: str, coordination: str) -> None:
        self.kind, self.rang = kind, 0
        self.places = [TopicPartition(topic, partition) for partition in (0, 1)]
        config = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
        group = {
            **config,
            "group.id": f"of-{topic}",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "enable.auto.commit": False,
        }
        self.marshaler: Marshaler | None = None
        if kind == "claims":
            named = {"bootstrap.servers": servers, "group.id": topic, "client.id": "one"}
            self.marshaler = Marshaler(named, coordination_topic=coordination)
            self.client: Any = self.marshaler.consumer([topic], ConsumerOptions())
        elif kind == "reader":
            self.client = CommittedReader(config)
            self.client.assign([TopicPartition(topic, each.partition, 0) for each in self.places])
        else:
            self.client = CoordinatedConsumer({**group, "group.protocol": kind})
            self.client.subscribe([topic])

    def interrupted(self, call: Callable[[], Any], luck: random.Random) -> Any:
        """What it returns; None: it was interrupted."""
        try:
            signal.setitimer(signal.ITIMER_REAL, luck.uniform(0.00002, 0.002))
            found = call()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Rang:
            self.rang += 1
            return None
        return found

    def read(self, count: int, luck: random.Random) -> set[tuple[int, int]]:
        """What it was given until that is everything."""
        given: set[tuple[int, int]] = set()
        until = time.monotonic() + PATIENCE_S
        while len(given) < 2 * count and time.monotonic() < until:
            some = luck.choice((1, 1, 7))
            found = self.interrupted(
                lambda some=some: (
                    self.client.consume(some, 0.2) if some > 1 else [self.client.poll(0.2)]
                ),
                luck,
            )
            messages = [each for each in found or [] if each is not None and not each.error()]
            given |= {(each.partition(), each.offset()) for each in messages}
            if self.kind == "claims":
                for each in messages:
                    self.client.commit(each)
            elif self.kind != "reader" and messages and luck.random() < 0.1:
                self.interrupted(lambda: self.client.commit(asynchronous=False), luck)
        return given

    def stands(self) -> list[int]:
        """The positions that others would begin at; a reader's own."""
        if self.kind == "claims":
            self.client.flush(30.0)
            found = self.client.partition_offsets()
            return [each.current for _, each in sorted(found.items())]
        if self.kind == "reader":
            return [each.offset for each in self.client.position(self.places)]
        self.client.commit(asynchronous=False)
        return [each.offset for each in self.client.committed(self.places)]

    def close(self, luck: random.Random) -> None:
        """Again and again, until one comes to its end."""
        ended: list[int] = []
        while not ended:
            self.interrupted(lambda: (self.client.close(), ended.append(1)), luck)
        if self.marshaler is not None:
            self.marshaler.close()


def main(servers: str, kind: str, topic: str, count: int, seed: int, coordination: str) -> None:
    luck, program = random.Random(seed), Program(servers, kind, topic, coordination)
    signal.signal(signal.SIGALRM, ring)
    given = program.read(count, luck)
    missing = sorted({(p, offset) for p in (0, 1) for offset in range(count)} - given)[:10]
    stands = program.stands()
    program.close(luck)
    print(json.dumps({"missing": missing, "stands": stands, "rang": program.rang}))


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), "".join(sys.argv[6:]))

"""The clients of the claims benchmark, a process of its own: `-m tests.tools.bench.claims_writer`.

Arguments: the broker, the coordination topic, how many claims. Orders are JSON lines on stdin,
answers JSON lines on stdout; it ends with its stdin, so that it outlives nobody:

    {"do": "claim"}                              all are claimed
    {"do": "beat", "seconds": …, "rate": …}      so many messages a second
    {"do": "burst", "messages": …}               so many, as fast as it can
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from coordlib.errors import CannotReach, CoordError, NotReady
from coordlib.kafka.clients import open_admin
from coordlib.kafka.topics import describe
from tests.tools.bench.claims_log import Owners, claims_of

FLUSH_S: Final = 120.0
#: A round sends no more than this, so that errors are seen in time.
PER_ROUND: Final = 2_000
PAUSE_S: Final = 0.002
_CONFIG: Final = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "log_level": 2,
    "queue.buffering.max.messages": 500_000,
}


class Writer:
    """All owners, over one producer."""

    def __init__(self, options: Mapping[str, Any], topic: str, claims: int) -> None:
        seen = describe(open_admin(options), [topic], options).get(topic)
        if seen is None:
            raise CannotReach("There is no coordination topic.", topic)
        self._topic, self._owners = topic, Owners(claims_of(claims, seen.partitions))
        self._producer = Producer({**options, **_CONFIG})
        self._next = 0
        self.errors: Counter[str] = Counter()

    def claim(self) -> None:
        """Attempt to claim everything; the offsets of the attempts are the epochs."""
        now_s, claims = int(time.time()), self._owners.claims
        for number, held in enumerate(claims):
            value = self._owners.attempt(number, now_s)
            self._write(held.shard, value, partial(self._won, number))
        self._flush()

    def beat(self, seconds: float, rate: float) -> None:
        """Messages at this rate."""
        began, sent = time.monotonic(), 0
        while (spent_s := time.monotonic() - began) < seconds:
            due = min(int(spent_s * rate) - sent, PER_ROUND)
            if due > 0:
                self._send(due)
                sent += due
            self._producer.poll(0)
            if due < PER_ROUND:
                time.sleep(PAUSE_S)
        self._flush()

    def burst(self, messages: int) -> None:
        """So many messages at once."""
        for left in range(messages, 0, -PER_ROUND):
            self._send(min(left, PER_ROUND))
            self._producer.poll(0)
        self._flush()

    def _send(self, count: int) -> None:
        now_s, first = int(time.time()), self._next
        self._next += count
        for number in range(first, first + count):
            self._write(*self._owners.message(number, now_s), self._delivered)

    def _write(self, shard: int, value: bytes, told: Any) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, partition=shard, on_delivery=told)
                return
            except BufferError:
                self._producer.poll(0.01)

    def _won(self, number: int, error: KafkaError | None, message: Message) -> None:
        self._delivered(error, message)
        if error is None:
            offset = message.offset()
            assert offset is not None
            self._owners.won(number, offset)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.errors[error.name()] += 1

    def _flush(self) -> None:
        """Raises CannotReach: the broker has not taken everything."""
        left = self._producer.flush(FLUSH_S)
        if left or self.errors:
            raise CannotReach("The claims' messages are not written.", f"{left}, {self.errors}")


def answers(lines: Iterable[str], writer: Writer) -> Iterator[dict[str, Any]]:
    """An answer to each order: `failed` says what went wrong."""
    for line in lines:
        order = json.loads(line)
        try:
            if order["do"] == "claim":
                writer.claim()
            elif order["do"] == "beat":
                writer.beat(order["seconds"], order["rate"])
            else:
                writer.burst(order["messages"])
            yield {}
        except CoordError as problem:
            yield {"failed": str(problem)}


class Clients:
    """The process, for whoever gives the orders."""

    def __init__(self, servers: str, topic: str, claims: int) -> None:
        command = [sys.executable, "-m", "tests.tools.bench.claims_writer", servers, topic]
        self._process = subprocess.Popen(
            [*command, str(claims)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, **order: Any) -> None:
        """Give an order and wait until it is carried out. Raises NotReady."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"failed": "it has ended"}
        if "failed" in answer:
            raise NotReady("The clients do not go on.", answer["failed"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(FLUSH_S)


def main(arguments: list[str]) -> int:
    """Until stdin ends."""
    servers, topic, claims = arguments
    writer = Writer({"bootstrap.servers": servers}, topic, int(claims))
    for answer in answers(sys.stdin, writer):
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

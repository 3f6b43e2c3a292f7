"""A thousand `AsyncConsumer`s in one event loop: what they cost, and how soon records come.

The consumers are a process of their own, this module run by itself: its processor time is all
theirs. They are one server-assigned group over one transport, with one partition each. The records
come from the process of the benchmark, at a steady pace to all partitions, and name the time at
which they were given to its producer: both processes are on one machine.
"""

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from typing import Any, Final
from uuid import uuid4

import psutil
from confluent_kafka import Producer, TopicPartition

from coordlib.cli.kit.where import Where
from coordlib.client import AsyncConsumer, KafkaTransport
from coordlib.errors import NotReady
from coordlib.kafka.cluster import create_topic
from coordlib.local.progress import phase, to_stderr
from tests.tools.bench.figures import spread, tell, tell_machine
from tests.tools.bench.gauges import MIB, Costs
from tests.tools.bench.stand import Stand, standing

BENCH: Final = "consumers"
#: Records are produced in so many bursts a second.
BURSTS: Final = 100
#: Not measured: in this time consumers get their partitions and read their first records.
SETTLE_S: Final = 120.0
COMMIT_EVERY_S: Final = 5.0


def run(*, where: Where, members: int, per_second: int, seconds: float) -> int:
    """Print one line: of the consumers, and of what all processes have spent meanwhile."""
    tell_machine(BENCH)
    with standing(where) as stand:
        topic = f"bench-consumers-{uuid4().hex[:8]}"
        create_topic(stand.config, topic, members)
        found = _measure(stand, topic, members, per_second, seconds)
        tell(BENCH, "delivered", members=members, per_second=members * per_second, **found)
    return 0


def _measure(
    stand: Stand, topic: str, members: int, per_second: int, seconds: float
) -> dict[str, object]:
    given = {"config": stand.config, "prefix": stand.prefix, "topic": topic}
    words = json.dumps({**given, "members": members, "seconds": seconds})
    costs = Costs(stand.stack)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.tools.bench.consumers", words],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            with phase(to_stderr, f"{members:,} consumers get their partitions"):
                _expect(process.stdout.readline(), "settled")
            costs.begin()
            with phase(to_stderr, f"{members * per_second:,} records a second"):
                sent = _produce(stand, topic, members, per_second, seconds)
            found: dict[str, object] = json.loads(_expect(process.stdout.readline(), "{"))
        finally:
            process.terminate()
    return {"sent": sent, **found, **costs.figures()}


def _expect(line: str, beginning: str) -> str:
    if not line.startswith(beginning):
        raise NotReady("The consumers have ended.", line.strip(), "Look at their errors above.")
    return line


def _produce(stand: Stand, topic: str, members: int, per_second: int, seconds: float) -> int:
    producer = Producer({**stand.config, "linger.ms": 1, "queue.buffering.max.messages": 1_000_000})
    began, sent = time.monotonic(), 0
    while (spent_s := time.monotonic() - began) < seconds:
        due = int(spent_s * members * per_second)
        for number in range(sent, due):
            producer.produce(topic, str(time.time_ns()).encode(), partition=number % members)
        sent = max(sent, due)
        producer.poll(1 / BURSTS)
    producer.flush(30)
    return sent


# ---- the process of the consumers ---------------------------------------------------------------


class Consumers:
    """All of them, in one loop."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        #: How many partitions each has.
        self._assigned: Counter[AsyncConsumer] = Counter()
        self._is_measured = False
        self.delivered_s: list[float] = []

    async def run(self) -> dict[str, object]:
        """What they have cost and seen."""
        given, own = self._given, psutil.Process()
        transport = await asyncio.to_thread(
            KafkaTransport, given["config"], given["prefix"], "bench-consumers"
        )
        before = own.memory_info().rss
        works = [
            asyncio.create_task(self._work(transport, number)) for number in range(given["members"])
        ]
        async with asyncio.timeout(SETTLE_S + given["members"] / 10):
            while sum(each == 1 for each in self._assigned.values()) < given["members"]:
                await asyncio.sleep(0.1)
        print("settled", flush=True)
        self._is_measured, threads = True, own.num_threads()
        began, cpu_s = time.monotonic(), _cpu_s()
        while time.monotonic() - began < given["seconds"]:
            await asyncio.sleep(0.5)
            threads = max(threads, own.num_threads())
        spent_s, cpu_s = time.monotonic() - began, _cpu_s() - cpu_s
        memory = own.memory_info().rss - before
        await asyncio.sleep(2)  # the last records
        for each in works:
            each.cancel()
        await asyncio.wait(works)
        await asyncio.to_thread(transport.close)
        return {
            "received": len(self.delivered_s),
            "delivered_s": spread(self.delivered_s, 0.5, 0.99),
            "cores": round(cpu_s / spent_s, 3),
            "cpu_ms_per_member_and_s": round(1_000 * cpu_s / spent_s / given["members"], 3),
            "kib_per_member": round(memory / 1_024 / given["members"], 1),
            "mib": round(own.memory_info().rss / MIB),
            "threads": threads,
        }

    async def _work(self, transport: KafkaTransport, number: int) -> None:
        given, loop = self._given, asyncio.get_running_loop()
        config = {
            **given["config"],
            "group.id": given["topic"],
            "group.protocol": "assigned",
            "client.id": f"bench-{number}",
            "coord.prefix": given["prefix"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        async with AsyncConsumer(config, transport=transport) as consumer:
            await consumer.subscribe([given["topic"]], on_assign=self._gain, on_revoke=self._lose)
            due_s = loop.time() + COMMIT_EVERY_S * (1 + number / given["members"])
            async for message in consumer:
                if (error := message.error()) is not None:
                    raise NotReady("A message is an error.", str(error), "")
                if self._is_measured:
                    sent_ns = int(message.value() or 0)
                    self.delivered_s.append((time.time_ns() - sent_ns) / 1e9)
                if loop.time() >= due_s:
                    due_s += COMMIT_EVERY_S
                    await consumer.commit()

    def _gain(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        self._assigned[consumer] += len(partitions)

    def _lose(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        self._assigned[consumer] -= len(partitions)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(json.dumps(asyncio.run(Consumers(json.loads(sys.argv[1])).run())), flush=True)

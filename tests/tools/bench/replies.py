"""What a transaction costs that answers into many response partitions.

    python -m tests.tools.bench.replies [R …]

One broker of this machine, without a job: a transaction as a batch's, with a record in each of R
partitions of one topic, and in those of the other outputs. Numbers of partitions take turns.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.local.broker import Broker
from coordlib.local.jars import ensure_jars
from tests.tools.bench.figures import tell, tell_machine

COUNTS: Final = (4, 16, 40, 80, 160)
TRANSACTIONS: Final = 100
TURNS: Final = 3
WARM: Final = 20
OTHERS: Final = ("events", "groups", "progress")
VALUE: Final = b"x" * 200


def measure(producer: Producer, responses: int, transactions: int) -> list[float]:
    """Seconds of each transaction, from its begin to its commit."""
    took_s = []
    for _ in range(transactions):
        began_s = time.monotonic()
        producer.begin_transaction()
        for partition in range(responses):
            producer.produce("responses", VALUE, partition=partition)
        for topic in OTHERS:
            producer.produce(topic, VALUE, partition=0)
        producer.commit_transaction(30)
        took_s.append(time.monotonic() - began_s)
    return took_s


def main(arguments: list[str]) -> int:
    """A line for each number of partitions; returns the exit code."""
    counts = [int(each) for each in arguments] or list(COUNTS)
    tell_machine("replies")
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder) / "broker", ensure_jars().broker)
        broker.start()
        try:
            found = _in_turns(broker.bootstrap_servers, counts)
        finally:
            broker.stop()
    for responses, took_s in found.items():
        p90 = statistics.quantiles(took_s, n=10)[-1]
        p50 = statistics.median(took_s)
        tell("replies", "row", partitions=responses, p50_ms=_ms(p50), p90_ms=_ms(p90))
    return 0


def _in_turns(servers: str, counts: list[int]) -> dict[int, list[float]]:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic("responses", max(counts), 1), *(NewTopic(each, 1, 1) for each in OTHERS)]
    for future in admin.create_topics(topics).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "bench", "linger.ms": 0})
    producer.init_transactions(30)
    measure(producer, max(counts), WARM)
    found: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(TURNS):
        for count in counts:
            found[count] += measure(producer, count, TRANSACTIONS)
    return found


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

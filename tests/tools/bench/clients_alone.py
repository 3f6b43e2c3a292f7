"""What a client process asks of brokers, and costs, without a broker or a job.

    python -m tests.tools.bench.clients_alone [CLIENTS [SECONDS]]

librdkafka's own mock of a broker, and what a job writes into each response partition: a Progress of
each batch, or nothing while it is away. Light clients read it (`clients`): as they asked before,
and as they ask now. The processor is theirs alone.
"""

import sys
import threading
import time
from typing import Final

from confluent_kafka import Producer

from coordlib.client.kit.process import boottime_ms
from coordlib.core.wire import api, codec
from tests.tools.bench.clients import Clients
from tests.tools.bench.figures import tell, tell_machine

BATCH_S: Final = 0.25
HEARTBEAT_MS: Final = 3_000
#: As many as the mock gives a topic.
PARTITIONS: Final = 4
TOPIC: Final = "responses"


class Job:
    """Its part that clients hear of."""

    def __init__(self, producer: Producer) -> None:
        self._producer, self._is_over = producer, threading.Event()
        self._offset, self.is_there = 0, True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(BATCH_S):
            if self.is_there:
                self._write()

    def _write(self) -> None:
        self._offset += 1
        told = codec.encode(api.Progress(shard=0, offset=self._offset, time_ms=boottime_ms()))
        for partition in range(PARTITIONS):
            self._producer.produce(TOPIC, told, partition=partition)
        self._producer.flush(5)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(10)


def main(arguments: list[str]) -> int:
    """A line for each way, with the job there and away; returns the exit code."""
    count, seconds = [*map(int, arguments), *(100, 30)[len(arguments) :]]
    tell_machine("clients")
    producer = Producer({"test.mock.num.brokers": 1, "linger.ms": 0, "log_level": 4})
    (broker,) = producer.list_topics(TOPIC, timeout=10).brokers.values()
    job = Job(producer)
    for asking in ("always", "needed"):
        for job.is_there in (True, False):
            where = f"{broker.host}:{broker.port}"
            clients = Clients(where, (TOPIC, PARTITIONS), count, HEARTBEAT_MS, asking)
            try:
                time.sleep(7)  # the first statistics of all of them are due within 5 s
                clients.begin()
                time.sleep(seconds)
                told = clients.figures()
            finally:
                clients.close()
            tell("clients", "row", asking=asking, job="there" if job.is_there else "away", **told)
    job.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

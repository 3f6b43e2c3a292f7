"""Records for a group, in a topic of its own."""

import json
import threading
import time
from contextlib import AbstractContextManager
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.kit.processes import PATIENCE_S, Place
from tests.stack.wire import close

PER_SECOND: Final = 150


class Flow(AbstractContextManager["Flow"]):
    """A topic, and records that come into all of its partitions in turn, at a steady pace."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.topic, self.partitions, self.per_second = topic, partitions, PER_SECOND
        #: Partition -> records that the broker has taken.
        self.ends = dict.fromkeys(range(partitions), 0)
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5}
        )
        self._number, self._is_flowing = 0, False
        self._failures: list[str] = []
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def places(self) -> set[Place]:
        return {(self.topic, partition) for partition in range(self.partitions)}

    def begin(self) -> None:
        with self._lock:
            self._is_flowing = True

    def pause(self) -> None:
        """Returns when every record so far is in the topic."""
        with self._lock:
            self._is_flowing = False
        deadline = time.monotonic() + PATIENCE_S
        while sum(self.ends.values()) < self._number:
            assert not self._failures, self._failures[0]
            assert time.monotonic() < deadline, "records were not acknowledged"
            self._producer.flush(1)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        close(self._producer)

    def _run(self) -> None:
        try:
            self._flow()
        except Exception as problem:
            self._failures.append(f"the flow has ended: {problem!r}")  # `pause` tells at once
            raise

    def _flow(self) -> None:
        while not self._stop.wait(1 / self.per_second):
            with self._lock:
                if self._is_flowing:
                    self._produce()
            self._producer.poll(0)

    def _produce(self) -> None:
        number, self._number = self._number, self._number + 1
        self._producer.produce(
            self.topic,
            json.dumps({"number": number}),
            partition=number % self.partitions,
            on_delivery=self._delivered,
        )

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(error.str())
        else:
            self.ends[message.partition()] = message.offset() + 1

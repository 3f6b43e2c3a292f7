"""The records: numbered, about 100 bytes each, written in the background at a steady pace.

Paced, so that members join, die and take over while records come; and held at some numbers until
`go_on` is called, so that each member finds new records, on machines of any speed.
"""

import json
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from coordlib.errors import CannotReach
from coordlib.kafka.clients import reason_of

FLUSH_TIMEOUT_S = 30.0


class Production(AbstractContextManager["Production"]):
    """Writes records 0 to `count`-1.

    Args:
        per_second: pace.
        holds: numbers of records after each of which it waits for one `go_on`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        count: int,
        per_second: int,
        holds: Sequence[int],
    ) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,  # failures are raised by `check`
            }
        )
        self._topic, self._count = topic, count
        self._per_second, self._holds = per_second, tuple(holds)
        #: Number -> (partition, offset), as acknowledged.
        self.placed: dict[int, tuple[int, int]] = {}
        self._failure: str | None = None
        self._go_on, self._stop = threading.Semaphore(0), threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-production", daemon=True)

    def start(self) -> None:
        """Begin, in a thread."""
        self._thread.start()

    def go_on(self) -> None:
        """Write the next part too."""
        self._go_on.release()

    def check(self) -> None:
        """Raises CannotReach when a record could not be written."""
        if self._failure is not None:
            raise CannotReach("A record could not be produced.", self._failure, "Is the broker up?")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(FLUSH_TIMEOUT_S)

    def _run(self) -> None:
        try:
            first = 0
            for end in self._holds:
                self._produce(first, end)
                first = end
                while not self._stop.is_set() and not self._go_on.acquire(timeout=0.1):
                    self._producer.poll(0)
            self._produce(first, self._count)
            if not self._stop.is_set() and self._producer.flush(FLUSH_TIMEOUT_S):
                self._failure = self._failure or "not all records were acknowledged"
        except (KafkaException, BufferError) as problem:
            self._failure = reason_of(problem)

    def _produce(self, first: int, end: int) -> None:
        began = time.monotonic()
        for number in range(first, end):
            due_s = began + (number - first) / self._per_second
            while (early_s := due_s - time.monotonic()) > 0:
                self._producer.poll(min(early_s, 0.01))
            if self._stop.is_set():
                return
            self._producer.produce(
                self._topic,
                json.dumps({"number": number, "text": "x" * 72}).encode(),
                key=f"order-{number}".encode(),
                on_delivery=self._delivered,
            )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = error.str()
            return
        key, partition, offset = message.key(), message.partition(), message.offset()
        assert key is not None
        assert partition is not None
        assert offset is not None
        self.placed[int(key.rpartition(b"-")[2])] = partition, offset

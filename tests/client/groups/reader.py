"""A reader of messages that many consumers share, without Kafka; and programs of one event loop."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from coordlib.client.groups.async_consumer import AsyncConsumer
from coordlib.testing.fake_log import FakeLog, FakeTransport
from tests.client.test_consumer import CONFIG


class FakeMessage:
    def __init__(
        self, topic: str | None, partition: int, offset: int, value: bytes = b"", error: Any = None
    ) -> None:
        self._at, self._value, self._error = (topic, partition, offset), value, error

    def topic(self) -> str | None:
        return self._at[0]

    def partition(self) -> int:
        return self._at[1]

    def offset(self) -> int:
        return self._at[2]

    def value(self) -> bytes:
        return self._value

    def leader_epoch(self) -> int | None:
        return None

    def error(self) -> KafkaError | None:
        error: KafkaError | None = self._error
        return error

    def __repr__(self) -> str:
        return f"{self._at[1]}@{self._at[2]}"


class FakeData:
    """Reads logs that are lists of values; used by one thread, written to by tests."""

    def __init__(self, logs: dict[tuple[str, int], list[bytes]]) -> None:
        self.logs = logs
        self.positions: dict[tuple[str, int], int] = {}
        self.paused: set[tuple[str, int]] = set()
        self.events: deque[FakeMessage] = deque()
        self.is_closed = False
        self.user = 0
        self.done: list[str] = []

    def _is_by_one_thread(self) -> None:
        self.user = self.user or threading.get_ident()
        assert self.user == threading.get_ident(), "librdkafka is used by two threads"

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self._is_by_one_thread()
        for each in partitions:
            assert (each.topic, each.partition) not in self.positions, "it is assigned"
            self.positions[each.topic, each.partition] = max(0, each.offset)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self._is_by_one_thread()
        for each in partitions:
            del self.positions[each.topic, each.partition]

    def seek(self, partition: TopicPartition) -> None:
        self._is_by_one_thread()
        self.positions[partition.topic, partition.partition] = partition.offset

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._is_by_one_thread()
        self.paused |= {(each.topic, each.partition) for each in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._is_by_one_thread()
        self.paused -= {(each.topic, each.partition) for each in partitions}

    def poll(self, timeout: float) -> FakeMessage | None:
        self._is_by_one_thread()
        found = self._next()
        if found is None:
            time.sleep(min(timeout, 0.001))
        return found

    def consume(self, most: int, timeout: float) -> list[FakeMessage]:
        found: list[FakeMessage] = []
        while len(found) < most and (message := self._next()) is not None:
            found.append(message)
        return found

    def _next(self) -> FakeMessage | None:
        if self.events:
            return self.events.popleft()
        for (topic, number), at in sorted(self.positions.items(), key=lambda each: each[1]):
            log = self.logs.get((topic, number), [])
            if (topic, number) not in self.paused and at < len(log):
                self.positions[topic, number] = at + 1
                return FakeMessage(topic, number, at, log[at])
        return None

    def close(self) -> None:
        self.is_closed = True


class Stage:
    """A group's log, the logs of messages, and the consumers of one transport."""

    def __init__(self, topics: dict[str, int] | None = None) -> None:
        self.log = FakeLog(topics or {"t": 2})
        self.transport: FakeTransport = self.log.transport()
        self.logs: dict[tuple[str, int], list[bytes]] = {}
        self.opened: list[FakeData] = []

    def open_data(self, options: Mapping[str, Any]) -> FakeData:
        self.opened.append(FakeData(self.logs))
        return self.opened[-1]

    def consumer(self, client: str = "a", **more: Any) -> AsyncConsumer:
        """Options of `more` with _ for the dots."""
        options = {key if key == "on_commit" else key.replace("_", "."): more[key] for key in more}
        config = {**CONFIG, "client.id": client, **options}
        return AsyncConsumer(config, transport=self.transport, open_data=self.open_data)

    def write(self, partition: int, *values: bytes, topic: str = "t") -> None:
        self.logs.setdefault((topic, partition), []).extend(values)

    async def time_goes_on(self, by_ms: int) -> None:
        """Log time, in steps between which the loop runs."""
        for _ in range(by_ms // 500):
            self.log.advance(500)
            await asyncio.sleep(0.002)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The job judges, and transports write and read, meanwhile."""

        async def pump() -> None:
            while True:
                self.log.pump()
                await asyncio.sleep(0.001)

        task = asyncio.create_task(pump())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def run(course: Coroutine[Any, Any, None]) -> None:
    """A test's course, in an event loop of its own."""
    asyncio.run(course)


async def until(is_so: Any) -> None:
    """Wait for what a test needs; pytest's time limit ends it."""
    while not is_so():
        await asyncio.sleep(0.001)


async def gathered(*works: Awaitable[Any]) -> list[Any]:
    return list(await asyncio.gather(*works))

"""A coordination topic in memory, with time that stands still; consumers of claims run unchanged.

Nothing happens by itself: `pump` runs everything that needs no time, `advance` lets time pass.
Faults are switches of a transport: it may be cut off, deaf, or stopped like a process by SIGSTOP.
One thread lets all of this happen; users may call from others, which each transport's lock allows.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from coordlib.client.claims import events as sg
from coordlib.client.claims.transport import Coordination, Described, Handler, LogView
from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.world import World
from coordlib.core.wire import claims
from coordlib.core.wire.claims import AnyMessage
from coordlib.errors import CannotReach
from coordlib.kafka.logs import Bounds
from coordlib.testing.fake_log import refuse_as_kafka

EPOCH_MS: Final = 1_700_000_000_000  # log time at the beginning
ROUNDS_MAX: Final = 1_000


class FakeRecord(NamedTuple):
    """A record of a coordination partition."""

    offset: int
    timestamp_ms: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class FakeMessage:
    """As much of confluent-kafka's Message as consumers use."""

    place: TopicPartition
    at: int
    body: bytes

    def topic(self) -> str:
        return self.place.topic

    def partition(self) -> int:
        return self.place.partition

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return self.body

    def error(self) -> None:
        return None


class FakeClaimsLog:
    """Coordination partitions, and the topics whose partitions are claimed.

    Args:
        topics: name -> partition count; may be changed while consumers run.
        partitions: of the coordination topic.
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        topic: str = "__marshal.6s",
        partitions: int = 2,
        now_ms: int = 0,
    ) -> None:
        self.topics = dict(topics)
        interval_ms = claims.heartbeat_interval_ms(topic)
        self.place = Coordination(topic, partitions, "FakeClaims0", interval_ms)
        self.now_ms = now_ms
        #: What the broker's clock is ahead of everybody else's.
        self.broker_ahead_ms = 0
        self.records: list[list[FakeRecord]] = [[] for _ in range(partitions)]
        #: Records of the claimed partitions, by their place; and where each log begins.
        self.messages: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self.starts: dict[TopicPartition, int] = {}
        #: How often each topic was made anew.
        self.made: dict[str, int] = {}
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.transports: list[FakeClaimsTransport] = []
        self._instances = 0

    def transport(self) -> "FakeClaimsTransport":
        """A process of its own, to be cut off or stopped alone."""
        made = FakeClaimsTransport(self)
        self.transports.append(made)
        return made

    def new_instance(self) -> str:
        self._instances += 1
        return f"{self._instances:08x}"

    def append(self, partition: int, value: bytes | None) -> int:
        """Write a record; its offset."""
        log = self.records[partition]
        stamp = EPOCH_MS + self.now_ms + self.broker_ahead_ms
        log.append(FakeRecord(len(log), stamp, value))
        return len(log) - 1

    def say(self, message: AnyMessage) -> int:
        """Write a message as some other process does; its offset."""
        partition = claims.partition_of(message.topic, self.place.partitions)
        return self.append(partition, claims.encode(message))

    def put(self, topic: str, partition: int, count: int) -> None:
        """Write records to a partition that is claimed; each is its own offset as text."""
        log = self.messages[TopicPartition(topic, partition)]
        log.extend(str(len(log) + n).encode() for n in range(count))

    def cut(self, topic: str, partition: int, end: int) -> None:
        """The log of a partition that is claimed loses its end, as after an unclean election."""
        del self.messages[TopicPartition(topic, partition)][end:]

    def id_of(self, topic: str, ago: int = 0) -> str:
        """Kafka's id of a topic that is there, or of the one before it."""
        return f"{topic[:14]:_<14}{max(0, self.made.get(topic, 0) - ago):08d}"

    def make_anew(self, topic: str) -> None:
        """Delete a topic and make it again: empty, of another id, and Kafka's group forgets it."""
        self.made[topic] = self.made.get(topic, 0) + 1
        self.messages = defaultdict(
            list, {place: log for place, log in self.messages.items() if place.topic != topic}
        )
        self.committed = {key: at for key, at in self.committed.items() if key[1].topic != topic}

    def world(self, topic: str) -> World:
        """The fold of a topic's whole coordination partition."""
        partition = claims.partition_of(topic, self.place.partitions)
        world = World(self.place.topic, partition, self.place.partitions)
        for record in self.records[partition]:
            world.judge(record)
        return world

    def messages_of(self, topic: str) -> list[AnyMessage]:
        """All that was written about a topic, in the order of the log."""
        partition = claims.partition_of(topic, self.place.partitions)
        read = (claims.read(record.value) for record in self.records[partition])
        return [each for each in read if not isinstance(each, claims.Rejected)]

    def pump(self) -> None:
        """Run everything that needs no time."""
        for _ in range(ROUNDS_MAX):
            moved = [transport.write() for transport in self.transports]
            moved += [transport.read() for transport in self.transports]
            if not any(moved):
                return
        raise AssertionError(f"Consumers do not come to rest in {ROUNDS_MAX} rounds")

    def advance(
        self, by_ms: int, each: Callable[[], None] | None = None, step_ms: int = 100
    ) -> None:
        """Let time go on in steps; `each` is called after each (users poll there)."""
        until_ms = self.now_ms + by_ms
        while self.now_ms < until_ms:
            self.now_ms = min(until_ms, self.now_ms + step_ms)
            for transport in self.transports:
                transport.tell_time()
            self.pump()
            if each is not None:
                each()
                self.pump()


class FakeClaimsTransport:
    """A transport of one process to a `FakeClaimsLog`.

    `is_cut`: nothing is written, read or answered. `is_deaf`: nothing is read. `is_stopped`: the
    process does nothing at all, and its timers are late afterwards. `is_unacknowledged`: records
    are written, and their acknowledgements wait. `lags`: the broker that it asks has not seen yet
    that a topic was made anew.
    """

    def __init__(self, log: FakeClaimsLog) -> None:
        self._log = log
        self.lock = threading.RLock()
        self.place = log.place
        self.is_cut = self.is_deaf = self.is_stopped = self.is_unacknowledged = self.lags = False
        #: So many of the next messages are given up by the producer.
        self.fail_next = 0
        #: Which coordination partitions begin late, and where.
        self.begins: dict[int, int] = {}
        self._views: dict[int, LogView] = {}
        self._handlers: list[Handler] = []
        self._unwritten: deque[tuple[Handler, int, int, AnyMessage, int]] = deque()
        self._unheard: deque[Callable[[], None]] = deque()
        self._work: deque[Callable[[], None]] = deque()

    def now_ms(self) -> int:
        return self._log.now_ms

    def new_instance(self) -> str:
        return self._log.new_instance()

    def rng(self) -> Random:
        return Random(self._log.new_instance())

    def view_of(self, topic: str) -> LogView:
        partition = claims.partition_of(topic, self.place.partitions)
        if partition not in self._views:
            first = self.begins.get(partition, 0)
            world = World(self.place.topic, partition, self.place.partitions, is_late=bool(first))
            self._views[partition] = LogView(world, self.now_ms())
            self._views[partition].position = first
        return self._views[partition]

    def attach(self, handler: Handler) -> None:
        with self.lock:
            for topic in handler.topics:
                self.view_of(topic)
            self._handlers.append(handler)

    def keep(self, handler: Handler) -> None:
        """All are kept here."""

    def detach(self, handler: Handler) -> None:
        with self.lock:
            if handler in self._handlers:
                self._handlers.remove(handler)

    def send(
        self, handler: Handler, id_: int, partition: int, made: Callable[[int], AnyMessage]
    ) -> None:
        message = made((EPOCH_MS + self.now_ms()) // 1_000)
        self._unwritten.append((handler, id_, partition, message, self.now_ms()))

    def in_background(self, handler: Handler, work: Callable[[], None]) -> None:
        self._work.append(work)

    def flush(self, timeout_s: float) -> bool:
        self.write()
        return not self._unwritten

    def describe(self, topics: Iterable[str]) -> dict[str, Described]:
        refuse_as_kafka(topics)
        if self.is_cut:
            raise CannotReach("The transport is cut off.")
        known = self._log.topics
        ago = int(self.lags)
        return {t: Described(known[t], self._log.id_of(t, ago)) for t in topics if t in known}

    def bounds(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        if self.is_cut:
            raise CannotReach("The transport is cut off.")
        log = self._log
        return {each: Bounds(log.starts.get(each, 0), len(log.messages[each])) for each in places}

    def committed(
        self, group: str, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        known = self._log.committed
        return {each: known[group, each] for each in places if (group, each) in known}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], is_awaited: bool) -> None:
        if self.is_cut and is_awaited:
            raise CannotReach("The transport is cut off.")
        self._log.committed |= {(group, place): offset for place, offset in offsets.items()}

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass

    def tell_time(self) -> None:
        if self.is_stopped:
            return
        for handler in list(self._handlers):
            wake_ms = handler.wake_ms()
            if wake_ms is not None and wake_ms <= self.now_ms():
                handler.feed(sg.Elapsed(self.now_ms()))

    def write(self) -> bool:
        """Write and acknowledge what was sent; whether there was anything."""
        with self.lock:
            return self._write()

    def _write(self) -> bool:
        if self.is_cut or self.is_stopped:
            return False
        moved = bool(self._work or self._unwritten)
        while self._work:
            self._work.popleft()()
        while self._unwritten:
            handler, id_, partition, message, produced_ms = self._unwritten.popleft()
            if self.fail_next:
                self.fail_next -= 1
                handler.feed(sg.NotWritten(self.now_ms(), id_, "given up"))
                continue
            offset = self._log.append(partition, claims.encode(message))
            self._unheard.append(partial(self._acknowledge, handler, id_, offset, produced_ms))
        while self._unheard and not self.is_unacknowledged:
            self._unheard.popleft()()
        return moved

    def _acknowledge(self, handler: Handler, id_: int, offset: int, produced_ms: int) -> None:
        handler.feed(sg.Acknowledged(self.now_ms(), id_, offset, produced_ms))

    def read(self) -> bool:
        """Judge everything up to the end; whether there was anything."""
        with self.lock:
            return self._read()

    def _read(self) -> bool:
        if self.is_cut or self.is_deaf or self.is_stopped:
            return False
        asked_ms, moved = self.now_ms(), False
        for partition, view in self._views.items():
            for record in self._log.records[partition][view.position :]:
                moved = True
                judgement = view.judge(record, self.now_ms())
                for handler in list(self._handlers):
                    handler.judged(view, judgement)
            view.read_to_end(asked_ms)
        for handler in list(self._handlers):
            handler.feed(sg.ReadToEnd(self.now_ms()))
        return moved


class FakeReader:
    """A data consumer over a `FakeClaimsLog`: as much of confluent-kafka's as `Data` uses."""

    def __init__(self, log: FakeClaimsLog) -> None:
        self._log = log
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    def incremental_assign(self, begun: Sequence[Any]) -> None:
        for each in begun:
            self._positions[TopicPartition(each.topic, each.partition)] = each.offset

    def incremental_unassign(self, gone: Sequence[Any]) -> None:
        for each in gone:
            del self._positions[TopicPartition(each.topic, each.partition)]

    def pause(self, some: Sequence[Any]) -> None:
        self._paused |= {TopicPartition(each.topic, each.partition) for each in some}

    def resume(self, some: Sequence[Any]) -> None:
        self._paused -= {TopicPartition(each.topic, each.partition) for each in some}

    def poll(self, timeout_s: float) -> FakeMessage | None:
        for place, position in self._positions.items():
            log = self._log.messages[place]
            if place not in self._paused and position < len(log):
                self._positions[place] = position + 1
                return FakeMessage(place, position, log[position])
        return None

    def consume(self, count: int, timeout_s: float) -> list[FakeMessage]:
        found = iter(lambda: self.poll(timeout_s), None)
        return [message for message, _ in zip(found, range(count), strict=False)]

    def list_topics(self, topic: str, timeout: float) -> None:
        """Everything is known here."""

    def close(self) -> None:
        self._positions.clear()

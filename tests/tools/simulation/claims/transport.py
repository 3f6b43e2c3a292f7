"""A process's connection to the coordination topic: latencies, losses, and reading to the end.

It promises what `KafkaClaims` promises: messages of one transport are written in order and once
(the producer is idempotent), acknowledgements name the first produce() call, each partition is read
in order, and its end is asked for before the reading that is to reach it.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol

from coordlib.client.claims import events as sg
from coordlib.client.claims.reading import Beginnings
from coordlib.client.claims.transport import Coordination, Described, Handler, LogView
from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.slots import Judgement
from coordlib.core.wire import claims
from coordlib.core.wire.claims import AnyMessage
from coordlib.errors import CannotReach
from coordlib.kafka.logs import Bounds
from coordlib.testing.fake_log import refuse_as_kafka
from tests.tools.simulation.claims.logs import SimulatedAdmin, bounds_of, start_of
from tests.tools.simulation.cluster import EPOCH_MS, Cluster, Record
from tests.tools.simulation.scheduler import Channel, Clock, Process
from tests.tools.simulation.transport import Network
from tests.tools.simulation.violation import Violation

TIMER_INTERVAL_MS = 100
ASK_INTERVAL_MS = 700
RETRY_MS = 250


class Readers(Protocol):
    """Who compares what all readers conclude."""

    def judged(self, name: str, view: LogView, judgement: Judgement) -> None: ...

    def is_paused_before(self, number: int, offset: int) -> bool: ...


@dataclass(slots=True)
class _Unwritten:
    handler: Handler
    id: int
    partition: int
    value: bytes
    produced_ms: int
    #: Offset at which the log took it; None: not taken yet.
    offset: int | None = None


@dataclass(slots=True)
class _Reading:
    """One coordination partition."""

    view: LogView
    #: Next offset to fetch: before it, all is here or on its way.
    fetched: int
    is_fetching: bool = False


class ClaimsTransport:
    """The transport of one process.

    Args:
        skew_s: by how much its time of day is off; no reader may mind.
        committed: Kafka's committed offsets, by group and place.
        readers: is told of everything that is judged here.
    """

    def __init__(  # noqa: PLR0917  # all that a process has
        self,
        process: Process,
        cluster: Cluster,
        place: Coordination,
        prefix: str,
        clock: Clock,
        network: Network,
        luck: Random,
        skew_s: int,
        committed: dict[tuple[str, TopicPartition], int],
        readers: Readers,
    ) -> None:
        self._process, self._cluster, self._clock = process, cluster, clock
        self.network, self._luck, self._skew_s = network, luck, skew_s
        self._committed, self._readers = committed, readers
        self.place, self.lock = place, threading.RLock()
        self._admin = SimulatedAdmin(cluster)
        self._beginnings = Beginnings({"cluster": cluster}, place, prefix)
        self._readings: dict[int, _Reading] = {}
        #: Topic -> its coordination partition: asked for again and again.
        self._numbers: dict[str, int] = {}
        self._handlers: list[Handler] = []
        self._unwritten: deque[_Unwritten] = deque()
        self._is_writing = self._is_closed = False
        self._down = Channel(process.scheduler, network.latency_ms)
        self._acks = Channel(process.scheduler, network.latency_ms)
        self._commits = Channel(process.scheduler, network.latency_ms)
        self._failure: Exception | None = None
        #: Called when a message was given up: it may have had a position.
        self.on_given_up: Callable[[], None] = lambda: None
        self._every(TIMER_INTERVAL_MS, self._tell_time)
        self._every(ASK_INTERVAL_MS, self._ask_ends)

    # ---- what handlers use --------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def new_instance(self) -> str:
        return f"{self._luck.getrandbits(32):08x}"

    def rng(self) -> Random:
        return Random(self._luck.getrandbits(64))

    def view_of(self, topic: str) -> LogView:
        if topic not in self._numbers:
            self._numbers[topic] = claims.partition_of(topic, self.place.partitions)
        return self._readings[self._numbers[topic]].view

    def attach(self, handler: Handler) -> None:
        self.read(claims.partition_of(each, self.place.partitions) for each in handler.topics)
        self._handlers.append(handler)

    def read(self, partitions: Iterable[int]) -> None:
        """Read these coordination partitions from now on. Raises CannotReach."""
        for number in sorted({*partitions} - {*self._readings}):
            if not self._is_reachable:
                raise CannotReach("The coordination topic does not answer.")
            view = self._beginnings.begin(self._admin, number, self.now_ms())  # type: ignore[arg-type]
            if view.world.is_late and self._readers.is_paused_before(number, view.position):
                # An operator knows of the pause, and starts nobody before its end.
                raise CannotReach("The log that is read late does not have a pause that goes on.")
            self._readings[number] = _Reading(view, view.position)
            log = self._cluster.partitions[self.place.topic, number]
            log.appended.append(partial(self._fetch_soon, number))
            self._fetch_soon(number)

    def keep(self, handler: Handler) -> None:
        """All are kept here."""

    def detach(self, handler: Handler) -> None:
        if handler in self._handlers:
            self._handlers.remove(handler)

    def send(
        self, handler: Handler, id_: int, partition: int, made: Callable[[int], AnyMessage]
    ) -> None:
        time_s = (EPOCH_MS + self._process.scheduler.now_ms) // 1_000 + self._skew_s
        value = claims.encode(made(time_s))
        self._unwritten.append(_Unwritten(handler, id_, partition, value, self.now_ms()))
        if not self._is_writing:
            self._is_writing = True
            self._process.after(self.network.latency_ms(), self._write)

    def in_background(self, handler: Handler, work: Callable[[], None]) -> None:
        self._process.after(self._luck.uniform(1, 50) + self.network.latency_ms(), work)

    def flush(self, timeout_s: float) -> bool:
        return not self._unwritten

    def check(self) -> None:
        if self._failure is not None:
            raise CannotReach(f"The transport has failed: {self._failure!r}") from self._failure

    def close(self) -> None:
        self._is_closed = True

    # ---- questions ----------------------------------------------------------------------------

    @property
    def _is_reachable(self) -> bool:
        return self._cluster.is_up and not self.network.is_cut

    def _require_reachable(self) -> None:
        if not self._is_reachable:
            raise CannotReach("No broker answers.")

    def describe(self, topics: Iterable[str]) -> dict[str, Described]:
        """Topics are never made anew here."""
        refuse_as_kafka(topics)
        self._require_reachable()
        known = self._cluster.listing()
        return {t: Described(known[t], f"{t[:22]:_<22}") for t in topics if t in known}

    def bounds(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        self._require_reachable()
        found = ((each, bounds_of(self._cluster, each)) for each in places)
        return {place: bounds for place, bounds in found if bounds is not None}

    def committed(
        self, group: str, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        self._require_reachable()
        known = self._committed
        return {each: known[group, each] for each in places if (group, each) in known}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], is_awaited: bool) -> None:
        kept = {(group, place): offset for place, offset in offsets.items()}
        if is_awaited:
            self._require_reachable()
            self._committed.update(kept)
        elif self._is_reachable:
            self._commits.send(lambda: self._committed.update(kept))

    # ---- writing ------------------------------------------------------------------------------

    def _write(self) -> None:
        """One message at a time, in order; the next when this one is settled."""
        if not self._unwritten:
            self._is_writing = False
            return
        first = self._unwritten[0]
        if self.now_ms() - first.produced_ms > self.place.interval_ms:
            self._unwritten.popleft()
            self.on_given_up()
            self._feed(first.handler, sg.NotWritten(self.now_ms(), first.id, "timed out"))
            self._process.after(0, self._write)
            return
        if not self._is_reachable or self.network.is_mute:
            self._process.after(RETRY_MS, self._write)
            return
        if first.offset is None:
            place = (self.place.topic, first.partition)
            first.offset = self._cluster.append(place, None, first.value)
        if self.network.loses_acks:
            self._process.after(RETRY_MS, self._write)  # tried again, and not written again
            return
        self._unwritten.popleft()
        self._acks.send(lambda: self._process.arrive(lambda: self._acknowledge(first)))
        self._process.after(0, self._write)

    def _acknowledge(self, written: _Unwritten) -> None:
        assert written.offset is not None
        acknowledged = sg.Acknowledged(
            self.now_ms(), written.id, written.offset, written.produced_ms
        )
        self._feed(written.handler, acknowledged)

    # ---- reading ------------------------------------------------------------------------------

    def _fetch_soon(self, number: int) -> None:
        reading = self._readings[number]
        if not reading.is_fetching and not self._is_closed and self._process.is_alive:
            reading.is_fetching = True
            self._process.after(self.network.latency_ms(), lambda: self._fetch(number, reading))

    def _fetch(self, number: int, reading: _Reading) -> None:
        """What the broker has by now is on its way; it arrives in order."""
        if not self._is_reachable or self.network.is_deaf:
            self._process.after(RETRY_MS, lambda: self._fetch(number, reading))
            return
        reading.is_fetching = False
        log = self._cluster.partitions[self.place.topic, number]
        if reading.fetched < start_of(log):
            what = f"Claims were deleted before they were read: {reading.fetched}"
            self._failure = CannotReach(what, f"{self.place.topic}-{number}")
            return
        records, reading.fetched = log.read(reading.fetched, is_committed=False)
        for record in records:
            self._down.send(partial(self._arrive, reading, record))

    def _arrive(self, reading: _Reading, record: Record) -> None:
        self._process.arrive(lambda: self._judge(reading, record))

    def _judge(self, reading: _Reading, record: Record) -> None:
        view = reading.view
        judgement = view.judge(record, self.now_ms())
        self._readers.judged(self._process.name, view, judgement)
        if view.read_ms is not None:
            for handler in list(self._handlers):
                self._guard(handler, "Judged", partial(handler.judged, view, judgement))

    def _ask_ends(self) -> None:
        for number, reading in self._readings.items():
            if self._is_reachable and self._failure is None:
                asked_ms = self.now_ms()
                answer = partial(self._answer, number, reading, asked_ms)
                self._process.scheduler.after(self.network.latency_ms(), answer)

    def _answer(self, number: int, reading: _Reading, asked_ms: int) -> None:
        """At the broker: the end, which is on its way behind all that was fetched up to there."""
        goal = self._cluster.partitions[self.place.topic, number].end
        look = partial(self._look_whether_read, reading, asked_ms, goal)
        self._process.scheduler.after(self.network.latency_ms(), lambda: self._process.arrive(look))

    def _look_whether_read(self, reading: _Reading, asked_ms: int, goal: int) -> None:
        if reading.view.position < goal:
            again = partial(self._look_whether_read, reading, asked_ms, goal)
            self._process.after(TIMER_INTERVAL_MS, again)
            return
        reading.view.read_to_end(asked_ms)
        for handler in list(self._handlers):
            self._feed(handler, sg.ReadToEnd(self.now_ms()))

    # ---- time ---------------------------------------------------------------------------------

    def _tell_time(self) -> None:
        for handler in list(self._handlers):
            wake_ms = handler.wake_ms()
            if wake_ms is not None and wake_ms <= self.now_ms():
                self._feed(handler, sg.Elapsed(self.now_ms()))

    def _every(self, interval_ms: int, action: Callable[[], None]) -> None:
        def again() -> None:
            if not self._is_closed:
                action()
                self._process.after(interval_ms, again)

        self._process.after(self._luck.uniform(0, interval_ms), again)

    def _feed(self, handler: Handler, event: sg.Input) -> None:
        self._guard(handler, type(event).__name__, partial(handler.feed, event))

    def _guard(self, handler: Handler, what: str, work: Callable[[], None]) -> None:
        """In the transport's thread: what is raised there fails its handler (INV-70)."""
        try:
            work()
        except Violation:
            raise
        except Exception as problem:
            raise Violation(f"INV-70: {self._process.name} hears {what}: {problem!r}") from problem

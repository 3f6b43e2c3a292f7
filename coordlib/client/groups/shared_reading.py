"""One librdkafka consumer for all `AsyncConsumer`s of an event loop that share a transport.

Each of them has a `Channel`, which stands where a consumer of its own has confluent-kafka's. The
messages of all partitions are read by one thread and queued by their owner; the loop is woken once
for many of them. A partition is paused when the queue of its owner is full, and only that one.

librdkafka reads a partition at one position. So where members of two groups have one partition,
there is a second `Lane`, with a consumer and a thread of its own; within a group the newest owner
takes a partition over, since an earlier one has lost it.

Seeks, pauses and assignments are commands for the thread that reads: it carries them out between
two reads. So everything that it read before a command is of the time before the command, and is
dropped for a partition that the command moves.
"""

import asyncio
import inspect
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol, cast

from confluent_kafka import Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.groups.shared_questions import SharedTransport
from coordlib.client.kit import offsets as of
from coordlib.client.kit.calls import uninterrupted
from coordlib.client.kit.data import ClusterQueries, not_available, seek_to
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.transport import Transport
from coordlib.errors import CoordError

_log = logging.getLogger("coordlib.client")

#: How long one wait for a message lasts; commands wait as long.
WAIT_S: Final = 0.02
#: So many messages are taken from librdkafka at once.
BATCH: Final = 500
#: An owner's queue is full with so many messages, or so many bytes of values; its partitions are
#: resumed when half of that is left.
QUEUE_MAX: Final = 256
QUEUE_BYTES_MAX: Final = 1 << 20
#: Callbacks of librdkafka that return nothing: the loop calls them.
_TELLING: Final = frozenset({"error_cb", "stats_cb", "throttle_cb"})

OpenData = Callable[[Mapping[str, Any]], Any]
#: Callbacks that go on.
_tasks: set[asyncio.Future[Any]] = set()


@dataclass(frozen=True)
class _InLoop:
    """A callback of librdkafka's threads, called by the loop, which reports what it raises.

    Two of one callback are equal: their consumers share a reader.
    """

    loop: asyncio.AbstractEventLoop
    callback: Callable[[Any], Any]

    def __call__(self, given: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody can be called
            self.loop.call_soon_threadsafe(self._call, given)

    def _call(self, given: Any) -> None:
        if inspect.isawaitable(returned := self.callback(given)):
            task = asyncio.ensure_future(returned)
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)


def in_loop(options: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """Options of clients of the library, whose callbacks this loop calls."""
    return {
        key: _InLoop(loop, value) if key in _TELLING and callable(value) else value
        for key, value in options.items()
    }


@dataclass(slots=True, eq=False)
class _Part:
    """A partition that is read, or will be once its command is carried out."""

    owner: "weakref.ref[Channel]"
    #: Commands that move it and are not carried out: what comes until then is dropped.
    moves: int = 0
    #: By its owner; because the owner's queue is full.
    is_paused: bool = False
    is_held: bool = False


class Lane:
    """One librdkafka consumer, and the thread that reads it."""

    def __init__(self, shared: "SharedReader", data: Any) -> None:
        self._shared, self.data = shared, data
        self.parts: dict[TopicPartition, _Part] = {}
        self._commands: SimpleQueue[tuple[_Part, Callable[[], None]]] = SimpleQueue()
        #: What librdkafka has of these; of the reading thread.
        self._assigned: set[TopicPartition] = set()
        self._stopped: set[TopicPartition] = set()
        self._is_closed = False
        threading.Thread(target=self._run, name="coord-shared-read", daemon=True).start()

    # ---- commands: from any thread, under the lock of `shared` ----------------------------------

    def part_of(self, owner: "Channel | None", place: TopicPartition) -> _Part | None:
        """This partition, if it is this owner's."""
        part = self.parts.get(place)
        return part if part is not None and part.owner() is owner else None

    def move(self, owner: "Channel", to: KafkaTopicPartition, is_seek: bool = False) -> None:
        """Read it from this offset on, for this owner."""
        (place,) = of.ours([to])
        part = self.part_of(owner, place)
        if part is None:
            part = self.parts[place] = _Part(weakref.ref(owner))
        part.moves += 1
        self._commands.put((part, lambda: self._move(place, part, to, is_seek)))

    def stop(self, owner: "Channel | None", place: TopicPartition) -> None:
        """Read it no more, if it is this owner's."""
        if (part := self.part_of(owner, place)) is not None:
            del self.parts[place]
            self._commands.put((part, lambda: self._stop(place)))

    def settle(self, place: TopicPartition, part: _Part) -> None:
        """Pause or resume it, as its marks are by then."""
        self._commands.put((part, lambda: self._settle(place)))

    def close(self) -> None:
        """End the thread, which closes the consumer."""
        self._is_closed = True

    # ---- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_closed:
                self._carry_out()
                first = self.data.poll(WAIT_S)
                if first is not None:
                    self._hand_out([first, *self.data.consume(BATCH, timeout=0)])
        except Exception as problem:  # noqa: BLE001  # every owner's poll raises it
            _log.exception("The shared reader failed")
            for owner in self._shared.ended(self):
                owner.fail(problem)
        finally:
            self.data.close()

    def _carry_out(self) -> None:
        while True:
            try:
                part, command = self._commands.get_nowait()
            except Empty:
                return
            try:
                command()
            except Exception as problem:  # noqa: BLE001  # its owner's poll raises it
                _log.warning("A command of the shared reader failed: %s", problem)
                if (owner := part.owner()) is not None:
                    owner.fail(problem)

    def _move(
        self, place: TopicPartition, part: _Part, to: KafkaTopicPartition, is_seek: bool
    ) -> None:
        try:
            if place in self._assigned and is_seek:
                seek_to(self.data, to)
            else:
                if place in self._assigned:
                    self.data.incremental_unassign([to])
                    self._assigned.discard(place)
                self.data.incremental_assign([to])
                self._assigned.add(place)
        finally:
            with self._shared.lock:
                part.moves -= 1
        self._settle(place)

    def _stop(self, place: TopicPartition) -> None:
        if place in self._assigned and place not in self.parts:
            if place in self._stopped:  # librdkafka keeps it so, also for the next assignment
                self.data.resume(of.kafka_of((place,)))
                self._stopped.discard(place)
            self.data.incremental_unassign(of.kafka_of((place,)))
            self._assigned.discard(place)

    def _settle(self, place: TopicPartition) -> None:
        part = self.parts.get(place)
        if part is None or place not in self._assigned:
            return
        is_stopped = part.is_paused or part.is_held
        if is_stopped and place not in self._stopped:
            self.data.pause(of.kafka_of((place,)))
            self._stopped.add(place)
        elif not is_stopped and place in self._stopped:
            self.data.resume(of.kafka_of((place,)))
            self._stopped.discard(place)

    def _hand_out(self, messages: Sequence[Message]) -> None:
        woken: set[Channel] = set()
        with self._shared.lock:
            for message in messages:
                topic, number = message.topic(), message.partition()
                if topic is None or number is None or number < 0:
                    for each in self._shared.channels():  # an event of the library
                        each.add(message)
                        woken.add(each)
                    continue
                place = TopicPartition(topic, number)
                part = self.parts.get(place)
                if part is None or part.moves:
                    continue
                owner = part.owner()
                if owner is None:  # dropped by its program, and not closed
                    self.stop(None, place)
                    continue
                woken.add(owner)
                if owner.add(message) and not part.is_held:
                    part.is_held = True
                    owner.held.append((self, place))
                    self.settle(place, part)
        self._shared.touch(woken)


class Owner(Protocol):
    """A consumer, as the loop's turn sees it."""

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for it."""

    def prepare(self) -> None:
        """Look for what may be returned. Does not raise."""

    def wake(self) -> None:
        """Let who waits look."""


class Channel(ClusterQueries):
    """What one consumer has of the shared reader: its partitions and its queue.

    It stands where a consumer of its own has confluent-kafka's Consumer. Its `poll` never waits.

    Args:
        group: whose members take partitions over from each other.
    """

    def __init__(self, shared: "SharedReader", group: str) -> None:
        self._shared, self.group = shared, group
        self._queue: deque[Message] = deque()
        self._bytes = 0
        self._lanes: dict[TopicPartition, Lane] = {}
        #: Paused since the queue is full.
        self.held: list[tuple[Lane, TopicPartition]] = []
        self._problem: Exception | None = None
        #: Who polls it; not held.
        self.owner: Callable[[], Owner | None] = lambda: None

    # ---- the reading threads' side --------------------------------------------------------------

    def add(self, message: Message) -> bool:
        """Queue it; whether the queue is full."""
        self._queue.append(message)
        self._bytes += _size(message)
        return len(self._queue) >= QUEUE_MAX or self._bytes >= QUEUE_BYTES_MAX

    def fail(self, problem: Exception) -> None:
        """`poll` raises this from now on."""
        self._problem = problem
        self._shared.touch([self])

    # ---- the consumer's side --------------------------------------------------------------------

    def poll(self, timeout: float = 0.0) -> Message | None:  # noqa: ARG002  # who waits is the loop
        """The next message of the queue. Raises what has ended the reading."""
        if self._problem is not None:
            raise self._problem
        if not self._queue:
            return None
        message = self._queue.popleft()
        with self._shared.lock:
            self._bytes -= _size(message)
            if (
                self.held
                and 2 * len(self._queue) <= QUEUE_MAX
                and (2 * self._bytes <= QUEUE_BYTES_MAX)
            ):
                self._release()
        return message

    def _release(self) -> None:
        for lane, place in self.held:
            if (part := lane.part_of(self, place)) is not None:
                part.is_held = False
                lane.settle(place, part)
        self.held.clear()

    def incremental_assign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        with self._shared.lock:
            for each in partitions:
                (place,) = of.ours([each])
                lane = self._lanes[place] = self._shared.lane_for(self, place)
                lane.move(self, each)

    def incremental_unassign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        with self._shared.lock:
            gone = set(of.ours(partitions))
            for place in gone:
                if (lane := self._lanes.pop(place, None)) is not None:
                    lane.stop(self, place)
            self._forget(gone)

    def unassign(self) -> None:
        self.incremental_unassign(of.kafka_of(tuple(self._lanes)))

    def seek(self, partition: KafkaTopicPartition) -> None:
        with self._shared.lock:
            (place,) = of.ours([partition])
            lane = self._lanes.get(place)
            if lane is not None and lane.part_of(self, place) is not None:
                lane.move(self, partition, is_seek=True)
            self._forget({place})

    def _forget(self, gone: Collection[TopicPartition]) -> None:
        self._queue = deque(
            each for each in self._queue if (each.topic(), each.partition()) not in gone
        )
        self._bytes = sum(map(_size, self._queue))
        if not self._queue:
            self._release()

    def pause(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        self._mark(partitions, True)

    def resume(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        self._mark(partitions, False)

    def _mark(self, partitions: Sequence[KafkaTopicPartition], is_paused: bool) -> None:
        with self._shared.lock:
            for place in of.ours(partitions):
                lane = self._lanes.get(place)
                if lane is not None and (part := lane.part_of(self, place)) is not None:
                    part.is_paused = is_paused
                    lane.settle(place, part)

    def close(self) -> None:
        self.unassign()
        self._shared.leave(self)

    # ---- questions ------------------------------------------------------------------------------

    @property
    def _data(self) -> Any:
        return self._shared.first_lane().data

    def look_for(self, topics: Sequence[str]) -> None:
        """Let `poll` return an error for each of these that is not there."""
        if topics:
            self._shared.look_for(self, topics)


def _size(message: Message) -> int:
    value = message.value()
    return len(value) if value is not None else 0


@uninterrupted
def _prepare(owners: Sequence[Owner]) -> None:
    """In one: where the loop is the main thread's, each such call costs two changes of threads."""
    for each in owners:
        each.prepare()


class SharedReader:
    """What the `AsyncConsumer`s of one loop have in common that share a transport and options.

    Args:
        transport: theirs.
        loop: is woken.
        open_data: opens a confluent-kafka Consumer that only reads.
    """

    def __init__(
        self,
        transport: Transport,
        loop: asyncio.AbstractEventLoop,
        options: Mapping[str, Any],
        open_data: OpenData,
    ) -> None:
        self.loop, self._options, self._open_data = loop, options, open_data
        self.key = (transport, loop, options, open_data)
        self.transport = SharedTransport(transport)
        #: The same, as members take it.
        self.of_members = cast(Transport, self.transport)
        #: Guards everything about parts, queues and what is touched; never held while waiting.
        self.lock = threading.RLock()
        self._lanes: list[Lane] = []
        self._channels: weakref.WeakSet[Channel] = weakref.WeakSet()
        self._touched: set[Channel] = set()
        #: Topics that were seen, and channels that look for others.
        self._seen_topics: set[str] = set()
        self._looking: dict[str, list[Channel]] = {}

    # ---- channels -----------------------------------------------------------------------------

    def open(self, group: str) -> Channel:
        """A channel for one more consumer."""
        channel = Channel(self, group)
        with self.lock:
            self._channels.add(channel)
            self.first_lane()
        weakref.finalize(channel, self.close_if_unused).atexit = False
        return channel

    def leave(self, channel: Channel) -> None:
        """A channel is closed; the last one ends the reading threads."""
        with self.lock:
            self._channels.discard(channel)
            self.close_if_unused()

    def close_if_unused(self) -> None:
        """Also called when a program drops a consumer without closing it."""
        with self.lock:
            if not self.channels():  # one that is being collected still counts in the set
                for lane in self._lanes:
                    lane.close()
                self._lanes.clear()
                _shared.discard(self)

    def channels(self) -> list[Channel]:
        return list(self._channels)

    def ended(self, lane: Lane) -> list[Channel]:
        """A lane has failed: those that may use it. Later ones get another lane."""
        with self.lock:
            if lane in self._lanes:
                self._lanes.remove(lane)
            return self.channels()

    def first_lane(self) -> Lane:
        """For questions to the cluster, too."""
        with self.lock:
            return self._lanes[0] if self._lanes else self._open_lane()

    def lane_for(self, owner: Channel, place: TopicPartition) -> Lane:
        """The first one where no other group reads this partition."""
        for lane in self._lanes:
            part = lane.parts.get(place)
            other = None if part is None else part.owner()
            if other is None or other.group == owner.group:
                return lane
        return self._open_lane()

    def _open_lane(self) -> Lane:
        lane = Lane(self, self._open_data(self._options))
        self._lanes.append(lane)
        return lane

    # ---- the loop -----------------------------------------------------------------------------

    def touch(self, channels: Iterable[Channel]) -> None:
        """Wake them in the loop: one call of it for all that come before it runs."""
        with self.lock:
            is_asleep = not self._touched
            self._touched.update(channels)
            if not (is_asleep and self._touched):
                return
        self._call_soon(self._wake)

    def _call_soon(self, call: Callable[[], None]) -> None:
        try:
            self.loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed: nobody waits any more
            for lane in self._lanes:
                lane.close()

    def _wake(self) -> None:
        with self.lock:
            touched, self._touched = self._touched, set()
        owners = [owner for each in touched if (owner := each.owner()) is not None]
        awaited = [each for each in owners if each.is_awaited]
        _prepare(awaited)
        for each in awaited:
            each.wake()

    def look_for(self, channel: Channel, topics: Sequence[str]) -> None:
        """Let the channel's `poll` return an error for each of these that is not there."""
        with self.lock:
            unknown = [each for each in topics if each not in self._seen_topics]
            is_first = not self._looking
            for each in unknown:
                self._looking.setdefault(each, []).append(channel)
            if unknown and is_first:
                self.transport.in_thread(self._look)

    def _look(self) -> None:
        with self.lock:
            looking, self._looking = self._looking, {}
        try:
            counts = self.transport.partition_counts(list(looking), ())
        except CoordError as problem:
            _log.info("Whether the subscribed topics are there is not known: %s", problem.what)
            return
        with self.lock:
            self._seen_topics.update(counts)
            for topic in looking.keys() - counts.keys():
                message = not_available(topic)
                for channel in looking[topic]:
                    channel.add(message)
                self.touch(looking[topic])


#: Those in use.
_shared: set[SharedReader] = set()


def shared_reader(
    transport: Transport,
    loop: asyncio.AbstractEventLoop,
    options: Mapping[str, Any],
    open_data: OpenData,
) -> SharedReader:
    """The one of this transport and loop that reads with these options. Called in the loop."""
    key = (transport, loop, options, open_data)
    for each in _shared:
        if each.key == key:
            return each
    made = SharedReader(*key)
    _shared.add(made)
    return made

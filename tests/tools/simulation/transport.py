"""A member's connection to the simulated cluster: latencies, losses, and reading to the end.

It promises what `KafkaTransport` promises: requests of one transport are written in order and once
(the producer is idempotent), acknowledgements name the first produce() call, responses are read
read-committed in order, and the end is asked for before the reading that is to reach it, or proved
by a Progress that was read.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from coordlib.client.groups.reading import TopicIds
from coordlib.client.kit import events as sg
from coordlib.client.kit.reading import Mark, Proofs, Written
from coordlib.client.kit.requests import concerns
from coordlib.client.kit.transport import TIMER_INTERVAL_MS, Handler
from coordlib.core.groups.assignors.model import ReplicaRacks
from coordlib.core.wire import api, codec
from coordlib.core.wire.control import BEHIND_ALL
from coordlib.errors import CannotReach
from coordlib.kafka.layout import Place as Where
from coordlib.testing.fake_log import refuse_as_kafka
from tests.tools.simulation.cluster import Cluster, Record
from tests.tools.simulation.scheduler import Channel, Clock, Process
from tests.tools.simulation.violation import Violation

ASK_INTERVAL_MS = 500
MESSAGE_TIMEOUT_MS = 30_000
RETRY_MS = 250


@dataclass
class Network:
    """How a process reaches the brokers. Faults are switches on it."""

    usual_ms: Callable[[], float]
    #: Delays that come on top while they last.
    extra_ms: list[int] = field(default_factory=list)
    #: Nothing gets through in either direction.
    is_cut: bool = False
    #: Nothing can be read of the responses (F-34, a partition without a leader).
    is_deaf: bool = False
    #: Nothing can be written; responses can be read.
    is_mute: bool = False
    #: From its next JoinGroup or Subscribe on it is deaf.
    goes_deaf_at_join: bool = False
    #: Requests are written, and their acknowledgements get lost until this ends.
    loses_acks: bool = False

    def latency_ms(self) -> float:
        usual_ms = self.usual_ms()
        return usual_ms + sum(self.extra_ms)


@dataclass(slots=True)
class _Unwritten:
    handler: Handler
    request: api.Request
    produced_ms: int
    mark: Mark
    #: Offset at which the log took it; None: not taken yet.
    offset: int | None = None


class SimulatedTransport:
    """A transport of one process."""

    def __init__(
        self,
        process: Process,
        cluster: Cluster,
        where: Where,
        reply: int,
        clock: Clock,
        network: Network,
        luck: Random,
    ) -> None:
        self._process, self._cluster, self._clock = process, cluster, clock
        self._network, self._luck = network, luck
        self.place, self.reply = where, reply
        self._handlers: dict[str, Handler] = {}
        self._unwritten: deque[_Unwritten] = deque()
        self._is_writing = False
        self._responses = cluster.partitions[(where.responses, reply)]
        self._position = self._responses.last_stable
        self._down = Channel(process.scheduler, network.latency_ms)
        self._acks = Channel(process.scheduler, network.latency_ms)
        self._read_ms = clock.now_ms()
        self._proofs = Proofs()
        #: The ids of requests to join that are written, or on their way.
        self._joins: set[str] = set()
        self._is_fetching = False
        self._is_closed = False
        #: Whether it has ever served two members at a time; else its member takes it along.
        self._is_shared = False
        #: Under which ids LeaveGroup was sent over it.
        self.said_leave: set[str] = set()
        self._responses.appended.append(self._fetch_soon)
        self._every(TIMER_INTERVAL_MS, self._tell_time)
        self._every(ASK_INTERVAL_MS, self._ask_end)

    #: Where its program runs, as members name it.
    host: str | None = "a-machine"

    # ---- what members use ---------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def new_token(self) -> str:
        return f"{self._luck.getrandbits(64):016x}"

    def attach(self, handler: Handler) -> None:
        self._handlers[handler.identity.token] = handler
        self._is_shared = self._is_shared or len(self._handlers) > 1
        _feed(handler, sg.ReadToEnd(self.now_ms(), self._read_ms))

    def detach(self, handler: Handler) -> None:
        self._handlers.pop(handler.identity.token, None)

    def send(self, handler: Handler, request: api.Request) -> None:
        if handler.identity.token not in self._handlers and not self._is_shared:
            kind = type(request).__name__
            raise Violation(f"INV-29: {handler.identity.client} sends {kind} when it is closed")
        if isinstance(request, api.LeaveGroup):
            self.said_leave |= {each.member for each in request.members}
        awaited = "" if isinstance(request, api.Heartbeat) else request.id
        if isinstance(request, api.JoinGroup | api.Subscribe):
            self._cluster.joins_unanswered += request.id in self._joins
            self._joins.add(request.id)
        mark = self._proofs.mark(handler.identity.shard, self.now_ms(), awaited)
        self._unwritten.append(_Unwritten(handler, request, self.now_ms(), mark))
        if not self._is_writing:
            self._is_writing = True
            self._process.after(self._network.latency_ms(), self._write)

    def in_background(self, handler: Handler, work: Callable[[], None]) -> None:
        # Questions for topics' ids draw nothing: worlds are as they were before there were any.
        is_of_ids = work.__qualname__.startswith(TopicIds.__name__)
        self._process.after(1 if is_of_ids else self._luck.uniform(1, 100), work)

    def partition_counts(
        self,
        topics: Sequence[str] | None,
        own: Collection[str] | None = None,
    ) -> dict[str, int]:
        refuse_as_kafka(topics or ())
        if not self._cluster.is_up or self._network.is_cut:
            raise CannotReach("No metadata from Kafka: timed out.")
        known = self._cluster.listing()
        return {t: count for t, count in known.items() if topics is None or t in topics}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        if not self._cluster.is_up or self._network.is_cut:
            raise CannotReach("The ids of topics are not known: timed out.")
        return {topic: self._cluster.id_of(topic) for topic in topics if self._cluster.count(topic)}

    def replica_racks(self, topics: Sequence[str]) -> ReplicaRacks:
        return {}  # no member names a rack here

    def check(self) -> None:
        pass

    def close(self) -> None:
        self._is_closed = True
        if self._fetch_soon in self._responses.appended:
            self._responses.appended.remove(self._fetch_soon)

    # ---- writing ------------------------------------------------------------------------------

    @property
    def _is_reachable(self) -> bool:
        return self._cluster.is_up and not self._network.is_cut

    def _write(self) -> None:
        """One request at a time, in order; the next when this one is settled."""
        if not self._unwritten:
            self._is_writing = False
            return
        first = self._unwritten[0]
        if self.now_ms() - first.produced_ms > MESSAGE_TIMEOUT_MS:
            self._unwritten.popleft()
            self._tell(first.handler, sg.NotWritten(self.now_ms(), first.request.id, "timed out"))
            self._process.after(0, self._write)
            return
        if not self._is_reachable or self._network.is_mute:
            self._process.after(RETRY_MS, self._write)
            return
        if first.offset is None:
            place = (self.place.requests, first.handler.identity.shard)
            key = first.request.group.encode()
            first.offset = self._cluster.append(place, key, codec.encode_request(first.request))
            is_join = isinstance(first.request, api.JoinGroup | api.Subscribe)
            if self._network.goes_deaf_at_join and is_join:
                self._network.is_deaf = True
        if self._network.loses_acks:
            self._process.after(RETRY_MS, self._write)  # tried again, and not written again
            return
        self._unwritten.popleft()
        self._acks.send(lambda: self._process.arrive(lambda: self._acknowledge(first)))
        self._process.after(0, self._write)

    def _acknowledge(self, written: _Unwritten) -> None:
        assert written.offset is not None
        shard = written.handler.identity.shard
        id_, produced_ms, now_ms = written.request.id, written.produced_ms, self.now_ms()
        told = self._proofs.acknowledged(shard, written.offset, written.mark)
        if told is Written.NEWEST:
            self._tell(written.handler, sg.Acknowledged(now_ms, id_, written.offset, produced_ms))
            return
        if told is Written.CUT:
            for handler in list(self._handlers.values()):
                if handler.identity.shard == shard:
                    self._cluster.cuts_noticed += 1
                    _feed(handler, sg.LogCut(now_ms))
        self._tell(written.handler, sg.NotWritten(now_ms, id_, "the log was cut"))

    def _tell(self, handler: Handler, event: sg.Input) -> None:
        if isinstance(event, sg.NotWritten):
            self._joins.discard(event.id)
        if handler.identity.token in self._handlers:
            _feed(handler, event)

    # ---- reading ------------------------------------------------------------------------------

    def _fetch_soon(self) -> None:
        if not self._is_fetching:
            self._is_fetching = True
            self._process.after(self._network.latency_ms(), self._fetch)

    def _fetch(self) -> None:
        """What the broker has by now is on its way; it arrives in order."""
        if not self._is_reachable or self._network.is_deaf:
            self._process.after(RETRY_MS, self._fetch)
            return
        self._is_fetching = False
        records, self._position = self._responses.read(self._position)
        for record in records:
            self._down.send(partial(self._arrive, record))

    def _arrive(self, record: Record) -> None:
        self._process.arrive(lambda: self._dispatch(record))

    def _dispatch(self, record: Record) -> None:
        if record.value is None or not self._handlers:
            return
        message = codec.decode_response(record.value)
        if isinstance(message, api.Response):
            self._proofs.answered(message.id)
        if isinstance(message, api.CoordinatorLoading) and message.lost:
            for shard, before in message.lost.items():
                for id_ in self._proofs.lost(shard, before):
                    self._tell_lost(id_, is_cut=before == BEHIND_ALL)
        for handler in list(self._handlers.values()):
            if concerns(handler.identity, message):
                _feed(handler, sg.Received(self.now_ms(), message))
        if isinstance(message, api.Progress):
            asked_ms = self._proofs.progressed(message.shard, message.offset)
            if asked_ms is not None and asked_ms - self._read_ms >= ASK_INTERVAL_MS:
                self._has_read(asked_ms)

    def _tell_lost(self, id_: str, is_cut: bool) -> None:
        asker = self._handlers.get(id_.rpartition("-")[0])
        if asker is not None:
            self._cluster.joins_cut += is_cut and id_ in self._joins
            self._joins.discard(id_)
            _feed(asker, sg.NotWritten(self.now_ms(), id_, "lost"))

    def _ask_end(self) -> None:
        asked_ms = self.now_ms()
        lasting = [each.reading_lasts_ms() for each in self._handlers.values()]
        lasts_ms = min((each for each in lasting if each is not None), default=None)
        is_due = lasts_ms is not None and asked_ms - self._read_ms >= lasts_ms
        if self._is_reachable and is_due:
            self._process.after(self._network.latency_ms(), lambda: self._hear_end(asked_ms))

    def _hear_end(self, asked_ms: int) -> None:
        if self._is_reachable and not self._network.is_deaf:
            # Fetched up to there, and behind everything that is still on its way.
            self._fetch_soon()
            goal = self._responses.last_stable
            self._process.after(
                self._network.latency_ms(), lambda: self._look_whether_read(asked_ms, goal)
            )

    def _look_whether_read(self, asked_ms: int, goal: int) -> None:
        if self._position < goal:
            self._process.after(RETRY_MS, lambda: self._look_whether_read(asked_ms, goal))
            return
        self._down.send(lambda: self._process.arrive(lambda: self._has_read(asked_ms)))

    def _has_read(self, asked_ms: int) -> None:
        self._read_ms = max(self._read_ms, asked_ms)
        for handler in list(self._handlers.values()):
            _feed(handler, sg.ReadToEnd(self.now_ms(), asked_ms))

    # ---- time ---------------------------------------------------------------------------------

    def _tell_time(self) -> None:
        for handler in list(self._handlers.values()):
            wake_ms = handler.wake_ms()
            if wake_ms is not None and wake_ms <= self.now_ms():
                _feed(handler, sg.Elapsed(self.now_ms()))

    def _every(self, interval_ms: int, action: Callable[[], None]) -> None:
        def again() -> None:
            if not self._is_closed:
                action()
                self._process.after(interval_ms, again)

        self._process.after(self._luck.uniform(0, interval_ms), again)


def _feed(handler: Handler, event: sg.Input) -> None:
    """In the transport's thread: what is raised there ends it, for all its members (INV-70)."""
    try:
        handler.feed(event)
    except Violation:
        raise
    except Exception as problem:
        what = type(event).__name__
        raise Violation(f"INV-70: {handler.identity.client} hears {what}: {problem!r}") from problem

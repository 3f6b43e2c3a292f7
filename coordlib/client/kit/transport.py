"""Kafka around members: one idempotent producer, one reader of one response partition.

Many members may share a transport. Two threads serve them: one reads the responses and, where a
fence needs it, asks for their end; the other waits for acknowledgements and runs the members'
timers. So a broker that answers no question does not hold up heartbeats to another one. Handlers
are called from these threads and must not block. An exception of one handler fails that member
alone.  # INV-70

One failure of the transport ends it for all of its handlers.
"""

import logging
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from secrets import token_hex
from typing import Any, Final, Generic, Protocol, Self, TypeVar
from weakref import WeakValueDictionary

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from coordlib import limits
from coordlib.client.kit import events as sg
from coordlib.client.kit.calls import uninterrupted
from coordlib.client.kit.config import require_name
from coordlib.client.kit.data import read_counts, read_racks
from coordlib.client.kit.process import boottime_ms, made_here, own_host
from coordlib.client.kit.reading import LOST, Mark, Proofs, ResponseReader, ResponsesGone, Written
from coordlib.client.kit.requests import Identity, concerns
from coordlib.core.groups.assignors.model import ReplicaRacks
from coordlib.core.wire import api, codec
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.envelope import reply_partition_of, shard_of
from coordlib.errors import CannotReach, CoordError, NotAllowed
from coordlib.kafka.clients import denial, is_fatal, opening, reason_of, writing
from coordlib.kafka.cluster import TopicIdReader
from coordlib.kafka.layout import Place, find_place
from coordlib.kafka.options import refuse_transactional, shared
from coordlib.kafka.producer import LastingProducer


class NoFence:
    """A handler without a fence and without timers; what comes is noted for another thread."""

    _heard: SimpleQueue[Any]

    def reading_lasts_ms(self) -> int | None:
        return None

    def wake_ms(self) -> int | None:
        return None

    def fail(self, problem: Exception) -> None:
        self._heard.put(problem)


_log = logging.getLogger("coordlib.client")

#: Of a message that librdkafka takes for written, since the broker has answered a repeated try with
#: DUPLICATE_SEQUENCE_NUMBER: nobody says where it stands, so it counts as one that may be written.
NO_OFFSET: Final = "it was written before, and the broker does not say where"

_ANEW: Final = "Close what uses the transport, then make it and its users anew."

#: Of the producer of requests.
PRODUCER_CONFIG: dict[str, Any] = {
    "enable.idempotence": True,  # rule 12; order is kept and nothing is written twice
    "acks": "all",
    "linger.ms": 2,
    "reconnect.backoff.max.ms": 1_000,  # rule 12
    "message.max.bytes": limits.REQUEST_BYTES_MAX + 64 * limits.KIB,
    "message.timeout.ms": 30_000,
}


TIMER_INTERVAL_MS = 200  # how often the members' timers are looked at


class Served(Protocol):
    """What a transport serves: a state machine of its own."""

    def feed(self, event: Any) -> None:
        """Take what happened; quick, from any thread."""

    def wake_ms(self) -> int | None:
        """When its next timer is due; None: it has none."""

    def fail(self, problem: Exception) -> None:
        """It raised in a thread of the transport: its `poll` is to raise the problem."""


HandlerT = TypeVar("HandlerT", bound=Served)


class FailingTransport(ABC, Generic[HandlerT]):
    """The base of transports: one failure ends them for all of their handlers."""

    def __new__(cls, *_args: Any, **_named: Any) -> Self:
        made = super().__new__(cls)
        made_here(made)
        return made

    #: Whoever had it for itself was dropped: its threads end, whatever still holds it.
    is_dropped = False
    #: How often the handlers' timers are looked at.
    _timer_interval_ms: int = TIMER_INTERVAL_MS
    #: Why it does nothing any more; None: it has not failed.
    _failure: CoordError | None = None

    def __init__(self, topic: str) -> None:
        #: That it writes to.
        self._topic = topic
        self._is_closed = threading.Event()
        #: Of what could not be queued: told later, since its handler is in the middle of its
        #: outputs.
        self._unsent: SimpleQueue[Callable[[], None]] = SimpleQueue()
        #: When the handlers' timers were looked at.
        self._timers_ms = self.now_ms()

    def _start(
        self, name: str, wait: Callable[[], Any], turn: Callable[[Any, Any], None]
    ) -> threading.Thread:
        """A thread that takes turns until the transport is closed, or no program has it any more.

        While it waits it does not hold the transport, nor does the transport hold its handlers:
        what a program drops without `close` is collected, and no signs of life follow.  # INV-143
        """
        args = (weakref.ref(self), wait, turn)
        thread = threading.Thread(target=_take_turns, args=args, name=name, daemon=True)
        thread.start()
        return thread

    @abstractmethod
    def _guarded(self, turn: Callable[[], None]) -> bool:
        """Take a turn; False: it has failed, and the thread ends."""

    def check(self) -> None:
        """Raises CannotReach when the transport has failed or is closed; NotAllowed, StartRefused.

        `poll` would be silent for ever where nobody serves the transport any more.  # INV-156
        """
        if self._failure is not None:
            raise self._failure
        if self._is_closed.is_set():
            raise CannotReach("The transport is closed.", self._topic, _ANEW)

    def _failed(self, problem: Exception, hint: str = _ANEW) -> CoordError:
        """What ended it, as `check` raises it."""
        if isinstance(problem, CoordError):
            return problem
        reason = reason_of(problem) if isinstance(problem, KafkaException) else repr(problem)
        failed = CannotReach(f"The transport has failed: {reason}", self._topic, hint)
        failed.__cause__ = problem
        return failed

    def _end(self, step: Callable[[], object]) -> None:
        """A producer that has failed for ever says so once more when it is closed."""
        try:
            step()
        except KafkaException as problem:
            if self._failure is None and not is_fatal(problem):
                raise

    def _for(self, handler: HandlerT, work: Callable[[], None]) -> None:
        """Call one handler; an exception fails that one alone.  # INV-70"""
        try:
            work()
        except NotAllowed as problem:
            _log.warning("%s failed: %s", self._named(handler), problem.what)
            handler.fail(problem)
        except Exception as problem:  # noqa: BLE001  # its poll raises it, whatever it is
            _log.exception("%s failed", self._named(handler))
            handler.fail(problem)

    def _feed(self, handler: HandlerT, event: Any) -> None:
        self._for(handler, partial(handler.feed, event))

    def _serve(self, _polled: None) -> None:
        """What the thread that sends does between two waits for acknowledgements."""
        for _ in range(self._unsent.qsize()):  # not those that follow: a handler may send again
            self._unsent.get_nowait()()
        if self.now_ms() - self._timers_ms >= self._timer_interval_ms:
            self._timers_ms = now_ms = self.now_ms()
            for handler in self._all():
                self._for(handler, partial(_tell_time, handler, now_ms))

    def now_ms(self) -> int:
        """On a clock that goes on while the machine sleeps."""
        return boottime_ms()

    @abstractmethod
    def _all(self) -> list[HandlerT]:
        """The handlers that programs still use."""

    @abstractmethod
    def _named(self, handler: HandlerT) -> str:
        """A handler, for the log."""


def while_used(method: Callable[..., None], handler: object) -> Callable[..., None]:
    """Tells a handler unless its program has dropped it: what waits in the library holds it not."""
    used = weakref.ref(handler)

    def tell(*args: Any) -> None:
        if (found := used()) is not None:
            method(found, *args)

    return tell


def _take_turns(
    used: "weakref.ref[FailingTransport[Any]]",
    wait: Callable[[], Any],
    turn: Callable[[Any, Any], None],
) -> None:
    while True:
        found, problem = None, None
        try:
            found = wait()
        except Exception as raised:  # noqa: BLE001  # the transport judges it
            problem = raised
        if (transport := used()) is None or transport._is_closed.is_set() or transport.is_dropped:
            return
        work = partial(turn, transport, found) if problem is None else partial(_raise, problem)
        if not transport._guarded(work):
            return
        del transport, work


def _tell_time(handler: Served, now_ms: int) -> None:
    wake_ms = handler.wake_ms()
    if wake_ms is not None and wake_ms <= now_ms:
        handler.feed(sg.Elapsed(now_ms))


def _raise(problem: Exception) -> None:
    raise problem


TICK_S = 0.02  # how long one wait for acknowledgements lasts
START_S = 10.0  # how long one try to begin anew may last
RENEW_INTERVAL_S = 1.0  # how old a producer that failed fatally must be to be replaced


class Handler(Served, Protocol):
    """A member, as the transport sees it."""

    @property
    def identity(self) -> Identity: ...

    def reading_lasts_ms(self) -> int | None:
        """How old the newest complete reading may become; None: nothing of it depends on that."""


class Transport(Protocol):
    """The services that members need from outside."""

    @property
    def place(self) -> Place: ...

    @property
    def reply(self) -> int: ...

    @property
    def host(self) -> str | None:
        """Where this program runs, as members name it; None: they name nothing."""

    def now_ms(self) -> int: ...

    def new_token(self) -> str:
        """A name for one membership that no other one has, hexadecimal."""

    def attach(self, handler: Handler) -> None:
        """Deliver to this member from now on. Its first request may be sent afterwards."""

    def detach(self, handler: Handler) -> None: ...

    def send(self, handler: Handler, request: api.Request) -> None:
        """Write a request; its outcome is fed to the handler later. Never blocks or raises."""

    def in_background(self, handler: Handler, work: Callable[[], None]) -> None:
        """Do something for this member that may block, beside everything else."""

    def partition_counts(
        self, topics: Sequence[str] | None, own: Collection[str] | None = None
    ) -> dict[str, int]:
        """Those of the topics that exist (None: all there are), with their partition counts.

        Raises CannotReach; NotAllowed: one of its `own` topics (None: all) may not be seen; others
        count as not there then. May block.
        """

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """As `TopicIdReader.read`. Raises CannotReach. May block."""

    def replica_racks(self, topics: Sequence[str]) -> ReplicaRacks:
        """For those of the topics that exist: the racks of each partition's replicas.

        Brokers that name no rack, or are down, add none. Raises CannotReach. May block.
        """

    def check(self) -> None:
        """Raises CannotReach when the transport itself has failed; NotAllowed."""

    def close(self) -> None: ...


def identity_at(transport: Transport, name: str, client: str, **more: Any) -> Identity:
    """Who speaks for a group, or for another name, over a transport: with a token of its own.

    `more` are the fields of Identity that a member has besides.
    """
    place = transport.place
    return Identity(
        group=name,
        client=client,
        token=transport.new_token(),
        shard=shard_of(name, place.shards),
        reply=transport.reply,
        incarnation=place.incarnation,
        prefix=place.prefix,
        **more,
    )


class KafkaTransport(FailingTransport[Handler]):
    """A transport over confluent-kafka.

    Args:
        config: confluent-kafka's keys for all clients, at least `bootstrap.servers`.
        prefix: the coordinator's topic prefix.
        client: client id; chooses the response partition when `reply` is None.
        reply: the response partition to read, 0..R-1.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        prefix: str = "coord",
        client: str = "coordlib",
        reply: int | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        refuse_transactional(config)
        self._config = config = shared(config)
        self.place = find_place(config, prefix, timeout_s)
        super().__init__(self.place.requests)
        chosen = reply_partition_of(client, self.place.reply_partitions)
        self.reply = chosen if reply is None else reply
        with opening():
            options = {"log_level": 6, **config, "client.id": client, **PRODUCER_CONFIG}
            self._producer = LastingProducer(options, "requests", RENEW_INTERVAL_S)
            responses = TopicPartition(self.place.responses, self.reply)
            self._reader = ResponseReader(config, client, responses)
        self._proofs = Proofs()
        # By the admin client that is there: another one has four threads more.
        self.topic_ids = TopicIdReader(config, self._reader.admin).read
        self._lock = threading.Lock()
        self._handlers: WeakValueDictionary[str, Handler] = WeakValueDictionary()
        self._by_group: dict[bytes, WeakValueDictionary[str, Handler]] = {}
        self._reader.start(timeout_s)
        self._threads = [
            self._start("coord-read", self._reader.read, KafkaTransport._read),
            self._start("coord-send", partial(self._producer.poll, TICK_S), KafkaTransport._serve),
        ]

    @property
    def host(self) -> str | None:
        return own_host()

    def new_token(self) -> str:
        return token_hex(8)

    @uninterrupted
    def attach(self, handler: Handler) -> None:
        identity = handler.identity
        with self._lock:
            self._handlers[identity.token] = handler
            of_group = self._by_group.setdefault(identity.group.encode(), WeakValueDictionary())
            of_group[identity.token] = handler
        if self._reader.read_ms is not None:
            # Whatever can concern it is yet to be written, so that reading counts for it too.
            handler.feed(sg.ReadToEnd(self.now_ms(), self._reader.read_ms))

    @uninterrupted
    def detach(self, handler: Handler) -> None:
        identity = handler.identity
        with self._lock:
            self._handlers.pop(identity.token, None)
            if (of_group := self._by_group.get(identity.group.encode())) is not None:
                of_group.pop(identity.token, None)
        self._proofs.forget(identity.token)

    @uninterrupted
    def send(self, handler: Handler, request: api.Request) -> None:
        awaited = "" if isinstance(request, api.Heartbeat) else request.id
        mark = self._proofs.mark(handler.identity.shard, self.now_ms(), awaited)
        on_delivery = partial(while_used(self._delivered, handler), request.id, mark)
        try:
            value = codec.encode_request(request)
        except ValueError as problem:
            self._not_sent(handler, request.id, str(problem), True)
            return
        try:
            self._producer.produce(
                self.place.requests,
                value,
                request.entity[1].encode(),
                handler.identity.shard,
                on_delivery,
            )
        except TimeoutError:
            self._not_sent(handler, request.id, "the producer's queue is full", False)
        except KafkaException as problem:
            self._not_sent(handler, request.id, reason_of(problem), self._is_final(problem.args[0]))

    def in_background(self, handler: Handler, work: Callable[[], None]) -> None:
        threading.Thread(target=self._for, args=(handler, work), daemon=True).start()

    def partition_counts(
        self, topics: Sequence[str] | None, own: Collection[str] | None = None
    ) -> dict[str, int]:
        return read_counts(self._producer, self._config, topics, own)

    def replica_racks(self, topics: Sequence[str]) -> ReplicaRacks:
        return read_racks(self._config, topics)

    def close(self) -> None:
        self._end(lambda: self._producer.flush(5.0))
        self._is_closed.set()
        for thread in self._threads:
            thread.join(5.0)
        self._reader.close()
        self._producer.close()

    # ---- sending ------------------------------------------------------------------------------

    def _not_sent(self, handler: Handler, id_: str, why: str, is_final: bool) -> None:
        # Not fed here: the handler is in the middle of its outputs.
        event = partial(sg.NotWritten, id=id_, why=why, is_final=is_final)
        self._unsent.put(lambda: self._feed(handler, event(now_ms=self.now_ms())))

    def _delivered(
        self, handler: Handler, id_: str, mark: Mark, error: KafkaError | None, of: Message
    ) -> None:
        offset, now_ms, shard = of.offset(), self.now_ms(), handler.identity.shard
        if error is not None:
            is_final = self._is_final(error)
            self._feed(handler, sg.NotWritten(now_ms, id_, error.str(), is_final))
        elif offset is None:
            self._feed(handler, sg.NotWritten(now_ms, id_, NO_OFFSET, is_final=False))
        elif (written := self._proofs.acknowledged(shard, offset, mark)) is Written.NEWEST:
            self._feed(handler, sg.Acknowledged(now_ms, id_, offset, mark.produced_ms))
        else:
            if written is Written.CUT:
                self._cut(shard, offset, mark.newest)
            self._feed(handler, sg.NotWritten(now_ms, id_, LOST, is_final=False))

    def _cut(self, shard: int, offset: int, newest: int) -> None:
        """The end of a shard's log is lost: its members do not know what was judged of theirs."""
        topic = self.place.requests
        _log.warning("%s-%d has lost its end: %d comes after %d", topic, shard, offset, newest)
        for handler in self._all():
            if handler.identity.shard == shard:
                self._feed(handler, sg.LogCut(self.now_ms()))

    def _is_final(self, error: KafkaError) -> bool:
        denied = denial(error, writing(self.place.requests), self._config)
        if denied:
            self._failure = denied
        return denied is not None or error.code() == KafkaError.MSG_SIZE_TOO_LARGE

    def _renew(self) -> None:
        """Another producer for one that has failed fatally; what that one had is not written.

        The broker may have lost the end of any shard's log: then offsets do not show it once others
        have written there.  # INV-105
        """
        if self._failure is None and self._producer.renew():
            _log.warning("Another producer writes to %s from now on", self.place.requests)
            for handler in self._all():
                self._feed(handler, sg.LogCut(self.now_ms()))

    def _serve(self, _polled: None) -> None:
        self._renew()
        super()._serve(_polled)

    # ---- reading ------------------------------------------------------------------------------

    def _read(self, found: list[tuple[bytes, bytes]]) -> None:
        for key, value in found:
            self._dispatch(key, value)
        if self._reader.is_at_end():
            asked_ms = self._reader.read_ms
            assert asked_ms is not None
            for handler in self._all():
                self._feed(handler, sg.ReadToEnd(self.now_ms(), asked_ms))
        self._reader.ask(self.now_ms(), self._reading_lasts_ms)

    def _read_on(self, gone: ResponsesGone) -> None:
        """Nobody knows what was among the responses that are gone: members join anew.  # INV-156"""
        try:
            self._reader.start(START_S)
        except CannotReach as problem:  # the next turn tries again
            _log.warning("%s The reader does not begin anew yet: %s", gone.what, problem.what)
            return
        _log.warning("%s %s: members join anew.", gone.what, gone.where)
        for handler in self._all():
            self._feed(handler, sg.LogCut(self.now_ms()))

    def _reading_lasts_ms(self) -> int | None:
        lasting: list[int] = []
        for handler in self._all():
            self._for(handler, partial(_note_lasting, handler, lasting))
        return min(lasting, default=None)

    def _dispatch(self, key: bytes, value: bytes) -> None:
        """Only what may concern a member here is decoded; Progress has no key."""
        concerned = self._of_group(key) if key else self._all()
        if not concerned:
            return
        try:
            message = codec.decode_response(value)
        except msgspec.MsgspecError as problem:
            _log.warning("A response cannot be read: %s", problem)
            return
        if isinstance(message, api.Response):  # found, since most of what comes is for one of many
            self._proofs.answered(message.id)
            addressed = self._handlers.get(message.id.rpartition("-")[0])
            concerned = [addressed] if addressed is not None else []
        if isinstance(message, api.Progress):
            self._reader.proved(self._proofs.progressed(message.shard, message.offset))
        if isinstance(message, api.CoordinatorLoading) and message.lost:
            self._ask_again(message.lost)
        for handler in concerned:
            if concerns(handler.identity, message):
                self._feed(handler, sg.Received(self.now_ms(), message))

    def _ask_again(self, lost: dict[int, int]) -> None:
        """Requests that the job has skipped count as not written."""
        for id_ in (each for at in lost.items() for each in self._proofs.lost(*at)):
            if handler := self._handlers.get(id_.rpartition("-")[0]):
                self._feed(handler, sg.NotWritten(self.now_ms(), id_, LOST, is_final=False))

    # ---- small things -------------------------------------------------------------------------

    def _all(self) -> list[Handler]:
        with self._lock:
            return list(self._handlers.values())

    def _of_group(self, key: bytes) -> list[Handler]:
        with self._lock:
            return list(self._by_group.get(key, {}).values())

    def _guarded(self, turn: Callable[[], None]) -> bool:
        """Report a thread that dies; the members' fences then stop them anyway."""
        try:
            turn()
            return True
        except NotAllowed as problem:
            _log.warning("A thread of the transport ends: %s", problem.what)
            self._failure = problem
        except ResponsesGone as problem:
            return self._guarded(partial(self._read_on, problem))
        except Exception as problem:  # noqa: BLE001  # check() raises it, whatever it is
            denied = denial(problem, writing(self.place.requests), self._config)
            if denied is None and self._producer.is_broken and is_fatal(problem):
                return True  # of the producer, which is replaced in the next turn
            if denied is None:
                _log.exception("A thread of the transport failed")
            self._failure = denied or self._failed(problem)
        return False

    def _named(self, handler: Handler) -> str:
        return f"A member of group {handler.identity.group}"


def _note_lasting(handler: Handler, lasting: list[int]) -> None:
    if (lasts_ms := handler.reading_lasts_ms()) is not None:
        lasting.append(lasts_ms)


def default_client_id() -> str:
    """`<host>-<process>-<random>`: shows where a member runs, and never repeats."""
    return f"{(own_host() or 'host')[:80]}-{os.getpid()}-{token_hex(4)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """The names given by the user, checked before any network call."""

    group: str
    client: str | None = None
    instance: str | None = None
    rack: str | None = None
    prefix: str = "coord"
    #: What the group shares: `consumer` is partitions of topics.
    protocol_type: str = cp.CONSUMER

    def __post_init__(self) -> None:
        require_name("The name of a group", self.group, limits.NAME_LENGTH_MAX)
        if self.client:
            require_name("A client id", self.client, limits.CLIENT_LENGTH_MAX)
        if self.instance is not None:
            require_name("An instance id", self.instance, limits.NAME_LENGTH_MAX)
        if self.rack:
            require_name("A rack", self.rack, limits.NAME_LENGTH_MAX)

    def identity(self, client: str, transport: Transport) -> Identity:
        """The same over one transport, with a token that no other member has."""
        return identity_at(
            transport,
            self.group,
            client,
            instance=self.instance,
            rack=self.rack,
            host=transport.host,
            protocol_type=self.protocol_type,
        )

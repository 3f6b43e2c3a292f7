"""`CommittedReader`: confluent-kafka's Consumer in shape, which delivers committed records only.

For topics into which producers write whose transactions the coordinator decides. The rule stands in
`client/transactions/committed.py`, one reader for each partition; this reads records, asks the
coordinator where a marker stays away, and holds back what is undecided. It joins no group and
commits nothing: programs name the partitions, or read them in a group by a `CoordinatedConsumer`
with `coord.decided.by`.

What is read and held back is changed whole (`kit/calls.py`), and records that may be
delivered wait until the line that returns them notes them as handed out (`kit/data.py`).
Questions to the coordinator wait for nothing: a reader asks, and looks later for answers. Silence
is not asked again, since the question stands in the log.
"""

import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import chain
from time import monotonic
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.kit import events as sg
from coordlib.client.kit import offsets as of
from coordlib.client.kit.calls import OnePoller, uninterrupted
from coordlib.client.kit.config import Options, take_apart
from coordlib.client.kit.data import (
    AHEAD_MAX,
    FRESH_MS,
    ClusterQueries,
    HandingOut,
    Prepared,
    Ready,
    open_reader,
    seek_to,
)
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.process import Closing
from coordlib.client.kit.transport import (
    KafkaTransport,
    NoFence,
    Transport,
    default_client_id,
    identity_at,
)
from coordlib.client.transactions.committed import (
    GONE,
    OPEN,
    PartitionReader,
    TornTransaction,
    UndecidedTransaction,
    verdict_of,
)
from coordlib.core.wire import api
from coordlib.core.wire.data_headers import Txn, read_headers
from coordlib.errors import CoordError
from coordlib.kafka.clients import denial, reading

#: A verdict; None: ask again; or why the question's handler has failed.
_Answer = tuple["_Question", str | Exception | None]


class Describing:
    """The open questions of one reader.

    Args:
        options: how the coordinator is reached.
        transport: an open one to share.
    """

    def __init__(self, options: Options, transport: Transport | None) -> None:
        self._options, self._transport = options, transport
        self._own: KafkaTransport | None = None
        self._client = str(options.data.get("client.id") or default_client_id())
        self._open: dict[Txn, _Question] = {}
        self._heard: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        #: Why a question has failed, until it is raised.
        self._problem: Exception | None = None

    def ask(self, txn: Txn) -> bool:
        """Ask, unless that is asked already; False: it is the transaction of another coordinator.

        Raises CannotReach, NotAllowed, SetupError.
        """
        transport = self._reach()
        transport.check()
        if txn.incarnation != transport.place.incarnation:
            return False
        if txn not in self._open:
            self._open[txn] = question = _Question(txn, self._client, transport, self._heard)
            transport.attach(question)
            transport.send(question, question.request)
        return True

    def answers(self) -> list[tuple[Txn, str | None]]:
        """What came since the last time; None: nothing that says it, so that it is asked again."""
        found: list[tuple[Txn, str | None]] = []
        while not self._heard.empty():
            question, heard = self._heard.get_nowait()
            if self._open.get(question.txn) is not question:
                continue  # answered, or failed, before
            assert self._transport is not None, "asked by it"
            self._transport.detach(question)
            del self._open[question.txn]
            if isinstance(heard, Exception):
                self._problem, heard = heard, None
            found.append((question.txn, heard))
        return found

    def check(self, is_waiting: bool) -> None:
        """Raises what a question has failed with, once; and CannotReach or NotAllowed, if an answer

        is waited for and the transport has failed: none will come.
        """
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        if is_waiting and self._transport is not None:
            self._transport.check()

    def close(self) -> None:
        """Ask nothing any more."""
        for question in self._open.values():
            assert self._transport is not None, "asked by it"
            self._transport.detach(question)
        self._open.clear()
        if self._own is not None:
            self._own.close()

    def _reach(self) -> Transport:
        if self._transport is None:
            options = self._options
            self._own = KafkaTransport(options.coordinator, options.prefix, self._client)
            self._transport = self._own
        return self._transport


class _Question(NoFence):
    """A transport's handler that waits for one answer."""

    def __init__(
        self,
        txn: Txn,
        client: str,
        transport: Transport,
        heard: "queue.SimpleQueue[_Answer]",
    ) -> None:
        self.txn, self._heard = txn, heard
        self.identity = identity_at(transport, txn.transactional_id, client)
        id_ = f"{self.identity.token}-1"
        self.request = api.DescribeTransaction(**self.identity.envelope(id_))

    def feed(self, event: sg.Input) -> None:
        match event:
            case sg.NotWritten():
                self._heard.put((self, None))
            case sg.Received(message=api.Response() as answer) if answer.id == self.request.id:
                verdict = None
                if isinstance(answer, api.DescribeTransactionResponse):
                    verdict = verdict_of(answer, self.txn)
                self._heard.put((self, verdict))

    def fail(self, problem: Exception) -> None:
        self._heard.put((self, problem))


Params = ParamSpec("Params")
Result = TypeVar("Result")
SLICE_S: Final = 0.05
#: How often it is looked for what the coordinator is to be asked.
LOOK_S: Final = 0.1
END_TIMEOUT_S: Final = 5.0
#: Of records that wait for the end of a transaction, of each partition; beyond that no more are
#: read until it is decided. As `queued.max.messages.kbytes` of librdkafka.
KEPT_MAX: Final = 50_000
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
#: Records that one call with no time to wait looks at.
AT_ONCE_MAX: Final = 1_000


def _changing(
    method: Callable[Concatenate["CommittedReader", Params], Result],
) -> Callable[Concatenate["CommittedReader", Params], Result]:
    """A method that is done whole, after what was returned before counts as delivered."""

    @wraps(method)
    def whole(self: "CommittedReader", /, *args: Params.args, **named: Params.kwargs) -> Result:
        with self._lock:
            self._note_handed()
            return method(self, *args, **named)

    return uninterrupted(whole)


class CommittedReader(ClusterQueries, Closing):
    """A consumer of the partitions that it is given.

    Args:
        config: confluent-kafka's keys of a consumer. `coord.prefix`, and `coord.bootstrap.servers`
            if the records stand in another cluster than the coordinator's; security options of the
            coordinator's brokers are then named with `coord.` before them.
        transport: to the coordinator, shared with other clients of this program; by default one is
            opened when there is something to ask.
        data_consumer: what reads the records; by default a confluent-kafka Consumer.

    Raises:
        SetupError: a key that is wrong or not offered.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        transport: Transport | None = None,
        data_consumer: Any = None,
    ) -> None:
        options = take_apart(config)
        self._options = options.data
        self._data = data_consumer or open_reader({**options.data, "enable.partition.eof": True})
        self._describing = Describing(options, transport)
        self._partitions: dict[TopicPartition, PartitionReader[Message]] = {}
        #: Those that may have something to deliver, the next one first.
        self._ready: deque[TopicPartition] = deque()
        #: With a torn transaction: raised again when others were read.
        self._torn: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}
        #: Paused by the program, and because too much waits.
        self._paused: set[TopicPartition] = set()
        self._full: set[TopicPartition] = set()
        self._looked_s = 0.0
        #: Records that may be delivered, and events of the library, which are of no partition.
        self._out = HandingOut()
        #: What is raised when no record is left before it.
        self._problem: BaseException | None = None
        self._lock = threading.RLock()
        self._poller = OnePoller()

    # ---- partitions ---------------------------------------------------------------------------

    @_changing
    def assign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Read these, and no others. Without an offset they begin by `auto.offset.reset`."""
        self._forget(list(self._partitions))
        self._data.assign(list(partitions))
        self._begin(partitions)

    @_changing
    def incremental_assign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Read these, too."""
        self._data.incremental_assign(list(partitions))
        self._begin(partitions)

    @_changing
    def incremental_unassign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Read these no more."""
        self._forget(of.ours(partitions))
        self._data.incremental_unassign(list(partitions))

    @_changing
    def unassign(self) -> None:
        """Read nothing."""
        self._forget(list(self._partitions))
        self._data.unassign()

    def assignment(self) -> list[KafkaTopicPartition]:
        """What is read."""
        return of.kafka_of(tuple(self._partitions))

    def subscribe(self, *_args: Any, **_named: Any) -> None:
        """Not offered. Raises CoordError."""
        hint = "CoordinatedConsumer with coord.decided.by=coordinator; or call assign."
        raise CoordError("A CommittedReader joins no group.", "", hint)

    @_changing
    def seek(self, partition: KafkaTopicPartition) -> None:
        """Go on from another offset."""
        seek_to(self._data, partition)
        self._forget(of.ours([partition]), is_paused_still=True)
        self._begin([partition])

    @_changing
    def pause(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Deliver nothing of these until `resume`."""
        self._paused.update(each for each in of.ours(partitions) if each in self._partitions)
        self._data.pause(list(partitions))

    @_changing
    def resume(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Deliver these again."""
        ours = of.ours(partitions)
        self._paused.difference_update(ours)
        self._ready.extend(each for each in ours if each in self._partitions)
        going = tuple(each for each in ours if each not in self._full)
        self._data.resume(of.kafka_of(going))

    @_changing
    def position(self, partitions: Sequence[KafkaTopicPartition]) -> list[KafkaTopicPartition]:
        """After the last record that was returned; OFFSET_INVALID before the first."""
        return of.with_offsets(of.ours(partitions), self._positions)

    def last_stable(self, partition: KafkaTopicPartition) -> int:
        """Offset of the first record whose transaction is undecided, as far as it has read.

        Where there is none, the offset that is read next. Raises CoordError: it is not read here.
        """
        (ours,) = of.ours([partition])
        return self._reader_of(ours).last_stable

    @_changing
    def give_up(self, torn: TornTransaction, partition: KafkaTopicPartition) -> None:
        """Go on without the records of a torn transaction in this partition."""
        (ours,) = of.ours([partition])
        self._reader_of(ours).give_up(torn.transaction)
        self._ready.append(ours)

    # ---- records ------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> Message | None:
        """The next committed record, or a message with `error()`; None: there is none in time.

        Args:
            timeout: seconds; None or negative: until there is one.

        Raises:
            TornTransaction: a committed transaction lacks records.
            UndecidedTransaction: nobody here can tell how a transaction ended; call again to wait
                for its marker, unless 50,000 records or 64 MiB behind it wait already.
            NotAllowed: a topic may not be read, or the coordinator not be asked.
            CannotReach: the coordinator must be asked, and is not there.
            CoordError: another thread is polling.
        """
        while True:
            some, out = self._next(1, timeout), self._out
            at = some.handed
            if at >= len(some.messages):
                return None
            message = some.messages[at]
            if out.prepared is some and some.handed == at: some.handed += 1; return message  # noqa: E701, E702  # fmt: skip

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Up to so many records, as `poll` returns them; fewer when time is up.

        Raises what `poll` raises; with records already taken, the next call raises it. What a call
        that was interrupted (Ctrl-C) had taken comes with the next one.
        """
        while True:
            some, out = self._next(num_messages, timeout), self._out
            at, end = some.handed, min(some.handed + num_messages, len(some.messages))
            found = some.messages[at:end]
            if not found:
                return found
            if out.prepared is some and some.handed == at: some.handed = end; return found  # noqa: E701, E702  # fmt: skip

    def _next(self, count: int, timeout: float | None) -> Prepared:
        """What is to be returned. It is handed out by the line that returns it, without a call."""
        at_hand = self._out.prepared
        if at_hand and at_hand.has(count, _now_ms()):
            return at_hand
        return self._poller.run(lambda: self._wait_for(count, timeout))

    def _wait_for(self, count: int, timeout: float | None) -> Prepared:
        until = None if timeout is None or timeout < 0 else monotonic() + timeout
        while True:
            is_over, prepared = self._turn(count, until)
            problem, found = self._problem, len(prepared.messages)
            if found and (is_over or problem is not None or found >= count):
                return prepared
            if problem is not None:
                self._problem = None
                raise problem
            if is_over:
                return prepared

    @_changing
    def close(self) -> None:
        """End."""
        try:
            self._describing.close()
        finally:
            self._data.close()

    # ---- small things -------------------------------------------------------------------------

    def _begin(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        for each, ours in zip(partitions, of.ours(partitions), strict=True):
            where = f"{ours.topic}-{ours.partition}"
            self._partitions[ours] = PartitionReader(where, each.offset, len)

    def _forget(self, gone: Sequence[TopicPartition], is_paused_still: bool = False) -> None:
        # librdkafka keeps the pause of a partition until its next assignment, and through it.
        if full := tuple(each for each in gone if each in self._full - self._paused):
            self._data.resume(of.kafka_of(full))
        self._out.forget(gone)
        if isinstance(self._problem, TornTransaction | UndecidedTransaction):
            self._problem = None  # it is met again where it is still so
        for each in gone:
            self._partitions.pop(each, None)
            self._positions.pop(each, None)
            self._full.discard(each)
            if not is_paused_still:
                self._paused.discard(each)

    def _reader_of(self, partition: TopicPartition) -> PartitionReader[Message]:
        if (found := self._partitions.get(partition)) is None:
            raise CoordError("This partition is not read here.", f"{partition}")
        return found

    def _note_handed(self) -> None:
        for each in chain(*self._out.note()):
            if each.place is not None:
                self._positions[each.place] = each.position[0]

    @uninterrupted
    def _turn(self, count: int, until: float | None) -> tuple[bool, Prepared]:
        """Prepare what may be delivered, and wait a moment for more; whether time is up."""
        with self._lock:
            self._note_handed()
            if self._problem is None:
                try:
                    self._gather(count, until)
                except BaseException as problem:  # noqa: BLE001  # behind the records before it
                    self._problem = problem
            until_ms = _now_ms() + FRESH_MS
            prepared = self._out.prepare(count, lambda each: each not in self._paused, until_ms)
        return until is not None and monotonic() >= until, prepared

    def _gather(self, count: int, until: float | None) -> None:
        """Take what may be delivered, until there are so many; read on for a moment.

        Then take some more, of what is here.
        """
        kept, looked = self._out.count(self._paused), 0
        most = max(count, AHEAD_MAX) if count else 0
        end_s = min(monotonic() + SLICE_S, math.inf if until is None else until)
        while True:
            kept += self._take(most - kept)
            if kept >= most:
                return
            self._ask()
            message = self._data.poll(max(0.0, end_s - monotonic()) if kept < count else 0.0)
            if message is not None:
                kept += self._read(message)
                looked += 1
            self._ready.extend(self._torn)
            self._torn.clear()
            is_over = kept >= count or monotonic() >= end_s
            if is_over and (message is None or looked >= AT_ONCE_MAX):
                self._take(most - kept)
                return

    def _take(self, wanted: int) -> int:
        """Take up to so many records that may be delivered; partitions take turns."""
        left = wanted
        while self._ready and left > 0:
            place = self._ready.popleft()
            reader = self._partitions.get(place)
            if reader is None or place in self._paused:
                continue
            try:
                taken = reader.take()
            except TornTransaction:
                self._torn.add(place)
                raise
            if taken is not None:  # kept before anything that may raise
                self._ready.append(place)
                offset, message = taken
                self._out.add(Ready(place, (offset + 1, -1), message))
                left -= 1
            self._bound(place, reader)
        return wanted - left

    def _read(self, message: Message) -> bool:
        """Take in what was fetched; whether it is an event that is the program's."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if denied := denial(error, reading(message.topic() or ""), self._options):
                raise denied
            self._out.add(Ready(None, (-1, -1), message))
            return True
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None or offset is None:
            return False
        place = TopicPartition(topic, partition)
        if (reader := self._partitions.get(place)) is None:
            return False  # fetched before it was unassigned
        if error is not None:
            reader.reached(offset)
        else:
            header = read_headers(message.headers(), has_value=message.value() is not None)
            reader.add(offset, header, message, _now_ms())
        self._ready.append(place)
        self._bound(place, reader)
        return False

    def _bound(self, place: TopicPartition, reader: PartitionReader[Message]) -> None:
        """Fetch no more where too much waits, unless the end of the wait is only to be read."""
        kept, kept_bytes, must_go_on = reader.kept, reader.kept_bytes, reader.must_read_on
        is_full = kept >= KEPT_MAX or kept_bytes >= KEPT_BYTES_MAX
        is_low = kept < KEPT_MAX // 2 and kept_bytes < KEPT_BYTES_MAX // 2
        if is_full and not must_go_on and place not in self._full:
            self._full.add(place)
            self._data.pause(of.kafka_of((place,)))
        elif place in self._full and (must_go_on or is_low):
            self._full.discard(place)
            if place not in self._paused:
                self._data.resume(of.kafka_of((place,)))

    def _ask(self) -> None:
        """Ask the coordinator where no marker comes, and pass on its answers."""
        if monotonic() - self._looked_s < LOOK_S:
            return
        self._looked_s = monotonic()
        now_ms = _now_ms()
        for txn, verdict in self._describing.answers():
            self._tell(txn, verdict)
        self._describing.check(any(reader.is_asking for reader in self._partitions.values()))
        for place, reader in self._partitions.items():
            asked = reader.next_question(now_ms)
            if asked is None:
                continue
            try:
                is_asked = self._describing.ask(asked)
            except CoordError:
                reader.answered(asked, None, now_ms)  # the next call asks again
                raise
            if not is_asked:
                reader.answered(asked, None, now_ms)
                raise UndecidedTransaction(asked, is_read_on=place not in self._full)

    def _tell(self, txn: Txn, verdict: str | None) -> None:
        for place, reader in self._partitions.items():
            waits = reader.waits_for
            if waits is None or waits.txn != txn:
                continue
            end = self._end_of(place) if verdict == GONE else 0
            reader.answered(txn, OPEN if end is None else verdict, _now_ms(), end or 0)
            self._ready.append(place)
            self._bound(place, reader)

    def _end_of(self, place: TopicPartition) -> int | None:
        """The partition's end at this moment; None: the broker has not said it."""
        try:
            found = self._data.get_watermark_offsets(*of.kafka_of((place,)), END_TIMEOUT_S, False)
        except KafkaException:
            return None
        return None if found is None else int(found[1])


def _now_ms() -> int:
    return int(monotonic() * 1000)

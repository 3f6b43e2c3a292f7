"""`CommittedReader`: confluent-kafka's Consumer in shape, which delivers committed records only.

For topics into which producers write whose transactions the coordinator decides. The rule stands in
`client/transactions/committed.py`, one reader for each partition; this reads records, asks the
coordinator where a marker stays away, and holds back what is undecided. It joins no group and
commits nothing: programs name the partitions, or read them in a group by a `CoordinatedConsumer`
with `coord.decided.by`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.closing import Closing
from coordlib.client.machine.signals import TopicPartition
from coordlib.client.shell import offsets as of
from coordlib.client.shell.coordinator_options import Options, take_apart
from coordlib.client.shell.data_consumer import open_reader
from coordlib.client.shell.describing import Describing
from coordlib.client.shell.settings import Settings
from coordlib.client.shell.transport import Transport
from coordlib.client.transactions.committed import PartitionReader
from coordlib.client.transactions.verdict import GONE, OPEN, TornTransaction, UndecidedTransaction
from coordlib.errors import CoordError
from coordlib.kafka.denied import denial, reading
from coordlib.records.data_headers import Txn, read_headers

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


class CommittedReader(Closing):
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
        self._data = data_consumer or _open(options)
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
        #: What the next call raises, since this one has returned records.
        self._problem: BaseException | None = None

    # ---- partitions ---------------------------------------------------------------------------

    def assign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Read these, and no others. Without an offset they begin by `auto.offset.reset`."""
        self._forget(list(self._partitions))
        self._data.assign(list(partitions))
        self._begin(partitions)

    def incremental_assign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Read these, too."""
        self._data.incremental_assign(list(partitions))
        self._begin(partitions)

    def incremental_unassign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Read these no more."""
        self._forget(of.ours(partitions))
        self._data.incremental_unassign(list(partitions))

    def unassign(self) -> None:
        """Read nothing."""
        self._forget(list(self._partitions))
        self._data.unassign()

    def assignment(self) -> list[KafkaTopicPartition]:
        """What is read."""
        return of.kafka_of(tuple(self._partitions))

    def subscribe(self, *_args: Any, **_named: Any) -> None:
        """Not offered. Raises CoordError."""
        mend = "CoordinatedConsumer with coord.decided.by=coordinator; or call assign."
        raise CoordError("A CommittedReader joins no group.", "", mend)

    def seek(self, partition: KafkaTopicPartition) -> None:
        """Go on from another offset."""
        self._data.seek(partition)
        self._forget(of.ours([partition]), is_paused_still=True)
        self._begin([partition])

    def pause(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Deliver nothing of these until `resume`."""
        self._paused.update(each for each in of.ours(partitions) if each in self._partitions)
        self._data.pause(list(partitions))

    def resume(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Deliver these again."""
        ours = of.ours(partitions)
        self._paused.difference_update(ours)
        self._ready.extend(each for each in ours if each in self._partitions)
        going = tuple(each for each in ours if each not in self._full)
        self._data.resume(of.kafka_of(going))

    def position(self, partitions: Sequence[KafkaTopicPartition]) -> list[KafkaTopicPartition]:
        """After the last record that was returned; OFFSET_INVALID before the first."""
        return of.with_offsets(of.ours(partitions), self._positions)

    def last_stable(self, partition: KafkaTopicPartition) -> int:
        """Offset of the first record whose transaction is undecided, as far as it has read.

        Where there is none, the offset that is read next. Raises CoordError: it is not read here.
        """
        (ours,) = of.ours([partition])
        return self._reader_of(ours).last_stable

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
        """
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        until = None if timeout is None or timeout < 0 else monotonic() + timeout
        looked = 0
        while True:
            found = self._take()
            if found is not None:
                return found
            self._ask()
            left_s = SLICE_S if until is None else max(0.0, min(SLICE_S, until - monotonic()))
            message = self._data.poll(left_s)
            if message is not None:
                event = self._read(message)
                if event is not None:
                    return event
                looked += 1
            self._ready.extend(self._torn)
            self._torn.clear()
            is_over = until is not None and monotonic() >= until
            if is_over and (message is None or looked >= AT_ONCE_MAX):
                return self._take()

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Up to so many records, as `poll` returns them; fewer when time is up.

        Raises what `poll` raises; with records already taken, the next call raises it. So does an
        interruption (Ctrl-C).
        """
        until = None if timeout is None or timeout < 0 else monotonic() + timeout
        found: list[Message] = []
        while len(found) < num_messages:
            left_s = None if until is None else max(0.0, until - monotonic())
            try:
                message = self.poll(left_s)
            except BaseException as problem:  # also Ctrl-C: nobody else is given what was taken
                if not found:
                    raise
                self._problem = problem
                break
            if message is None:
                break
            found.append(message)
        return found

    def close(self) -> None:
        """End."""
        try:
            self._describing.close()
        finally:
            self._data.close()

    # ---- asked of the cluster -----------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Metadata of the cluster and of one topic or all: a ClusterMetadata."""
        return self._data.list_topics(topic, timeout)

    def get_watermark_offsets(
        self, partition: KafkaTopicPartition, timeout: float = -1, cached: bool = False
    ) -> Any:
        """First offset of a partition and the one after its last; None: no answer in time."""
        return self._data.get_watermark_offsets(partition, timeout, cached)

    def offsets_for_times(
        self, partitions: Sequence[KafkaTopicPartition], timeout: float = -1
    ) -> list[KafkaTopicPartition]:
        """The first offset at or after each time, given as `offset` in ms; -1: none."""
        found: list[KafkaTopicPartition] = self._data.offsets_for_times(list(partitions), timeout)
        return found

    # ---- small things -------------------------------------------------------------------------

    def _begin(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        for each, ours in zip(partitions, of.ours(partitions), strict=True):
            where = f"{ours.topic}-{ours.partition}"
            self._partitions[ours] = PartitionReader(where, each.offset, _size_of)

    def _forget(self, gone: Sequence[TopicPartition], is_paused_still: bool = False) -> None:
        # librdkafka keeps the pause of a partition until its next assignment, and through it.
        if full := tuple(each for each in gone if each in self._full - self._paused):
            self._data.resume(of.kafka_of(full))
        for each in gone:
            self._partitions.pop(each, None)
            self._positions.pop(each, None)
            self._full.discard(each)
            if not is_paused_still:
                self._paused.discard(each)

    def _reader_of(self, partition: TopicPartition) -> PartitionReader[Message]:
        found = self._partitions.get(partition)
        if found is None:
            raise CoordError("This partition is not read here.", f"{partition}")
        return found

    def _take(self) -> Message | None:
        """The next record that may be delivered; partitions take turns."""
        while self._ready:
            place = self._ready.popleft()
            reader = self._partitions.get(place)
            if reader is None or place in self._paused:
                continue
            try:
                taken = reader.take()
            except TornTransaction:
                self._torn.add(place)
                raise
            self._bound(place, reader)
            if taken is not None:
                self._ready.append(place)
                self._positions[place] = taken[0] + 1
                return taken[1]
        return None

    def _read(self, message: Message) -> Message | None:
        """Take in what was fetched; returns an event that is the program's."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if denied := denial(error, reading(message.topic() or ""), self._options):
                raise denied
            return message
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None or offset is None:
            return None
        place = TopicPartition(topic, partition)
        reader = self._partitions.get(place)
        if reader is None:
            return None  # fetched before it was unassigned
        if error is not None:
            reader.reached(offset)
        else:
            header = read_headers(message.headers(), has_value=message.value() is not None)
            reader.add(offset, header, message, _now_ms())
        self._ready.append(place)
        self._bound(place, reader)
        return None

    def _bound(self, place: TopicPartition, reader: PartitionReader[Message]) -> None:
        """Fetch no more where too much waits, unless the end of the wait is only to be read."""
        is_full = reader.kept >= KEPT_MAX or reader.kept_bytes >= KEPT_BYTES_MAX
        is_low = reader.kept < KEPT_MAX // 2 and reader.kept_bytes < KEPT_BYTES_MAX // 2
        must_go_on = reader.must_read_on
        if is_full and not must_go_on and place not in self._full:
            self._full.add(place)
            self._data.pause(of.kafka_of((place,)))
        elif place in self._full and (must_go_on or is_low):
            self._full.discard(place)
            if place not in self._paused:
                self._data.resume(of.kafka_of((place,)))

    def _ask(self) -> None:
        """Ask the coordinator where a marker stays away, and pass on what it has said."""
        if monotonic() - self._looked_s < LOOK_S:
            return
        self._looked_s = monotonic()
        now_ms = _now_ms()
        for txn, verdict in self._describing.answers():
            self._tell(txn, verdict)
        self._describing.check(any(reader.is_asking for reader in self._partitions.values()))
        for place, reader in self._partitions.items():
            asked = reader.asks(now_ms)
            if asked is None:
                continue
            try:
                is_asked = self._describing.ask(asked)
            except CoordError:
                reader.told(asked, None, now_ms)  # the next call asks again
                raise
            if not is_asked:
                reader.told(asked, None, now_ms)
                raise UndecidedTransaction(asked, is_read_on=place not in self._full)

    def _tell(self, txn: Txn, verdict: str | None) -> None:
        for place, reader in self._partitions.items():
            waits = reader.waits_for
            if waits is None or waits.txn != txn:
                continue
            end = self._end_of(place) if verdict == GONE else 0
            reader.told(txn, OPEN if end is None else verdict, _now_ms(), end or 0)
            self._ready.append(place)
            self._bound(place, reader)

    def _end_of(self, place: TopicPartition) -> int | None:
        """The partition's end at this moment; None: the broker has not said it."""
        try:
            found = self._data.get_watermark_offsets(*of.kafka_of((place,)), END_TIMEOUT_S, False)
        except KafkaException:
            return None
        return None if found is None else int(found[1])


def _open(options: Options) -> Any:
    return open_reader({**options.data, "enable.partition.eof": True})


def _size_of(message: Message) -> int:
    return len(message)


def _now_ms() -> int:
    return int(monotonic() * 1000)


def data_consumer_of(settings: Settings, transport: Transport, given: Any = None) -> Any:
    """What reads the messages of a group's consumer.

    Args:
        given: by the program, in place of a confluent-kafka Consumer.
    """
    options = {
        **settings.common,
        **({"client.id": settings.client} if settings.client else {}),
        "auto.offset.reset": settings.auto_offset_reset,
    }
    if settings.is_decided_here:
        return CommittedReader(options, transport=transport, data_consumer=given)
    return given or open_reader(options)


def give_up_in(data: Any, torn: TornTransaction, partition: KafkaTopicPartition) -> None:
    """Go on without a torn transaction. Raises CoordError: records are read as they are."""
    if not isinstance(data, CommittedReader):
        raise CoordError("Only a consumer with coord.decided.by=coordinator has torn transactions.")
    data.give_up(torn, partition)

"""Messages of shards, once they are committed, written into the logs of their shards.

Keeps INV-95.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from coordlib.core.engine.channels import HEARD, SENT
from coordlib.core.engine.effects import OUTBOX, Output
from coordlib.core.wire.api import FromShard
from coordlib.core.wire.control import HeardValue, SentValue
from coordlib.job.background.loop import BackgroundLoop
from coordlib.job.crash import CrashPoint
from coordlib.kafka.clients import reader_config
from coordlib.kafka.reading import PASSING

_log = structlog.get_logger()

#: Records of one channel that are under way at once: what is written again when one is not taken.
FLYING_MAX: Final = 100
#: What the log has taken is written again where its shard has not judged it after this time; then
#: after twice as long, and so on: perhaps the shard is only far behind. Never before a batch was
#: committed since: while none is, the log is not read.
AGAIN_S: Final = 5.0
#: The longest of these times. Who waits for a message has perhaps no deadline.
AGAIN_MAX_S: Final = 30.0

#: Shard that sends, and shard that judges.
Pair = tuple[int, int]

_decode_key: Final = msgspec.json.Decoder(tuple[str | int, ...]).decode
_decode_sent: Final = msgspec.json.Decoder(SentValue).decode
_decode_heard: Final = msgspec.json.Decoder(HeardValue).decode


class Waiting(NamedTuple):
    """What an outbox has: messages to be fed, and acknowledgements for their senders."""

    #: Channel -> messages by number, in order.
    messages: dict[Pair, dict[int, bytes]]
    #: Channel -> newest message that was judged.
    heard: dict[Pair, int]
    #: Channel -> newest message whose judgement its sender has read.
    acknowledged: dict[Pair, int]


def waiting_in(partitions: Mapping[int, Mapping[bytes, bytes]]) -> Waiting:
    """Read the live records of the outbox, by partition. Raises msgspec.MsgspecError."""
    found = Waiting({}, {}, {})
    for shard, records in partitions.items():
        for key, value in records.items():
            match _decode_key(key):
                case (str(what), int(other)) if what == SENT:
                    found.acknowledged[shard, other] = _decode_sent(value).heard
                case (str(what), int(other)) if what == HEARD:
                    found.heard[other, shard] = _decode_heard(value).heard
                case (int(source), int(to), int(number)):
                    found.messages.setdefault((source, to), {})[number] = value
    for pair, messages in found.messages.items():
        newest = found.heard.get(pair, 0)
        found.messages[pair] = {n: messages[n] for n in sorted(messages) if n > newest}
    return found


def messages_of(outputs: Iterable[Output]) -> Iterator[tuple[Pair, int, bytes]]:
    """The messages among a batch's outputs, in order."""
    for output in outputs:
        if output.topic == OUTBOX and output.value is not None:
            match _decode_key(output.key):
                case (int(source), int(to), int(number)):
                    yield (source, to), number, output.value


def _judged_of(outputs: Iterable[Output]) -> Iterator[tuple[Pair, int]]:
    """By channel, the newest message that a batch has judged."""
    for output in outputs:
        if output.topic == OUTBOX and output.value is not None:
            match _decode_key(output.key):
                case (str(what), int(source)) if what == HEARD:
                    yield (source, output.partition), _decode_heard(output.value).heard


class Channel:
    """What is to be fed of one channel. Pure; times are seconds of one clock.

    Args:
        messages: what waits, by number and in order.
    """

    def __init__(self, messages: Mapping[int, bytes]) -> None:
        #: Those that are not known to be judged, by number and in order.
        self._messages = dict(messages)
        #: Of those, in order: what is to be written, and before it what was, and is not known to be
        #: in the log.
        self._unsent, self._unlogged = deque(self._messages), deque[int]()
        #: The log has all up to this one.
        self._logged = 0
        #: Of those behind it, the ones that were taken. A shard drops them if one before was not.
        self._taken: set[int] = set()
        self._flying = 0
        #: Whether one of those under way was not taken.
        self._has_failed = False
        #: Whether a batch was committed since the newest was written.
        self._has_batch = False
        #: When the first of them is written again, and how long after the time before.
        self._again_at, self._again_s = float("inf"), AGAIN_S

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be written."""
        return not (self._unsent or self._unlogged)

    def add(self, number: int, body: bytes) -> None:
        """One more, behind all others."""
        if number > self._logged and number not in self._messages:
            self._unsent.append(number)
        self._messages[number] = body

    def due(self) -> list[tuple[int, bytes]]:
        """What is to be written now, in order.

        Behind a record that was not taken nothing is written until it is known what became of all
        others: then all comes again from the first on that the log lacks.
        """
        if self._has_failed:
            if self._flying:
                return []
            self._has_failed = False
            self._unsent.extendleft(reversed(self._unlogged))
            self._unlogged.clear()
            self._taken.clear()
        room = FLYING_MAX - self._flying
        return [(n, self._messages[n]) for n in islice(self._unsent, room)]

    def sent(self, number: int) -> None:
        """It is under way."""
        self._flying += 1
        self._has_batch = False
        if self._unsent and self._unsent[0] == number:  # else it was judged in the meantime
            self._unlogged.append(self._unsent.popleft())

    def on_delivery(self, number: int, is_taken: bool) -> None:
        """What became of it."""
        self._flying -= 1
        if not is_taken:
            self._has_failed = True
            return
        self._taken.add(number)
        while self._unlogged and self._unlogged[0] in self._taken:
            self._logged = self._unlogged.popleft()
            self._taken.remove(self._logged)

    def heard(self, number: int) -> None:
        """All up to this one are judged."""
        for each in list(takewhile(lambda n: n <= number, self._messages)):
            del self._messages[each]
        for waiting in (self._unlogged, self._unsent):
            while waiting and waiting[0] <= number:
                waiting.popleft()
        self._taken = {n for n in self._taken if n > number}
        self._logged = max(self._logged, number)
        self._again_at, self._again_s = float("inf"), AGAIN_S

    def batch_committed(self) -> None:
        """It has judged what `heard` says, and no more."""
        self._has_batch = True

    def repeat(self, now_s: float) -> bool:
        """Those that the log has and no batch judges are written again, from time to time.

        Returns whether they are now, and have waited for so long that a person should know.
        """
        is_logged = next(iter(self._messages), self._logged + 1) <= self._logged
        if not is_logged or self._flying or not self._has_batch:
            return False
        if self._again_at == float("inf"):
            self._again_at = now_s + self._again_s
        elif now_s >= self._again_at:
            is_late = self._again_s >= AGAIN_MAX_S
            self._again_s = min(2 * self._again_s, AGAIN_MAX_S)
            self._again_at, self._logged = now_s + self._again_s, 0
            self._unsent = deque(self._messages)
            self._unlogged.clear()
            self._taken.clear()
            return is_late
        return False


#: Writes a record into the log of a shard; calls with "" when it is taken, else with the reason.
Write = Callable[[int, FromShard, Callable[[str], None]], None]


class Feeder:
    """Feeds the messages of all shards, turn by turn. Another thread calls `batch_committed`.

    Args:
        write: raises KafkaException, TimeoutError: the record is not under way.
        serve: lets the writer learn what became of records.
        waiting: what was in the outbox at the start.
        owned: the shards of this job; None: all. Only its driver may write into their logs: each
            driver numbers its control records, and of two the one with the higher numbers counts.
    """

    def __init__(
        self,
        write: Write,
        serve: Callable[[], None],
        waiting: Waiting,
        owned: Container[int] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._serve, self._owned, self._now_s = write, serve, owned, now_s
        self._lock = threading.Lock()
        self._channels = {
            pair: Channel(found)
            for pair, found in waiting.messages.items()
            if self._is_fed_here(pair)
        }
        #: Channel from another job instance -> its newest message that was judged, or added.
        self._newest = dict(waiting.heard)
        #: Records that were written.
        self.written = 0
        self._crash, self._batches = CrashPoint.from_environment(), 0

    def batch_committed(self, outputs: Sequence[Output]) -> None:
        """Feed its messages, too; what it has judged is done."""
        with self._lock:
            self._batches += 1
            for pair, number, body in messages_of(outputs):
                if self._is_fed_here(pair):
                    self._channels.setdefault(pair, Channel({})).add(number, body)
            for pair, number in _judged_of(outputs):
                if pair in self._channels:
                    self._channels[pair].heard(number)
            for channel in self._channels.values():
                channel.batch_committed()

    def add(self, pair: Pair, number: int, body: bytes) -> None:
        """Feed a message of another job instance, unless it was added or judged before."""
        with self._lock:
            if number > self._newest.get(pair, 0):
                self._newest[pair] = number
                self._channels.setdefault(pair, Channel({})).add(number, body)

    def _is_fed_here(self, pair: Pair) -> bool:
        return self._owned is None or pair[1] in self._owned

    def turn(self) -> None:
        """Write what is due. Raises KafkaException, TimeoutError."""
        now_s = self._now_s()
        with self._lock:
            late = [pair for pair, each in self._channels.items() if each.repeat(now_s)]
            due = [
                (pair, number, body)
                for pair, channel in sorted(self._channels.items())
                for number, body in channel.due()
            ]
        if late:
            _log.warning(
                "messages of shards are not processed and are written again", channels=late
            )
        try:
            for pair, number, body in due:
                self._feed(pair, number, body)
        finally:
            if due or self.is_busy:
                self._serve()

    @property
    def is_busy(self) -> bool:
        """Whether anything waits to be taken by a log."""
        with self._lock:
            return any(not channel.is_done for channel in self._channels.values())

    def _feed(self, pair: Pair, number: int, body: bytes) -> None:
        record = FromShard(v=1, source=pair[0], seq=number, body=msgspec.Raw(body))
        with self._lock:
            self._channels[pair].sent(number)
        try:
            self._write(pair[1], record, self._note(pair, number))
        except Exception:
            self._note(pair, number)("it could not be written")
            raise
        self.written += 1
        self._crash.maybe_crash("fed", self._batches)

    def _note(self, pair: Pair, number: int) -> Callable[[str], None]:
        def note(problem: str) -> None:
            with self._lock:
                self._channels[pair].on_delivery(number, not problem)

        return note


class FeederThread(BackgroundLoop):
    """Lets a Feeder have its turns, beside the query."""

    def __init__(self, feeder: Feeder) -> None:
        super().__init__(
            feeder,
            "messages of shards",
            "Start the job again; at its start it feeds what waits in the outbox.",
        )
        self.feeder = feeder


_AT_ONCE: Final = 2_000
_WAIT_S: Final = 0.05


class Hearing(Protocol):
    """Receives what other job instances have written."""

    def message(self, pair: Pair, number: int, body: bytes) -> None:
        """A message to a shard of this job."""

    def heard(self, source: int, shard: int, number: int) -> None:
        """Another job instance has judged the messages of this job's shard `source` up to this."""


def tell(
    shard: int, key: bytes, value: bytes | None, owned: Container[int], hearing: Hearing
) -> None:
    """One record of a shard's outbox. Raises msgspec.MsgspecError: the job has not written it."""
    if value is None:
        return
    match _decode_key(key):
        case (str(what), int(source)) if what == HEARD and source in owned:
            hearing.heard(source, shard, _decode_heard(value).heard)
        case (int(source), int(to), int(number)) if to in owned:
            hearing.message((source, to), number, value)


class OutboxLog:
    """Follows the outboxes with a consumer of its own, from their beginnings.

    Args:
        others: the shards of other job instances.
    """

    def __init__(
        self,
        client_options: Mapping[str, Any],
        prefix: str,
        owned: Container[int],
        others: Sequence[int],
        hearing: Hearing,
    ) -> None:
        self._owned, self._hearing = owned, hearing
        options = {**reader_config(client_options, log_level=2), "fetch.wait.max.ms": 20}
        self._consumer = Consumer(options)
        topic = f"{prefix}.{OUTBOX}"
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in others])

    def turn(self) -> None:
        """Hand on what has come. Raises KafkaException."""
        failure: KafkaException | None = None
        for record in self._consumer.consume(_AT_ONCE, _WAIT_S):
            error = record.error()
            if error is None:
                self._take(record.partition() or 0, record.key() or b"", record.value())
            elif error.code() not in (KafkaError._PARTITION_EOF, *PASSING):
                failure = failure or KafkaException(error)  # those behind it are consumed, too
        if failure is not None:
            raise failure

    def close(self) -> None:
        self._consumer.close()

    def _take(self, shard: int, key: bytes, value: Any) -> None:
        try:
            tell(shard, key, value, self._owned, self._hearing)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
            _log.warning("a record of an outbox is not the job's", shard=shard, error=str(problem))


class OutboxThread(BackgroundLoop):
    """Lets an OutboxLog have its turns, beside the query."""

    def __init__(self, log: OutboxLog) -> None:
        super().__init__(
            log,
            "messages of other job instances",
            "Start the job again; at its start it reads what waits in the outboxes.",
        )
        self._log_of_others = log

    def stop(self) -> None:
        super().stop()
        self._log_of_others.close()

"""How users' own transactions of Kafka ended, written to the shards that wait for it."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coordlib import limits
from coordlib.core.engine.state import Status
from coordlib.core.wire.api import TxnDecided
from coordlib.errors import CannotReach
from coordlib.job.background.loop import BackgroundThread, HealthReport
from coordlib.job.control import ControlWriter
from coordlib.job.crash import CrashPoint
from coordlib.kafka.bounds import every_offset
from coordlib.kafka.clients import has_moved, open_admin, reader_config, reason_of
from coordlib.kafka.reading import PASSING

_log = structlog.get_logger()
#: Names of failures in the job's status.
DECISIONS: Final = "decisions"
REMOVED: Final = "decisions of removed records"
#: Records between two that are looked for: beyond that the reader goes to the second by itself.
GAP_MAX: Final = 1_000
#: What was written is written again when the shard still waits for it after this time.
SAY_AGAIN_S: Final = 10.0
_PAUSE_S: Final = 0.05
_RETRY_PAUSE_S: Final = 0.5


class Look(NamedTuple):
    """Records of one shard that are looked for in one reading, by offset and in order."""

    shard: int
    offsets: tuple[int, ...]


class Seen(NamedTuple):
    """What a read-committed reader has found."""

    #: The offsets of the records that it was given.
    offsets: Collection[int]
    #: It has read all before this offset.
    reached: int


class Planner:
    """Which records are to be looked for, and what follows. Times are seconds of one clock."""

    def __init__(self) -> None:
        #: shard -> the records that it waits for.
        self._undecided: dict[int, tuple[int, ...]] = {}
        #: What the log was given, and when: the shard has not judged it yet.
        self._sent_s: dict[tuple[int, int], float] = {}
        #: shard -> where its log begins, as far as it was asked for.
        self._starts: dict[int, int] = {}

    def learn(self, shard: int, undecided: tuple[int, ...]) -> None:
        """A batch was judged."""
        before = self._undecided.get(shard, ())
        self._undecided[shard] = undecided
        for offset in set(before) - set(undecided):
            self._sent_s.pop((shard, offset), None)

    def begins(self, starts: Mapping[int, int]) -> None:
        """The logs of these shards begin there: what lies before cannot be read any more."""
        self._starts.update(starts)

    def removed(self) -> dict[int, list[int]]:
        """The records that no reader will find any more, by shard."""
        found = {
            shard: [each for each in self._undecided.get(shard, ()) if each < start]
            for shard, start in self._starts.items()
        }
        return {shard: offsets for shard, offsets in found.items() if offsets}

    def removed_in_words(self) -> str:
        """The same for the job's status; "" where there is none."""
        return "; ".join(
            f"shard {shard}: {len(offsets)} {'record' if len(offsets) == 1 else 'records'} before "
            f"{self._starts[shard]}, the first is {offsets[0]}"
            for shard, offsets in sorted(self.removed().items())
        )

    def waiting(self, now: float) -> dict[int, list[int]]:
        """The records whose transactions have to be asked about, by shard."""
        found = {
            shard: [
                each
                for each in offsets
                if each >= self._starts.get(shard, 0) and not self._is_sent(shard, each, now)
            ]
            for shard, offsets in self._undecided.items()
        }
        return {shard: offsets for shard, offsets in found.items() if offsets}

    def _is_sent(self, shard: int, offset: int, now: float) -> bool:
        note_sent = self._sent_s.get((shard, offset))
        return note_sent is not None and now - note_sent < SAY_AGAIN_S

    def looks(self, stable_ends: Mapping[int, int], now: float) -> list[Look]:
        """The records whose transactions are over, in readings.

        Args:
            stable_ends: shard -> last stable offset, asked for before anything is read.
        """
        found = []
        for shard, offsets in sorted(self.waiting(now).items()):
            span: list[int] = []
            for offset in offsets:
                if offset >= stable_ends.get(shard, -1):
                    break
                if span and offset - span[-1] > GAP_MAX:
                    found.append(Look(shard, tuple(span)))
                    span = []
                span.append(offset)
            if span:
                found.append(Look(shard, tuple(span)))
        return found

    def note_sent(self, shard: int, record: TxnDecided, now: float) -> None:
        """It is on its way into the log."""
        for offset in (*record.committed, *record.aborted):
            self._sent_s[shard, offset] = now

    def unsaid(self, shard: int, record: TxnDecided) -> None:
        """The log has not taken it."""
        for offset in (*record.committed, *record.aborted):
            self._sent_s.pop((shard, offset), None)


def outcomes(look: Look, seen: Seen) -> list[TxnDecided]:
    """The outcomes that a reading shows; none of records that it has not come to."""
    committed = [each for each in look.offsets if each in seen.offsets]
    aborted = [e for e in look.offsets if e not in seen.offsets and e < seen.reached]
    ended = sorted([*committed, *aborted])
    at_most = limits.DECISIONS_PER_RECORD_MAX
    parts = [frozenset(ended[n : n + at_most]) for n in range(0, len(ended), at_most)]
    return [
        TxnDecided(
            v=1,
            committed=tuple(each for each in committed if each in part),
            aborted=tuple(each for each in aborted if each in part),
        )
        for part in parts
    ]


class Broker(Protocol):
    """The calls to Kafka that the watch needs."""

    def stable_ends(self, shards: Iterable[int]) -> dict[int, int]:
        """The last stable offset of each shard's requests. Raises KafkaException, TimeoutError."""

    def log_starts(self, shards: Iterable[int]) -> dict[int, int]:
        """Where each shard's requests begin. Raises KafkaException, TimeoutError."""

    def look(self, look: Look) -> Seen:
        """Read committed records from the first of these up to the last. Raises KafkaException."""

    def write(self, shard: int, record: TxnDecided, on_delivery: Callable[[str], None]) -> None:
        """Write a record; `told` is called with why the log refused it, or with an empty reason.

        Raises KafkaException, TimeoutError.
        """

    def serve(self) -> None:
        """Deliver the outcome of records. Raises KafkaException."""

    def close(self) -> None:
        """Let go of the reader."""


class DecisionWatch(BackgroundThread):
    """Finds decisions beside the query and writes them. `learn` may come from another thread.

    A question that fails is the trouble "decisions", and what it can never decide is the trouble
    "decisions of removed records": both leave the job running. A defect ends the thread, and then
    the job (`check`): without the thread the offsets of all groups wait, and the next start fixes
    that.
    """

    def __init__(
        self,
        broker: Broker,
        health: HealthReport | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("decisions")
        self._broker, self._now_s = broker, now_s
        self._health = health or HealthReport()
        self._planner, self._lock = Planner(), threading.Lock()
        #: The removed records that were noted.
        self._removed = ""
        #: Why the log did not take a record; set by whichever thread serves the producer.
        self._lost: deque[str] = deque(maxlen=1)
        self._failure: Exception | None = None
        self._crash, self._batches = CrashPoint.from_environment(), 0

    def check(self) -> None:
        """Raises CannotReach when the thread has ended."""
        if self._failure is not None:
            raise CannotReach(
                f"The decisions of users' transactions have ended: {self._failure!r}",
                "requests topic",
                "Start the job again; it finds out anew how these transactions ended.",
            ) from self._failure

    def learn(self, statuses: Iterable[Status]) -> None:
        """A batch was committed."""
        with self._lock:
            self._batches += 1
            for status in statuses:
                self._planner.learn(status.shard, status.undecided)

    def turn(self) -> bool:
        """Ask about what shards wait for, and write what is decided; whether all went well."""
        with self._lock:
            waiting = self._planner.waiting(self._now_s())
            removed = self._planner.removed_in_words()
        if removed != self._removed:  # what they wait for never comes: it is noted once
            self._removed = removed
            self._health.note(REMOVED, removed)
        if not waiting and not self._health.now.get(DECISIONS):
            return True
        errors: list[str] = []
        try:
            self._decide(waiting, errors)
        except (KafkaException, TimeoutError) as problem:
            errors.append(reason_of(problem))
        if self._lost:
            errors.append(self._lost.pop())
        if errors:
            _log.warning("decisions wait for the broker", error=errors[0])
        self._health.note(DECISIONS, errors[0] if errors else "")
        return not errors

    def _decide(self, waiting: Mapping[int, list[int]], errors: list[str]) -> None:
        if not waiting:
            self._broker.serve()
            return
        ends = self._broker.stable_ends(waiting)
        with self._lock:
            looks = self._planner.looks(ends, self._now_s())
        failed = set()
        for look in looks:
            try:
                seen = self._broker.look(look)
            except (KafkaException, TimeoutError) as problem:
                errors.append(f"shard {look.shard} from {look.offsets[0]}: {reason_of(problem)}")
                failed.add(look.shard)
                continue
            for record in outcomes(look, seen):
                self._write(look.shard, record)
        self._broker.serve()
        if failed:
            # Others must not wait for a record that retention has removed: the next looks begin
            # behind it.
            starts = self._broker.log_starts(failed)
            with self._lock:
                self._planner.begins(starts)

    def _write(self, shard: int, record: TxnDecided) -> None:
        with self._lock:
            self._planner.note_sent(shard, record, self._now_s())
        try:
            self._broker.write(shard, record, self._note(shard, record))
        except Exception:
            with self._lock:
                self._planner.unsaid(shard, record)
            raise
        self._crash.maybe_crash("decided", self._batches)

    def _note(self, shard: int, record: TxnDecided) -> Callable[[str], None]:
        def note(error: str) -> None:
            if error:
                self._lost.append(error)
                with self._lock:
                    self._planner.unsaid(shard, record)

        return note

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PAUSE_S):
                if not self.turn():
                    self._stop.wait(_RETRY_PAUSE_S)
        except Exception as problem:  # noqa: BLE001  raised by check(), which ends the job
            _log.exception("decisions have ended")
            self._failure = problem
        finally:
            self._broker.close()


_ASK_TIMEOUT_S: Final = 10.0
_LOOK_TIMEOUT_S: Final = 10.0


class KafkaDecisions:
    """`decisions.Broker` over confluent-kafka. All calls but `write` are for one thread."""

    def __init__(
        self, prefix: str, control: ControlWriter, client_options: Mapping[str, Any]
    ) -> None:
        self._topic, self._control = f"{prefix}.requests", control
        self._options = client_options
        self._admin = open_admin(client_options, log_level=2)
        #: Opened for the first look: most jobs never make one.
        self._reader: Consumer | None = None

    def stable_ends(self, shards: Iterable[int]) -> dict[int, int]:
        return self._ask(shards, is_oldest=False)

    def log_starts(self, shards: Iterable[int]) -> dict[int, int]:
        return self._ask(shards, is_oldest=True)

    def _ask(self, shards: Iterable[int], is_oldest: bool) -> dict[int, int]:
        places = [(self._topic, shard) for shard in shards]
        try:
            found = every_offset(
                self._admin, places, _ASK_TIMEOUT_S, is_committed=True, is_oldest=is_oldest
            )
        except KafkaException as problem:
            if has_moved(problem):  # the next turn asks the one that leads
                self._admin.forget([self._topic])
            raise
        return {place.partition: offset for place, offset in found.items()}

    def look(self, look: Look) -> Seen:
        if self._reader is None:
            self._reader = Consumer(
                {
                    **reader_config(self._options),
                    "auto.offset.reset": "error",  # a record that is gone decides nothing
                    "fetch.wait.max.ms": 20,
                }
            )
        try:
            return _read(self._reader, self._topic, look)
        except KafkaException:
            self.close()  # the next look begins with another one
            raise

    def write(self, shard: int, record: TxnDecided, on_delivery: Callable[[str], None]) -> None:
        self._control.write(shard, record, on_delivery)

    def serve(self) -> None:
        self._control.serve()

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _read(reader: Consumer, topic: str, look: Look) -> Seen:
    """Read up to the last record that is looked for, or what stands behind it.

    The end of the partition counts as the broker returns it: a leader that was elected a moment ago
    may have less of the log than the one that was asked for the last stable offset.
    """
    found: set[int] = set()
    first, last = look.offsets[0], look.offsets[-1]
    reached, deadline = first, time.monotonic() + _LOOK_TIMEOUT_S
    reader.assign([TopicPartition(topic, look.shard, first)])
    try:
        while reached <= last:
            message = reader.poll(0.2)
            error = None if message is None else message.error()
            if message is not None and (error is None or error.code() == KafkaError._PARTITION_EOF):
                offset = message.offset()
                assert offset is not None
                if error is None:
                    found.add(offset)
                    reached = offset + 1
                else:
                    reached = max(reached, offset)
                    if reached <= last:
                        break
            elif error is not None and error.code() not in PASSING:
                raise KafkaException(error)
            elif time.monotonic() > deadline:
                raise KafkaException(error or KafkaError(KafkaError._TIMED_OUT))
    finally:
        reader.unassign()
    return Seen(found, reached)

"""Exactly once out: each batch is one Kafka transaction, outputs and progress marker together.

Keeps INV-99, INV-103 and INV-150.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Any, Protocol

import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from coordlib import limits
from coordlib.core.engine.effects import Output
from coordlib.core.groups.group import learn_topic_ids
from coordlib.core.wire import api, cells, codec, stored
from coordlib.core.wire.api import TopicMetadata
from coordlib.core.wire.cells import CELL, KEYS, MARKER, SET_ASIDE, CellValue
from coordlib.core.wire.stored import ControlKeys, Layout, Marker, SetAside
from coordlib.errors import CannotReach, CoordError, DriverFenced
from coordlib.job.batch import Batch
from coordlib.job.checkpoint import Identity
from coordlib.job.crash import CrashPoint
from coordlib.job.pipelines import Pipeline
from coordlib.job.progress import (
    NewestByKey,
    OtherCells,
    Progress,
    is_repeat,
    next_marker,
)
from coordlib.kafka.clients import (
    FENCED,
    denial,
    error_of,
    is_denied,
    missing,
    reason_of,
    unwritable,
)
from coordlib.kafka.layout import LAYOUT_KEY
from coordlib.kafka.roles import Kind, Operation, Right
from coordlib.kafka.transactions import DOUBTFUL_AFTER_MS, RETRY_OPTIONS


class ShownIds:
    """Noted by the thread that watches topics, written by that of the batches.

    Args:
        ids: as they are kept.
    """

    def __init__(self, ids: stored.TopicIds) -> None:
        self._ids = dict(ids)
        self._changed: set[int] = set()
        self._lock = threading.Lock()

    def note(self, record: TopicMetadata, present: Collection[str]) -> None:
        """A listing is about to be written; `present`: all topics that are there."""
        with self._lock:
            before = self._ids
            self._ids, _ = learn_topic_ids(before, record, present)
            names = before.keys() | self._ids.keys()
            changed = (name for name in names if before.get(name) != self._ids.get(name))
            self._changed.update(map(stored.topic_id_page_of, changed))

    def take(self) -> list[tuple[bytes, bytes]]:
        """Keys and values that have changed since the last call."""
        with self._lock:
            changed, self._changed = self._changed, set()
            return stored.topic_id_records(self._ids, changed) if changed else []


class TransactionalProducer(Protocol):
    """As much of confluent-kafka's Producer as the sink uses."""

    def init_transactions(self, timeout: float) -> Any: ...

    def begin_transaction(self) -> Any: ...

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        *,
        on_delivery: Any = None,
    ) -> Any: ...

    def flush(self, timeout: float) -> Any: ...

    def poll(self, timeout: float) -> Any: ...

    def commit_transaction(self, timeout: float) -> Any: ...

    def abort_transaction(self, timeout: float) -> Any: ...


def open_producer(
    pipeline: Pipeline, client_options: Mapping[str, str], transaction_timeout_ms: int
) -> Producer:
    """A producer of a pipeline's one transactional id."""
    return Producer(
        {
            **client_options,
            "transactional.id": pipeline.query_name,
            "transaction.timeout.ms": transaction_timeout_ms,
            **RETRY_OPTIONS,
            "message.max.bytes": limits.OUTPUT_BYTES_MAX,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "linger.ms": 2,
            "compression.type": "lz4",
            "log_level": 2,
        }
    )


_log = structlog.get_logger()
_TIMEOUT_S = 60.0
_LOOK_S = 10.0
#: (topic, partition) -> offset of the newest record written there, or the one behind it.
Written = dict[tuple[str, int], int]
#: Topic without prefix, partition, key, value.
Rows = list[tuple[str, int, bytes, bytes | None]]


class TransactionalSink:
    """The one writer of a prefix's output topics, or of the partitions of its shards there.

    Args:
        others: None: there are none, and may be none.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        open_producer: Callable[[], TransactionalProducer],
        newest_by_key: NewestByKey,
        transaction_timeout_ms: int | None = None,
        now_s: Callable[[], float] = time.monotonic,
        client_options: Mapping[str, str] | None = None,
        others: OtherCells | None = None,
    ) -> None:
        self._others = others
        self._pipeline, self._options = pipeline, client_options or {}
        self._transaction_timeout_ms, self._now_s = transaction_timeout_ms, now_s
        self._began_s = 0.0
        self._is_doubtful = False
        self._open_producer, self._producer = open_producer, open_producer()
        #: What the topic of that name has.
        decided = newest_by_key if others is None else others.newest_decided
        self.progress = Progress(pipeline, newest_by_key, decided)
        #: Of topics, noted by whoever lists them.
        self.shown_ids = ShownIds({})
        #: Topic -> partition -> where its log begins: for the first marker of these shards.
        self.starts: dict[str, dict[str, int]] = {}
        #: Where the compacted topics end at least; None: as the marker has it.
        self.saved: Written | None = None
        self._cut: set[tuple[str, int]] = set()
        self._crash = CrashPoint.from_environment(pipeline.label)

    @property
    def marker(self) -> Marker | None:
        """Where the shards of this job stand."""
        return self.progress.marker

    @property
    def layout(self) -> Layout | None:
        """As it is recorded."""
        return self.progress.layout

    @property
    def keys(self) -> ControlKeys | None:
        """Of control records; None: no driver has signed any."""
        return self.progress.keys

    def open(self) -> bool:
        """Fence older producers, then learn what they have committed; whether there is anything.

        Raises:
            CannotReach: no broker answers.
            StartRefused: what they have written cannot be read.
        """
        try:
            self._producer.init_transactions(_TIMEOUT_S)
        except KafkaException as problem:
            of_id = Right(Kind.TRANSACTIONAL_ID, self._pipeline.query_name, Operation.WRITE)
            raise denial(problem, of_id, self._options) or CannotReach(
                f"The broker gives no transactional id: {problem.args[0].str()}",
                self._pipeline.query_name,
                "Check that the broker runs and that this job may write with this id.",
            ) from problem
        return self.progress.read()

    def close(self) -> None:
        """Let go of the producer, whose threads end with it: Spark may keep this sink for long."""
        self._producer = _Closed()

    def read_progress(self) -> None:
        """Learn layout, marker and keys, without fencing anybody."""
        self.progress.look()

    # -- other job instances -------------------------------------------------------------------

    def take_over(self, shards: int) -> None:
        """Take this job's shards from every other job that has them.

        A job over all shards need not say so while there is no other: its id fences it.

        Args:
            shards: of the prefix.

        Raises:
            DriverFenced: a job with one of these shards has registered since.
            CannotReach, NotAllowed: another job cannot be fenced.
        """
        owned, progress = self._pipeline.owned, self.progress
        if owned is None and not progress.cells:
            return
        assert self._others is not None, "a sink that shares its prefix can fence others"
        value = CellValue(since_ms=time.time_ns() // 1_000_000)
        self._transact([("progress", 0, cells.key_of(CELL, owned), codec.encode(value))])
        progress.note_cell(value)
        self._settle()
        progress.read()
        self._refuse_if_fenced()
        for each in progress.earlier:
            if each in progress.cells:
                _log.warning(
                    "an earlier job of these shards is fenced",
                    it_has=cells.words(each),
                    this_has=cells.words(owned),
                )
            self._others.fence(self._pipeline.id_of(each))
        progress.read()  # what they have committed until then
        if left := cells.gaps(progress.cells, shards):
            _log.warning("no job has these shards", shards=", ".join(map(str, left)))

    def _refuse_if_fenced(self) -> None:
        if self.progress.later:
            raise self._fenced()

    def write_layout(self, layout: Layout) -> None:
        """Record the layout of this prefix, which clients read."""
        self._transact([("progress", 0, LAYOUT_KEY, codec.encode(layout))])
        self.progress.note_layout(layout)
        self._settle()

    def write_keys(self, keys: ControlKeys) -> None:
        """Count a start, and let shards know with what it signs. Raises as `write`."""
        owned = self._pipeline.owned
        self._transact([("progress", 0, cells.key_of(KEYS, owned), codec.encode(keys))])
        self.progress.note_keys(keys)
        self._settle()

    def set_aside(self, record: str, why: str) -> None:
        """Let shards reject a record in place of judging it, for ever.  # INV-144

        Raises as `write`.
        """
        value = SetAside(records={**self.progress.set_aside, record: why})
        key = cells.key_of(SET_ASIDE, self._pipeline.owned)
        self._transact([("progress", 0, key, codec.encode(value))])
        self.progress.note_set_aside(value)
        self._settle()

    def tell_loading(self, reply_partitions: int) -> None:
        """Notify waiting clients: the state is being restored, and answers will follow."""
        loading = codec.encode(api.CoordinatorLoading())
        self._transact([("responses", each, b"", loading) for each in range(reply_partitions)])
        self._settle()

    def write_extra(self, outputs: Iterable[Output]) -> None:
        """Write records that no batch has, which may be written again. Raises as `write`."""
        rows = [(o.topic, o.partition, o.key, o.value) for o in outputs]
        if rows:
            self._transact(rows)
            self._settle()

    def write(self, batch: Batch, identity: Identity, taken_over: int = -1) -> Written:
        """Commit a batch, unless it is committed already; returns where its outputs end.

        Args:
            taken_over: see `is_repeat`.

        Raises:
            DriverFenced: a newer driver writes for this prefix.
            ReplayDiffers, StartRefused: see `is_repeat`.
        """
        if is_repeat(self.marker, batch, identity, self._pipeline.inputs, taken_over):
            _log.info("batch was committed before; skipped", batch=batch.number)
            return {}
        marker = next_marker(self.marker, batch, identity, self._pipeline.inputs, self.starts)
        rows = [(o.topic, o.partition, o.key, o.value) for o in batch.outputs]
        rows += [("progress", 0, key, value) for key, value in self.shown_ids.take()]
        ends = self._saved_with(rows)
        marker = msgspec.structs.replace(marker, saved=_by_topic(ends))
        own_key = cells.key_of(MARKER, self._pipeline.owned)
        rows.append(("progress", 0, own_key, codec.encode(marker)))
        written = self._transact(rows, batch.number)
        self._note_saved(ends, written)
        self.progress.note_marker(marker, self._pipeline.owned)
        self._settle()
        return written

    def _saved_with(self, rows: Rows) -> Written:
        """Where the compacted topics end at least, when these rows are written.

        Each batch of a partition stands behind the end of the transaction before it. What others
        have written makes a log longer still.  # INV-153
        """
        ends, prefix = dict(self.saved or {}), self._pipeline.prefix
        if self.saved is None and self.marker is not None:
            saved = self.marker.saved.items()
            ends = {(topic, int(at)): end for topic, each in saved for at, end in each.items()}
        saving = (row[:2] for row in rows if row[0] in self._pipeline.restored_from)
        for (topic, partition), count in Counter(saving).items():
            place = f"{prefix}.{topic}", partition
            ends[place] = count + (ends[place] + 1 if place in ends else 0)
        return ends

    def _note_saved(self, ends: Written, written: Written) -> None:
        """Compare with where they were written to. What is too short stays so: a rebuild, which
        reads these topics, is to refuse them."""
        self.saved = {place: max(end, written.get(place, -1) + 1) for place, end in ends.items()}
        for place, newest in sorted(written.items()):
            if newest + 1 < ends.get(place, 0) and place not in self._cut:
                self._cut.add(place)
                _log.error(
                    "a compacted topic has lost its end; the job continues with its own state",
                    topic=place[0],
                    partition=place[1],
                    records=ends[place] - newest - 1,
                    hint="keep the checkpoint: a rebuild would lack them, and is refused",
                )

    def _settle(self) -> None:
        """After a doubtful transaction: fence what may be late of it, and read what it has left.

        Not later: a newer driver that starts meanwhile would be fenced by this older one.

        Raises:
            DriverFenced: a newer driver has started; it is left alone.
            CannotReach: no broker answers, or another driver has written since.
        """
        if not self._is_doubtful:
            return
        _log.info(
            "a transaction took long: its late requests are fenced", id=self._pipeline.query_name
        )
        known = self.progress.of_this_job
        # One that started while this one was suspended must not be fenced: the newer one wins.
        if self.progress.has_newer_driver():
            raise self._fenced()
        self._producer = self._open_producer()
        is_there = self.open()
        # This driver has taken its id again, perhaps from a later job instance that had fenced it.
        self._refuse_if_fenced()
        if not is_there or known != self.progress.of_this_job:
            raise CannotReach(
                "The progress topic does not end with what this driver has written there: another "
                "driver of this prefix has written since.",
                self._pipeline.progress,
                "Keep one job per prefix, and start the job again: the batch runs again and is "
                "written once.",
            )
        self._is_doubtful = False

    def _transact(self, rows: Rows, batch: int = -1) -> Written:
        assert not self._is_doubtful  # what is late would end this transaction
        delivered = _Delivered()
        # Offsets rise within a partition, so its last record tells how far it was written; the
        # others need no report: a transaction of which one failed cannot be committed.
        last = {(topic, partition): number for number, (topic, partition, _, _) in enumerate(rows)}
        last_numbers = set(last.values())
        self._began_s = self._now_s()
        try:
            self._producer.begin_transaction()
            for number, (topic, partition, key, value) in enumerate(rows):
                note = delivered.note if number in last_numbers else None
                self._produce(f"{self._pipeline.prefix}.{topic}", partition, key, value, note)
            self._crash.maybe_crash("in-transaction", batch)
            # What is still queued after this time is flushed by the commit, or fails it.
            self._producer.flush(_TIMEOUT_S)
            delivered.raise_first_error()
            self._crash.maybe_crash("before-commit", batch)
            self._producer.commit_transaction(_TIMEOUT_S)
            self._crash.maybe_crash("after-commit", batch)
        except (KafkaException, SystemError) as problem:
            # A producer that is fenced inside flush() breaks its own callbacks: a SystemError.
            raise self._ended_by(problem, {topic for topic, _ in last}) from problem
        self._is_doubtful = self._spent_ms() >= DOUBTFUL_AFTER_MS
        newest = delivered.newest
        if ("progress", 0) in last:
            offset = newest.get((self._pipeline.progress, 0), self.progress.newest)
            self.progress.wrote(offset, *rows[last["progress", 0]][2:])
        return newest

    def _produce(
        self,
        topic: str,
        partition: int,
        key: bytes,
        value: bytes | None,
        note: Callable[[Any, Any], None] | None,
    ) -> None:
        while True:
            try:
                if note is None:
                    self._producer.produce(topic, value, key, partition)
                else:
                    self._producer.produce(topic, value, key, partition, on_delivery=note)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _ended_by(self, problem: Exception, topics: Set[str]) -> CoordError:
        """Abort the transaction, so that no reader waits for it; the fatal error has the reason.

        `topics`: to which it wrote, without the prefix.
        """
        reason = problem
        try:
            self._producer.abort_transaction(_TIMEOUT_S)
        except KafkaException as of_abort:
            reason = of_abort
        if self._is_overdue() and not self.progress.later_as_read():
            return CannotReach(
                "The batch took longer than its transaction may: the broker gave it up: "
                + reason_of(reason),
                self._pipeline.query_name,
                "Start the job again: the batch runs again and is written once. If that happens "
                "often, raise engine.transaction_timeout_ms.",
            )
        if denied := self._refused(problem, reason, topics):
            return denied
        if (error := error_of(reason)) is not None and error.code() in FENCED:
            return self._fenced()
        return CannotReach(
            f"The batch could not be committed to Kafka: {reason_of(reason)}",
            self._pipeline.query_name,
            "Start the job again: the batch runs again and is written once.",
        )

    def _refused(
        self, problem: Exception, reason: Exception, topics: Set[str]
    ) -> CoordError | None:
        """What to raise where a right is missing."""
        right = Right(Kind.TOPIC, f"{self._pipeline.prefix}.", Operation.WRITE, is_prefix=True)
        for error in (problem, reason):
            if is_denied(error):
                return denial(error, right, self._options)
        purged = error_of(problem)
        if purged is None or purged.code() != KafkaError._PURGE_QUEUE or not self._options:
            return None
        outputs = sorted(f"{self._pipeline.prefix}.{topic}" for topic in topics)
        try:
            lacking = unwritable(self._options, outputs, _LOOK_S)
        except (KafkaException, TimeoutError):
            return None  # the first failure is the one to tell
        return missing(right, self._options) if lacking else None

    def _fenced(self) -> DriverFenced:
        owned, id_ = self._pipeline.owned, self._pipeline.query_name
        if later := self.progress.later_as_read():
            return DriverFenced(
                f"A later job, with {', '.join(map(cells.words, later))}, has taken over shards of "
                f"this one, which has {cells.words(owned)}; this one ends, with all of its shards.",
                id_,
                "Name ranges that do not overlap (--shards); a job for shards that have none now "
                "begins in an empty folder with --rebuild. coord status: who has which.",
            )
        mine, where = ("this prefix", "prefix") if owned is None else (cells.words(owned), "range")
        return DriverFenced(
            f"A newer driver has taken over {mine}; this one ends.",
            id_,
            f"Keep one job per {where}; the newer driver continues after the last committed batch.",
        )

    def _spent_ms(self) -> float:
        return (self._now_s() - self._began_s) * 1000

    def _is_overdue(self) -> bool:
        """Whether the broker may have ended the transaction, which looks like a newer driver.

        If there is one, it fences this driver again, or refuses its checkpoint, when it comes back.
        """
        timeout_ms = self._transaction_timeout_ms
        return timeout_ms is not None and self._spent_ms() >= timeout_ms


def _by_topic(ends: Written) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), end in sorted(ends.items()):
        found.setdefault(topic, {})[str(partition)] = end
    return found


class _Closed:
    """Stands for the producer of a query that has ended; a batch that comes late writes nothing."""

    def __getattr__(self, name: str) -> Any:
        raise CannotReach(
            "The query of this batch has ended.", name, "Nothing: the next run repeats the batch."
        )


class _Delivered:
    """Delivery reports of one transaction."""

    def __init__(self) -> None:
        self.newest: Written = {}
        self._error: KafkaError | None = None

    def note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._error = error if self._error is None else self._error
            return
        self.newest[(message.topic() or "", message.partition() or 0)] = message.offset() or 0

    def raise_first_error(self) -> None:
        if self._error is not None:
            raise KafkaException(self._error)

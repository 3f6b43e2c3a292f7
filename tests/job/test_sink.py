"""What the sink writes, and what it does after a doubtful transaction or one that failed."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.core.engine.effects import Output
from coordlib.core.wire import codec
from coordlib.core.wire.api import Topic, TopicMetadata
from coordlib.core.wire.stored import ControlKeys, Layout
from coordlib.errors import CannotReach, CoordError, DriverFenced
from coordlib.job.batch import Batch
from coordlib.job.checkpoint import Identity
from coordlib.job.pipelines import groups
from coordlib.job.progress import KEYS_KEY
from coordlib.job.sink import ShownIds, TransactionalSink
from coordlib.kafka.transactions import DOUBTFUL_AFTER_MS, RETRY_BACKOFF_MAX_MS, RETRY_BACKOFF_MS
from tests.tools.simulation.driver_io import Delivered

#: Who would tell where a record was written.
Note = Callable[[Any, Any], None]
LAYOUT = Layout(shards=1, reply_partitions=1, topic_ids={})


class FencedProducer:
    """Its epoch is not the newest any more, which it hears when it commits."""

    def __init__(self, commit_takes_s: float) -> None:
        self.now_s, self._takes_s = 100.0, commit_takes_s

    def begin_transaction(self) -> None: ...

    def produce(self, *_: Any, **__: Any) -> None: ...

    def flush(self, timeout: float) -> None: ...

    def commit_transaction(self, timeout: float) -> None:
        self.now_s += self._takes_s
        raise KafkaException(KafkaError(KafkaError._FENCED, "Local: fenced", fatal=True))

    def abort_transaction(self, timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED, "Local: fenced", fatal=True))


@pytest.mark.parametrize(
    ("commit_takes_s", "kind", "hint"),
    [(9.9, DriverFenced, "Keep one job"), (10.0, CannotReach, "Start the job again")],
)
def test_a_transaction_that_the_broker_gave_up_is_not_the_work_of_a_newer_driver(
    commit_takes_s: float, kind: type[CoordError], hint: str
) -> None:
    """A driver was suspended inside its transaction. The broker ended that, and tells it the same
    as one that was fenced by another; but with no other there, it must come back."""
    producer: Any = FencedProducer(commit_takes_s)
    sink = TransactionalSink(
        groups("p"), lambda: producer, lambda *_: {}, 10_000, lambda: producer.now_s
    )

    with pytest.raises(kind, match=hint):
        sink.write_layout(LAYOUT)


class CountingProducer:
    """Writes everything, and tells only those who asked."""

    def __init__(self) -> None:
        self.written: list[tuple[str, int, bytes | None]] = []
        self.asked: list[tuple[Note, str, int, int]] = []

    def begin_transaction(self) -> None: ...

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes,
        partition: int,
        on_delivery: Note | None = None,
    ) -> None:
        offset = sum(row[:2] == (topic, partition) for row in self.written)
        self.written.append((topic, partition, value))
        if on_delivery is not None:
            self.asked.append((on_delivery, topic, partition, offset))

    def flush(self, timeout: float) -> None:
        for note, topic, partition, offset in self.asked:
            note(None, Delivered((topic, partition), offset))

    def commit_transaction(self, timeout: float) -> None: ...


def test_of_each_partition_the_last_record_tells_how_far_it_was_written() -> None:
    """A hundred thousand answers in a batch: a report for each costs more than writing them."""
    producer: Any = CountingProducer()
    outputs = [Output("responses", number % 2, b"k", b"%d" % number) for number in range(9)]
    outputs.append(Output("groups", 0, b"k", None))
    batch = Batch(number=0, outputs=outputs, reports=[])

    sink = TransactionalSink(groups("p"), lambda: producer, lambda *_: {})
    written = sink.write(batch, Identity(checkpoint="c", prefix="p", shards=1, incarnation="i"))

    assert written == {
        ("p.responses", 0): 4,
        ("p.responses", 1): 3,
        ("p.groups", 0): 0,
        ("p.progress", 0): 0,
    }
    assert len(producer.asked) == 4
    assert [row[2] for row in producer.written[:10]] == [output.value for output in outputs]


def test_ids_of_topics_stand_in_the_transaction_of_a_batch_before_its_marker() -> None:
    """INV-150: and the marker stays the newest record of the driver, by which it finds itself."""
    producer: Any = CountingProducer()
    sink = TransactionalSink(groups("p"), lambda: producer, lambda *_: {})
    sink.shown_ids = ShownIds({})
    row = Topic("t", 1, "A" * 22)
    sink.shown_ids.note(TopicMetadata(v=1, after=None, through=None, topics=(row,)), {"t"})
    identity = Identity(checkpoint="c", prefix="p", shards=1, incarnation="i")
    sink.write(Batch(number=0, outputs=[], reports=[]), identity)

    page, marker = (value for topic, _, value in producer.written if topic == "p.progress")
    assert page == b'{"v":1,"ids":{"t":["AAAAAAAAAAAAAAAAAAAAAA"]}}'
    assert b'"batch":0' in (marker or b"")
    sink.write(Batch(number=1, outputs=[], reports=[]), identity)
    assert len(producer.written) == 3


def test_a_sink_that_was_closed_writes_nothing() -> None:
    """The query failed and began again with another producer; Spark still calls the former one."""
    producer: Any = CountingProducer()
    sink = TransactionalSink(groups("p"), lambda: producer, lambda *_: {})
    sink.close()

    with pytest.raises(CannotReach, match="has ended"):
        sink.write_layout(LAYOUT)
    assert producer.written == []


class Prefix:
    """The progress topic of a prefix, and the producers that a driver has opened for it."""

    def __init__(self, commit_takes_ms: float) -> None:
        self.now_ms, self.commit_takes_ms = 0.0, commit_takes_ms
        self.log: list[tuple[bytes, bytes]] = []
        self.fenced = 0
        #: What another driver writes when the sink's next producer fences it.
        self.left: list[tuple[bytes, bytes]] = []

    def open_sink(self) -> TransactionalSink:
        opening: Any = lambda: Committing(self)  # noqa: E731
        sink = TransactionalSink(groups("p"), opening, self.read, now_s=lambda: self.now_ms / 1000)
        sink.open()
        sink.write_keys(ControlKeys(starts=1, keys=()))
        self.fenced = 0
        return sink

    def read(self, topic: str, partition: int, first: int = 0, /) -> dict[bytes, bytes]:
        return dict(self.log[first:])


class Committing:
    """A producer whose transactions take their time."""

    def __init__(self, prefix: Prefix) -> None:
        self._prefix = prefix
        self._notes: list[tuple[Note, Delivered]] = []

    def init_transactions(self, timeout: float) -> None:
        self._prefix.fenced += 1
        self._prefix.log += self._prefix.left

    def begin_transaction(self) -> None: ...

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Note
    ) -> None:
        on_delivery(None, Delivered((topic, partition), len(self._prefix.log)))
        self._prefix.log.append((key, value))

    def flush(self, timeout: float) -> None: ...

    def commit_transaction(self, timeout: float) -> None:
        self._prefix.now_ms += self._prefix.commit_takes_ms


def keys_of(starts: int) -> tuple[bytes, bytes]:
    return KEYS_KEY, codec.encode(ControlKeys(starts=starts, keys=()))


def test_no_request_is_sent_again_within_the_time_that_is_not_doubtful() -> None:
    """librdkafka varies the backoff by 20 %, and cuts it at its greatest."""
    assert min(0.8 * RETRY_BACKOFF_MS, RETRY_BACKOFF_MAX_MS) > DOUBTFUL_AFTER_MS
    assert DOUBTFUL_AFTER_MS < 500, "when AddPartitionsToTxn is sent again"


@pytest.mark.parametrize(("takes_ms", "fenced"), [(399, 0), (400, 1)])
def test_a_doubtful_transaction_is_followed_by_another_producer(
    takes_ms: float, fenced: int
) -> None:
    """INV-99: its EndTxn may have been sent twice, and the first one may come late."""
    prefix = Prefix(commit_takes_ms=0)
    sink = prefix.open_sink()
    prefix.commit_takes_ms = takes_ms
    sink.write_layout(LAYOUT)
    assert prefix.fenced == fenced

    prefix.commit_takes_ms = 0
    sink.write_layout(LAYOUT)
    assert prefix.fenced == fenced, "once for each that is doubtful"


def test_a_driver_that_was_suspended_in_its_commit_leaves_a_newer_one_alone() -> None:
    """It wakes up, its transaction is committed, and another driver has started meanwhile. To open
    a producer would fence that one, and the older of the two would go on."""
    prefix = Prefix(commit_takes_ms=0)
    sink = prefix.open_sink()
    prefix.commit_takes_ms = 60_000

    class Newer(Committing):
        def commit_transaction(self, timeout: float) -> None:
            super().commit_transaction(timeout)
            prefix.log.append(keys_of(2))

    sink._producer = Newer(prefix)  # type: ignore[assignment]  # as much as is called here
    with pytest.raises(DriverFenced):
        sink.write_layout(LAYOUT)

    assert prefix.fenced == 0


@pytest.mark.parametrize("left", [keys_of(2), (b"layout", msgspec.json.encode(LAYOUT))])
def test_a_driver_that_has_fenced_a_newer_one_by_mistake_starts_again(
    left: tuple[bytes, bytes],
) -> None:
    """The newer one started in the moment between the look and the new producer. What it wrote is
    not what this driver goes on from; one of the two must come back."""
    prefix = Prefix(commit_takes_ms=0)
    sink = prefix.open_sink()
    prefix.commit_takes_ms, prefix.left = DOUBTFUL_AFTER_MS, [left]

    with pytest.raises(CannotReach, match="another driver"):
        sink.write_layout(Layout(shards=2, reply_partitions=1, topic_ids={}))


def test_a_transaction_that_is_gone_after_its_commit_ends_the_driver() -> None:
    """No broker may do so; if one does, the next batch must not be written behind the gap."""
    prefix = Prefix(commit_takes_ms=0)
    sink = prefix.open_sink()
    prefix.commit_takes_ms = DOUBTFUL_AFTER_MS

    class Forgetful(Committing):
        def commit_transaction(self, timeout: float) -> None:
            super().commit_transaction(timeout)
            prefix.log.pop()

    sink._producer = Forgetful(prefix)  # type: ignore[assignment]  # as much as is called here
    with pytest.raises(CannotReach, match="does not end with what this driver has written"):
        sink.write_layout(LAYOUT)

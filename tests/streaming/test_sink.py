"""What a driver says that could not commit: to be started again, or never."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.effects.routing import Output
from coordlib.errors import CannotReach, CoordError, DriverFenced
from coordlib.records.stored import Layout
from coordlib.streaming.batch import Batch
from coordlib.streaming.checkpoint import Identity
from coordlib.streaming.plane import groups
from coordlib.streaming.sink import TransactionalSink
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
    ("commit_takes_s", "kind", "mend"),
    [(9.9, DriverFenced, "Keep one job"), (10.0, CannotReach, "Start the job again")],
)
def test_a_transaction_that_the_broker_gave_up_is_not_the_work_of_a_newer_driver(
    commit_takes_s: float, kind: type[CoordError], mend: str
) -> None:
    """A driver was suspended inside its transaction. The broker ended that, and tells it the same
    as one that was fenced by another; but with no other there, it must come back."""
    producer: Any = FencedProducer(commit_takes_s)
    sink = TransactionalSink(
        groups("p"), lambda: producer, lambda *_: {}, 10_000, lambda: producer.now_s
    )

    with pytest.raises(kind, match=mend):
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

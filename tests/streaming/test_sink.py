"""What a driver says that could not commit: to be started again, or never."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.errors import CannotReach, CoordError, DriverFenced
from coordlib.records.stored import Layout
from coordlib.streaming.sink import TransactionalSink

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
    sink = TransactionalSink("p", producer, lambda *_: {}, 10_000, lambda: producer.now_s)

    with pytest.raises(kind, match=mend):
        sink.write_layout(LAYOUT)

"""What the job records of itself for clients: a client sends new fields to no older job."""

from typing import Any

import msgspec
import pytest

from coordlib.errors import StartRefused
from coordlib.kafka.topics import Layout as Topics
from coordlib.records import codec
from coordlib.records.stored import FEATURES, Layout
from coordlib.streaming import query, start
from coordlib.streaming.plane import groups
from coordlib.streaming.sink import TransactionalSink

PREFIX = "p"
OLDER = Layout(shards=2, reply_partitions=4, topic_ids={"p.requests": "abcdefghijkl"})
NOW = msgspec.structs.replace(OLDER, features=FEATURES)


class Producer:
    """Keeps the newest record by key, as the compacted topic does."""

    def __init__(self, *recorded: Layout) -> None:
        self.newest: dict[bytes, bytes] = {}
        for each in recorded:
            self.newest[b"layout"] = codec.encode(each)
        self.transactions = 0

    def init_transactions(self, timeout: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def produce(self, topic: str, value: bytes, key: bytes, *_: Any, **__: Any) -> None:
        assert topic == "p.progress"
        self.newest[key] = value

    def flush(self, timeout: float) -> None: ...

    def commit_transaction(self, timeout: float) -> None:
        self.transactions += 1


def started(layout: Layout, *recorded: Layout) -> Producer:
    """The topic after a start of a job with this layout."""
    producer: Any = Producer(*recorded)
    sink = TransactionalSink(groups(PREFIX), producer, lambda *_: producer.newest)
    sink.open()
    start._agree_on_layout(sink, layout, PREFIX)
    return producer


def recorded_by(producer: Producer) -> Layout:
    return msgspec.json.decode(producer.newest[b"layout"], type=Layout)


def test_the_first_job_of_a_prefix_records_what_it_reads() -> None:
    assert recorded_by(started(NOW)) == NOW


def test_an_existing_prefix_goes_over_when_its_job_is_upgraded() -> None:
    """The record of an older job has no such field."""
    producer = Producer()
    raw = msgspec.to_builtins(OLDER)
    del raw["features"]
    producer.newest[b"layout"] = msgspec.json.encode(raw)
    sink = TransactionalSink(groups(PREFIX), producer, lambda *_: producer.newest)  # type: ignore[arg-type]
    sink.open()
    start._agree_on_layout(sink, NOW, PREFIX)

    assert recorded_by(producer) == NOW


def test_a_job_of_the_same_features_writes_nothing() -> None:
    """A start with a wrong checkpoint must leave no trace that an older job would notice."""
    assert started(NOW, NOW).transactions == 0


def test_a_job_that_is_set_back_takes_its_features_back() -> None:
    """Clients would send it fields that it refuses."""
    newer = msgspec.structs.replace(NOW, features=(*FEATURES, "of-tomorrow"))

    assert recorded_by(started(NOW, newer)) == NOW


def test_other_topics_are_refused_whatever_the_features() -> None:
    other = msgspec.structs.replace(OLDER, shards=3)

    with pytest.raises(StartRefused, match="2 shards, not 3"):
        started(NOW, other)


def test_the_job_names_all_features_of_its_code() -> None:
    """Else no client would ever send the fields."""
    found = Topics(PREFIX, 2, 4, {"p.requests": "abcdefghijkl"})

    assert query._layout_of(found) == NOW
    assert len(set(FEATURES)) == len(FEATURES)

"""How far a process has read the coordination topic, when brokers answer for some of it."""

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from coordlib.client.claims.events import CoordinationTopicChanged
from coordlib.client.claims.reading import ASK_INTERVAL_MS, LogReader
from coordlib.client.kit import reading

TURN_MS = 20


class Silent:
    """A consumer of a log to which only the test writes."""

    def __init__(self, _: Mapping[str, Any]) -> None:
        self.messages: list[Any] = []

    def incremental_assign(self, places: list[TopicPartition]) -> None: ...

    def poll(self, _: float) -> Any:
        return self.messages.pop(0) if self.messages else None

    def consume(self, _: int, timeout: float) -> list[Any]:
        return []


class Ends:
    """An admin client that answers at once; of a partition without a leader with an error."""

    def __init__(self, _: Mapping[str, Any]) -> None:
        self.of: dict[int, int] = {}
        self.asked = 0

    def list_offsets(
        self, places: Mapping[TopicPartition, Any], *_: float, **__: float
    ) -> dict[TopicPartition, "Future[Any]"]:
        self.asked += 1
        return {place: self._answer(place.partition) for place in places}

    def _answer(self, partition: int) -> "Future[Any]":
        answer: Future[Any] = Future()
        if partition in self.of:
            answer.set_result(TopicPartition("", partition, self.of[partition]))
        else:
            answer.set_exception(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))
        return answer

    def forget(self, _: list[str]) -> None: ...


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> LogReader:
    """Of two partitions, read up to 5."""
    monkeypatch.setattr(reading, "Consumer", Silent)
    monkeypatch.setattr(reading, "Admin", Ends)
    made = LogReader({}, "c", "__marshal")
    made.add(0, 5)
    made.add(1, 5)
    return made


def proofs(reader: LogReader, begin_ms: int, end_ms: int) -> dict[int, int]:
    """When the newest end was asked for that was reached, of each partition."""
    found: dict[int, int] = {}
    for now_ms in range(begin_ms, end_ms, TURN_MS):
        reader.ask(now_ms)
        found.update(reader.ended())
    return found


def test_a_partition_without_a_leader_holds_up_no_other(reader: LogReader) -> None:
    """Its broker died just after it had said where the log ends, so that this end is not reached.
    No end was asked for any more, and each consumer of the process lost its claims, whichever
    coordination partition they stand in, until the broker was back."""
    ends: Any = reader.admin
    ends.of = {0: 10, 1: 5}
    reader.ask(1_000)
    ends.of = {1: 5}

    found = proofs(reader, 1_000 + TURN_MS, 61_000)
    assert found[1] > 60_000 - ASK_INTERVAL_MS
    assert 0 not in found


def test_an_end_that_the_log_has_lost_is_not_waited_for(reader: LogReader) -> None:
    """A replica that lacks records has become the leader: the log ends before what was asked."""
    ends: Any = reader.admin
    ends.of = {0: 10, 1: 5}
    reader.ask(1_000)
    reader.ask(1_000 + TURN_MS)
    ends.of = {0: 5, 1: 5}

    assert proofs(reader, 1_000 + 2 * TURN_MS, 11_000)[0] > 10_000 - ASK_INTERVAL_MS


def test_what_is_read_behind_the_question_is_no_lost_end(reader: LogReader) -> None:
    """Under load the log grows, and is read, while its end is asked for: each consumer of the
    process ended, since it knew more than the answer that came late."""
    ends: Any = reader.admin
    ends.of = {0: 5, 1: 5}
    reader.ask(1_000)
    reader._positions[0] = 9  # read meanwhile

    assert set(proofs(reader, 1_000 + TURN_MS, 1_000 + 3 * TURN_MS)) == {0, 1}


def test_a_log_that_has_lost_what_was_read_ends_the_reading(reader: LogReader) -> None:
    """An unclean election: epochs that were given out would be given out again.  # INV-105"""
    ends: Any = reader.admin
    ends.of = {0: 4, 1: 5}

    with pytest.raises(CoordinationTopicChanged, match="offset 4 was there, and the next one is 4"):
        proofs(reader, 1_000, 2_000)


def test_a_log_that_was_cut_and_has_grown_again_ends_the_reading(reader: LogReader) -> None:
    """The library compares the leaders' epochs; it was logged, and the reading stood still."""
    silent: Any = reader._consumer
    error = SimpleNamespace(code=lambda: KafkaError._LOG_TRUNCATION, str=lambda: "truncated")
    told = SimpleNamespace(error=lambda: error, offset=lambda: 3, partition=lambda: 0)
    silent.poll = lambda _: told

    with pytest.raises(CoordinationTopicChanged, match="another record is there"):
        reader.read()


def test_a_long_log_is_read_to_the_end_that_was_asked_for_first(reader: LogReader) -> None:
    """A start reads millions of records, and others write meanwhile."""
    ends: Any = reader.admin
    ends.of = {0: 10, 1: 5}
    proofs(reader, 1_000, 2_000)
    ends.of = {0: 1_000, 1: 5}
    proofs(reader, 2_000, 5_000)
    reader._positions[0] = 10

    assert dict(reader.ended())[0] < 2_000


def record(offset: int, stamped_by: int) -> Any:
    return SimpleNamespace(
        error=lambda: None,
        offset=lambda: offset,
        partition=lambda: 0,
        timestamp=lambda: (stamped_by, 1_000),
        value=lambda: b"",
    )


def test_a_topic_that_loses_the_brokers_stamps_is_told_once(
    reader: LogReader, caplog: pytest.LogCaptureFixture
) -> None:
    """A tool has set the topic back to CreateTime. Nothing ends any more, since no time passes, and
    nobody was told why the partitions of a dead consumer stay its own."""
    ends: Any = reader.admin
    consumer: Any = reader._consumer
    ends.of = {0: 6, 1: 5}
    consumer.messages = [record(5, TIMESTAMP_CREATE_TIME)]  # of before the topic was altered
    reader.read()
    proofs(reader, 1_000, 2_000)
    consumer.messages = [record(6, TIMESTAMP_LOG_APPEND_TIME)]
    reader.read()
    assert not caplog.records

    consumer.messages = [record(7, TIMESTAMP_CREATE_TIME), record(8, TIMESTAMP_CREATE_TIME)]
    for _ in range(2):
        reader.read()
    (told,) = caplog.records
    assert (told.levelno, "LogAppendTime" in told.getMessage()) == (logging.WARNING, True)

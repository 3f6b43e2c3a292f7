"""Rights that are missing: consumers of claims say which, and lack of a copy stops nobody."""

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.client.claims import reading as beginning
from coordlib.client.claims.admin import ClaimsAdmin
from coordlib.client.claims.kafka import KafkaClaims, KafkaOffsets, _poll
from coordlib.client.claims.options import Data
from coordlib.client.claims.reading import Beginnings, LogReader
from coordlib.client.claims.transport import Coordination
from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.snapshots import Snapshot
from coordlib.errors import CannotReach, NotAllowed
from coordlib.kafka.clients import missing, reading, writing
from coordlib.kafka.logs import Bounds, Place
from tests.client.claims.fake_claims import FakeMessage
from tests.client.claims.world import GROUP, World

OPTIONS = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "sasl.username": "alice"}
TOPIC = "__marshal.6s"
ANY: Any = None
REFUSED_TOPIC = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
REFUSED_GROUP = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
#: An idempotent producer without any right to write tells so in words.
REFUSED_FOR_EVER = KafkaError(KafkaError._FATAL, "x: Broker: Cluster authorization failed")
AWAY = KafkaError(KafkaError._TRANSPORT)


class Handler:
    """A consumer that notes what it is told."""

    def __init__(self) -> None:
        self.fed: list[Any] = []
        self.failure: Exception | None = None

    def feed(self, event: Any) -> None:
        self.fed.append(event)

    def fail(self, problem: Exception) -> None:
        self.failure = problem


def stand_in() -> Any:
    """As much of a transport as answers of its producer need."""
    told: Any = SimpleNamespace(place=SimpleNamespace(topic=TOPIC), _options=OPTIONS)
    told._failure, told._is_closed, told._topic = None, threading.Event(), TOPIC
    told._not_written = lambda handler, id_, why: handler.feed((id_, why))
    return told


@pytest.mark.parametrize("error", [REFUSED_TOPIC, REFUSED_FOR_EVER])
def test_who_may_not_write_is_told_and_does_not_try_for_ever(error: KafkaError) -> None:
    """It was silence: each attempt was given up, and the next one followed."""
    transport, handler = stand_in(), Handler()
    KafkaClaims._not_taken(transport, handler, 1, error)

    assert handler.fed == []
    assert str(handler.failure).startswith(f"A right is missing: Write on the topic {TOPIC}.")
    assert "User:alice" in str(handler.failure)
    with pytest.raises(NotAllowed):
        KafkaClaims.check(transport)


def test_a_producer_that_has_failed_for_ever_gave_its_reason_once() -> None:
    """Without any right to write it fails before the first message, and polling it raises."""
    transport, handler = stand_in(), Handler()
    refused = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "refused", fatal=True)
    producer = Mock(poll=Mock(side_effect=KafkaException(refused)))
    transport._all = lambda: [handler]
    KafkaClaims._guarded(transport, partial(_poll, producer, TOPIC, OPTIONS))

    assert str(handler.failure).startswith(f"A right is missing: Write on the topic {TOPIC}.")
    with pytest.raises(NotAllowed):
        KafkaClaims.check(transport)


def test_a_message_that_was_lost_on_its_way_is_no_missing_right() -> None:
    transport, handler = stand_in(), Handler()
    KafkaClaims._not_taken(transport, handler, 1, AWAY)

    assert (handler.fed[0][0], handler.failure) == (1, None)
    KafkaClaims.check(transport)


def event(error: KafkaError | None, partition: int | None = 0) -> Any:
    """What librdkafka hands out in place of a message."""
    return SimpleNamespace(
        error=lambda: error, offset=lambda: None, partition=lambda: partition, topic=lambda: "t"
    )


@pytest.mark.parametrize("partition", [0, -1, None])
@pytest.mark.parametrize(
    ("error", "right"),
    [
        (REFUSED_TOPIC, f"Read on the topic {TOPIC}"),
        (REFUSED_GROUP, "Describe on groups that begin with coordlib-"),
    ],
)
def test_a_reader_of_the_log_says_which_right_it_lacks(
    error: KafkaError, right: str, partition: int | None
) -> None:
    """Some errors are of a consumer, and name no partition."""
    reader = LogReader(OPTIONS, "c", TOPIC)
    reader.add(0, 0)

    with pytest.raises(NotAllowed, match=f"A right is missing: {right}"):
        reader._take(event(error, partition))
    assert reader._take(event(AWAY)) is None
    reader.close()


def test_ends_that_may_not_be_asked_for_are_told() -> None:
    """The right was withdrawn while the client runs: its fence closed, and nobody knew why."""
    reader = LogReader(OPTIONS, "c", TOPIC)
    reader.add(0, 0)
    answer = SimpleNamespace(done=lambda: True, exception=lambda: KafkaException(REFUSED_TOPIC))
    reader._answers = {0: answer}  # type: ignore[dict-item]

    with pytest.raises(NotAllowed, match=f"Read on the topic {TOPIC}"):
        reader.ask(0)
    reader.close()


class Reader:
    """A data consumer that hands out what it was given."""

    def __init__(self, *messages: Any) -> None:
        self._messages = list(messages)

    def incremental_assign(self, begun: Any) -> None:
        """Nothing is read."""

    def list_topics(self, topic: str, timeout: float) -> None:
        """Everything is known."""

    def poll(self, timeout_s: float) -> Any:
        return self._messages.pop(0) if self._messages else None

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        some, self._messages = self._messages, []
        return some


def test_a_topic_that_may_not_be_read_is_told_and_what_came_of_others_is_kept() -> None:
    place = TopicPartition("u", 0)
    data = Data(Reader(event(REFUSED_TOPIC), FakeMessage(place, 7, b"x")), OPTIONS)
    data.begin({place: 7})

    data.fetch(0)
    assert "Read on the topic t" in str(data.denied)
    assert [message.offset() for message in data.waiting[place]] == [7]
    assert list(data.errors) == []


# ---- offsets ------------------------------------------------------------------------------------


@pytest.fixture
def offsets() -> KafkaOffsets:
    return KafkaOffsets(OPTIONS, "c")


def test_a_copy_that_is_refused_is_told_once_and_stops_nobody(
    offsets: KafkaOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    """Positions stand in the claims' log; Kafka's group has them for those who watch it."""
    for error in (REFUSED_GROUP, REFUSED_GROUP, None, REFUSED_GROUP):
        offsets._committed(GROUP, error, [])

    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2, "once more after it has worked"
    assert all(f"A right is missing: Read on the group {GROUP}." in each for each in told)
    assert "commit_to_kafka=False" in told[0]


def test_a_copy_that_is_refused_for_its_topic_names_the_topic(
    offsets: KafkaOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    row: Any = SimpleNamespace(topic="orders", error=REFUSED_TOPIC)
    offsets._committed(GROUP, None, [row])

    (told,) = [record.getMessage() for record in caplog.records]
    assert "A right is missing: Read on the topic orders." in told


def test_a_commit_that_a_broker_has_lost_is_no_warning(
    offsets: KafkaOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        offsets._committed(GROUP, AWAY, [])

    assert caplog.records == []


class Committer:
    """Kafka's consumer for a group that this principal has no right on."""

    def commit(self, **_: Any) -> Any:
        raise KafkaException(REFUSED_GROUP)

    def poll(self, timeout_s: float) -> None:
        """No outcome has come."""


def test_who_waits_for_kafkas_group_is_told_the_right(
    offsets: KafkaOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    """At most once begins from Kafka's offsets, and must not hand out what they do not cover."""
    offsets._committers[GROUP] = Committer()  # type: ignore[assignment]
    refused: Future[Any] = Future()
    refused.set_exception(KafkaException(REFUSED_GROUP))
    offsets._admin = Mock(list_consumer_group_offsets=lambda *_, **__: {GROUP: refused})
    place = TopicPartition("t", 0)

    with pytest.raises(NotAllowed, match=f"Read on the group {GROUP}"):
        offsets.committed(GROUP, [place])
    with pytest.raises(NotAllowed, match=f"Read on the group {GROUP}"):
        offsets.commit(GROUP, {place: 1}, is_awaited=True)
    assert caplog.records == []
    offsets.commit(GROUP, {place: 1}, is_awaited=False)
    assert len(caplog.records) == 1


# ---- how a reader begins ------------------------------------------------------------------------


@pytest.fixture
def beginnings(monkeypatch: pytest.MonkeyPatch) -> Beginnings:
    """Of a topic with records from the first one on, and snapshots that may not be read."""

    def log_bounds(_: Any, places: list[Place], *__: Any, **___: Any) -> Mapping[Place, Bounds]:
        return {place: Bounds(0, 9) for place in places}

    def look_up(_: Any, names: list[str], conf: Any) -> Any:
        raise missing(reading(names[0]), conf)

    monkeypatch.setattr(beginning, "log_bounds", log_bounds)
    monkeypatch.setattr(beginning, "look_up", look_up)
    return Beginnings(OPTIONS, Coordination(TOPIC, 4, "id", 6_000), "coord")


def test_snapshots_that_may_not_be_read_stop_nobody_and_are_told_once(
    beginnings: Beginnings, caplog: pytest.LogCaptureFixture
) -> None:
    """They make a start quick. A team that runs no job at all has no reason to grant the right."""
    views = [beginnings.begin(ANY, partition, 0) for partition in range(4)]

    assert [(view.position, view.world.is_late) for view in views] == [(0, False)] * 4
    (told,) = [record.getMessage() for record in caplog.records]
    assert "A right is missing: Read on the topic coord.claims.snapshots." in told


def test_who_needs_a_snapshot_is_told_that_it_may_not_be_read(beginnings: Beginnings) -> None:
    """`coord claims verify` compares with it."""

    def ask() -> Snapshot | None:
        return beginnings.snapshot(ANY, 0)

    with pytest.raises(NotAllowed, match=r"coord\.claims\.snapshots"):
        ask()


# ---- admins -------------------------------------------------------------------------------------


def test_an_admin_that_may_not_write_says_so() -> None:
    """It said that the topic had not taken the message, and that somebody should check."""
    transport: Any = World({"t": 1}).log.transport()
    refused = missing(writing(TOPIC), OPTIONS)
    transport.send = lambda handler, *_: handler.fail(refused)
    admin = ClaimsAdmin({"client.id": "admin"}, transport=transport)

    with pytest.raises(NotAllowed, match=f"Write on the topic {TOPIC}"):
        admin.pause(GROUP, 60)


def test_an_admin_without_an_answer_does_not_speak_of_rights() -> None:
    transport: Any = World({"t": 1}).log.transport()
    transport.send = lambda handler, *_: handler.fail(KeyError("odd"))
    admin = ClaimsAdmin({"client.id": "admin"}, transport=transport)

    with pytest.raises(CannotReach, match="has not taken"):
        admin.resume(GROUP)

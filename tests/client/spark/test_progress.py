"""Any query's positions as committed offsets: what is written, when, and how it ends."""

import contextlib
import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark import progress as spark_progress
from coordlib.client.spark.progress import publish_progress
from coordlib.core.wire.envelope import shard_of
from coordlib.errors import SetupError
from coordlib.kafka import producer
from coordlib.limits import OFFSETS_PER_REQUEST_MAX

SHARDS = 4


class FakeProducer:
    """Takes records when it is flushed, or refuses the next ones."""

    made: "FakeProducer"
    #: How many there were.
    count = 0

    def __init__(self, config: dict[str, Any]) -> None:
        assert config["enable.idempotence"]
        FakeProducer.made = self
        FakeProducer.count += 1
        self.written: list[tuple[str, int, dict[str, Any]]] = []
        self.refuses = 0
        #: A producer that failed fatally says so when it is flushed, once; it takes nothing more.
        self.fails_fatally = False
        self._is_dead = False
        self.was_flushed = threading.Event()
        self._open: list[Any] = []

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Any
    ) -> None:
        assert key == b"g"
        if self._is_dead:
            raise KafkaException(KafkaError(KafkaError._FATAL, "dead"))
        self._open.append((topic, partition, json.loads(value), on_delivery))

    def purge(self) -> None: ...

    def close(self) -> None: ...

    def flush(self, _timeout_s: float) -> None:
        if self.fails_fatally:
            self.fails_fatally, self._is_dead, self._open = False, True, []
            self.was_flushed.set()
            raise KafkaException(KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "", True))
        for topic, partition, value, on_delivery in self._open:
            if self.refuses > 0:
                self.refuses -= 1
                on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT), None)
            else:
                self.written.append((topic, partition, value))
                on_delivery(None, None)
        self._open = []
        self.was_flushed.set()

    @property
    def offsets(self) -> list[dict[str, int]]:
        return [
            {f"{row['topic']}-{row['partition']}": row["offset"] for row in value["offsets"]}
            for _, _, value in self.written
        ]


class FakeStreams:
    """The listeners of a session, and its queries."""

    def __init__(self, *queries: Any) -> None:
        self.active, self.listeners = list(queries), list[Any]()
        self.was_removed = threading.Event()

    def addListener(self, listener: Any) -> None:  # noqa: N802  # Spark's name
        self.listeners.append(listener)

    def removeListener(self, listener: Any) -> None:  # noqa: N802
        self.listeners.remove(listener)
        self.was_removed.set()


class Progress(dict[str, Any]):
    id = "q"


def progress(batch: int, **ends: int) -> Progress:
    at = {name[1:]: end for name, end in ends.items()}
    source = {"description": "KafkaV2[Subscribe[t]]", "endOffset": json.dumps({"t": at})}
    return Progress(batchId=batch, timestamp=str(batch), sources=[source])


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        place = SimpleNamespace(shards=SHARDS)
        monkeypatch.setattr(spark_progress, "find_place", lambda _config, _prefix: place)
        monkeypatch.setattr(producer, "Producer", FakeProducer)
        monkeypatch.setattr(spark_progress, "_RETRY_S", 0.01)
        monkeypatch.setattr(spark_progress, "_REOPEN_S", 0.01)
        monkeypatch.setattr(FakeProducer, "count", 0)
        self.query: Any = SimpleNamespace(id="q", isActive=True, lastProgress=None)
        self.streams = FakeStreams(self.query)
        self.spark: Any = SimpleNamespace(streams=self.streams)

    def publish(self) -> Any:
        self.publication = publish_progress(self.query, "g", config={}, spark=self.spark)
        return self.publication

    def hear(self, batch: int, **ends: int) -> None:
        (listener,) = self.streams.listeners
        producer = FakeProducer.made
        producer.was_flushed.clear()
        listener.onQueryProgress(SimpleNamespace(progress=progress(batch, **ends)))
        assert producer.was_flushed.wait(60)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(monkeypatch)
    yield scene
    assert scene.publication.close(60)


@pytest.mark.parametrize("group", ["", "a\nb", "x" * 250, "\udcff"])
def test_a_name_that_no_group_can_have_is_refused(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator refuses the positions, and nobody reads its answer: the query would never be
    seen, and nothing says why. The name may be an environment variable that is not set."""
    scene = Scene(monkeypatch)
    with pytest.raises(SetupError):
        publish_progress(scene.query, group, config={}, spark=scene.spark)
    assert scene.streams.listeners == []


def test_each_batch_is_a_commit_without_a_member(scene: Scene) -> None:
    """As of a simple consumer of Kafka: no member, no generation, nobody waits for the answer."""
    scene.publish()
    scene.hear(0, t0=5, t1=0)
    scene.hear(1, t0=5, t1=3)

    (topic, partition, value), _ = FakeProducer.made.written
    assert (topic, partition) == ("coord.offsets", shard_of("g", SHARDS))
    assert value["type"] == "OffsetCommit"
    assert (value["member"], value["generation"], value["reply"]) == ("", -1, None)
    # Only what has changed.
    assert FakeProducer.made.offsets == [{"t-0": 5, "t-1": 0}, {"t-1": 3}]


def test_more_positions_than_one_request_can_carry_are_written(scene: Scene) -> None:
    """A query over topics with long names: the producer refused its commit again and again."""
    scene.publish()
    scene.hear(1, **{f"p{number}": number for number in range(OFFSETS_PER_REQUEST_MAX + 1)})

    assert len(FakeProducer.made.offsets) == 2
    written = [each for one in FakeProducer.made.offsets for each in one.items()]
    assert len(written) == OFFSETS_PER_REQUEST_MAX + 1


def test_a_query_that_ran_before_shows_at_once(scene: Scene) -> None:
    scene.query.lastProgress = progress(7, t0=5)

    scene.publish().close(60)

    assert FakeProducer.made.offsets == [{"t-0": 5}]


def test_news_that_come_late_take_nothing_back(scene: Scene) -> None:
    """The progress that was asked for may be older than the one that was told meanwhile."""
    scene.publish()
    scene.hear(3, t0=9)

    scene.publication.hear(progress(2, t0=5))

    assert scene.publication.close(60)
    assert {written["t-0"] for written in FakeProducer.made.offsets} == {9}


def test_everything_is_written_again_now_and_then_and_at_the_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator refused to make the group just then, or somebody deleted it: nobody reads
    the answer, and the query may have been idle ever since."""
    monkeypatch.setattr(spark_progress, "_REPEAT_S", 0.05)
    scene.publish()
    scene.hear(0, t0=5, t1=3)
    producer = FakeProducer.made
    producer.was_flushed.clear()
    assert producer.was_flushed.wait(60)
    monkeypatch.setattr(spark_progress, "_REPEAT_S", 3_600.0)

    before = len(producer.offsets)
    assert scene.publication.close(60)

    assert len(producer.offsets) > before >= 2
    assert set(map(str, producer.offsets)) == {str({"t-0": 5, "t-1": 3})}


def test_what_the_broker_did_not_take_is_written_again_in_its_newest_form(scene: Scene) -> None:
    scene.publish()
    FakeProducer.made.refuses = 1
    scene.hear(0, t0=5)
    scene.hear(1, t0=6)

    assert scene.publication.close(60)
    assert FakeProducer.made.offsets[-1] == {"t-0": 6}
    assert scene.publication.is_written


def test_after_a_fatal_error_another_producer_writes_what_was_not_taken(scene: Scene) -> None:
    """The broker forgot the producer, or answered what an idempotent one cannot bear: it takes
    nothing more for ever, and the query runs on for weeks."""
    scene.publish()
    scene.hear(0, t0=5)
    first = FakeProducer.made
    first.fails_fatally = True
    scene.hear(1, t0=6)

    assert scene.publication.close(60)
    assert first.offsets == [{"t-0": 5}]
    assert (FakeProducer.made.offsets, FakeProducer.count) == ([{"t-0": 6}], 2)


def test_an_error_that_passes_keeps_the_producer(scene: Scene) -> None:
    """Else every request that timed out would open connections to all brokers."""
    scene.publish()
    FakeProducer.made.refuses = 1
    scene.hear(0, t0=5)
    scene.hear(1, t0=6)

    assert scene.publication.close(60)
    assert FakeProducer.count == 1


def test_producers_that_fail_at_once_are_not_opened_one_after_the_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong may stay wrong, and the brokers would be asked for a producer id every time."""
    now_s = 100.0
    opened: list[float] = []

    class Doomed(FakeProducer):
        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__(config)
            self.fails_fatally = True
            opened.append(now_s)

    monkeypatch.setattr(producer, "Producer", Doomed)
    monkeypatch.setattr(spark_progress, "_REOPEN_S", 10.0)
    publication = spark_progress.Publication({}, "g", now_s=lambda: now_s)
    scene.publication = publication
    publication.end()
    publication._thread.join()
    publication._newest = {TopicPartition("t", 0): 5}
    for _ in range(25):
        with contextlib.suppress(KafkaException):
            publication._write(is_last=False, is_all=False)
        now_s += 1.0

    assert opened == [100.0, 110.0, 120.0]
    monkeypatch.setattr(producer, "Producer", FakeProducer)
    publication._write(
        is_last=True, is_all=True
    )  # nobody comes after the last write: it does not wait


def test_other_queries_of_the_session_are_their_own_business(scene: Scene) -> None:
    scene.publish()
    (listener,) = scene.streams.listeners
    other = progress(0, t0=99)
    other.id = "another"

    listener.onQueryProgress(SimpleNamespace(progress=other))
    listener.onQueryTerminated(SimpleNamespace(id="another"))
    scene.hear(0, t0=5)

    assert FakeProducer.made.offsets == [{"t-0": 5}]
    assert scene.streams.listeners == [listener]


def test_with_the_query_it_ends_and_no_listener_is_left(scene: Scene) -> None:
    """A notebook starts and stops queries all day long in one session."""
    scene.publish()
    (listener,) = scene.streams.listeners

    listener.onQueryProgress(SimpleNamespace(progress=progress(0, t0=5)))
    listener.onQueryTerminated(SimpleNamespace(id="q"))

    assert scene.streams.was_removed.wait(60)
    assert scene.publication.close(60)
    assert FakeProducer.made.offsets[-1] == {"t-0": 5}


def test_a_query_that_ended_before_anybody_listened_leaves_no_listener(scene: Scene) -> None:
    scene.query.isActive = False
    scene.query.lastProgress = progress(4, t0=5)

    scene.publish()

    assert scene.streams.listeners == []
    assert scene.publication.close(60)
    assert FakeProducer.made.offsets == [{"t-0": 5}]


def test_a_query_of_another_session_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session hears nothing of it: the group would stay where it is, without a word."""
    scene = Scene(monkeypatch)
    scene.streams.active = []

    with pytest.raises(SetupError, match="spark="):
        scene.publish()

    assert scene.streams.listeners == []

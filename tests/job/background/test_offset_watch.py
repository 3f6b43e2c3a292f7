"""Lag and mirror against a real broker, with a driver's topics and without Spark."""

import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.config import EngineConfig
from coordlib.core.wire import codec
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.stored import CommittedValue, LagLine, LagSample
from coordlib.job.background import committed_log, offset_watch
from coordlib.job.background.committed_log import CommittedOffsets
from coordlib.job.background.loop import HealthReport, Trouble
from coordlib.job.background.offset_watch import OffsetWatch
from coordlib.kafka import lag, topics
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin
from coordlib.kafka.logs import Bounds, Place
from coordlib.kafka.reading import newest_by_key
from tests.kit.logs import delete_records

if TYPE_CHECKING:
    from coordlib.local.broker import Broker

SHARDS = 2
ENGINE = EngineConfig(lag_interval_ms=200, mirror_offsets=("billing", "^mirrored-.*"))


class Engine:
    """Topics of a prefix, and somebody who commits offsets in transactions, as the sink does."""

    def __init__(self, broker: "Broker") -> None:
        from confluent_kafka import Producer

        self.prefix = f"t{uuid.uuid4().hex[:8]}"
        self.data = f"{self.prefix}-orders"
        self.options = {"bootstrap.servers": broker.bootstrap_servers}
        topics.create(self.options, self.prefix, SHARDS, 1, 1)
        self.admin = open_admin(self.options)
        self.producer = Producer(
            {**self.options, "transactional.id": self.prefix, "linger.ms": 0, "log_level": 0}
        )
        self.producer.init_transactions()
        self.watches: list[OffsetWatch] = []
        self.group = f"mirrored-{self.prefix}"

    def make_topic(self) -> None:
        from confluent_kafka.admin import NewTopic

        answer = self.admin.create_topics([NewTopic(self.data, 2, 1)])
        answer[self.data].result(60)
        _wait(lambda: len(self.bounds(0, 1)) == 2)

    def delete_topic(self) -> None:
        self.admin.delete_topics([self.data])[self.data].result(60)

    def bounds(self, *partitions: int) -> dict[Place, Bounds | None]:
        return log_bounds(self.admin, [Place(self.data, each) for each in partitions])

    def produce(self, count: int, partition: int = 0) -> None:
        from confluent_kafka import Producer

        producer = Producer(self.options)
        for _ in range(count):
            producer.produce(self.data, b"x", partition=partition)
        assert producer.flush(60) == 0

    def commit(self, offsets: dict[int, int | None], publish: bool = True) -> None:
        """Write offsets of the group in one transaction."""
        self.producer.begin_transaction()
        for partition, offset in offsets.items():
            key = codec.encode([self.group, self.data, partition])
            self.producer.produce(
                f"{self.prefix}.committed", _value(offset), key, shard_of(self.group, SHARDS)
            )
        self.producer.flush(60)
        if publish:
            self.producer.commit_transaction(60)

    def watch(self, engine: EngineConfig = ENGINE) -> OffsetWatch:
        watch = OffsetWatch(self.options, self.prefix, engine)
        watch.start(SHARDS)
        self.watches.append(watch)
        return watch

    def mirrored(self, group: str = "") -> dict[int, int]:
        """Kafka's own group, as a consumer of it begins."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**self.options, "group.id": group or self.group, "log_level": 0})
        try:
            found = consumer.committed([TopicPartition(self.data, each) for each in (0, 1)], 20)
        finally:
            consumer.close()
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def newest_sample(self) -> dict[int, LagLine]:
        topic = f"{self.prefix}.lag"
        value = newest_by_key(self.options, topic, shard_of(self.group, SHARDS))
        if self.group.encode() not in value:
            return {}
        sample = msgspec.json.decode(value[self.group.encode()], type=LagSample)
        return {line.partition: line for line in sample.lines}


def _value(offset: int | None) -> bytes | None:
    if offset is None:
        return None
    fields: dict[str, Any] = {"leader_epoch": -1, "metadata": "", "commit_ms": 0, "generation": 3}
    return codec.encode(CommittedValue(offset=offset, commit_clock_ms=0, member="m1", **fields))


def _wait(is_so: Callable[[], bool]) -> None:
    """The test's own time limit ends what never comes true."""
    while not is_so():
        time.sleep(0.05)


class ShortLog:
    """A topic whose turns are told."""

    def __init__(self, turns: list[bool]) -> None:
        self.offsets = CommittedOffsets()
        self.has_caught_up, self._turns = False, turns

    def turn(self, wait_s: float) -> None:
        self.has_caught_up = self._turns.pop(0)


def test_nothing_is_sampled_or_copied_before_the_topic_was_read_to_its_end() -> None:
    """After a start older offsets come before newer ones: a copy of them would lie behind what
    Kafka's group has already."""
    turns: list[str] = []
    user: Any = SimpleNamespace(turn=lambda offsets: turns.append("turn"))
    log: Any = ShortLog([False, False, True, True])
    watch = OffsetWatch({}, "p", ENGINE)

    seen = []
    for _ in range(4):
        watch._turn(log, {"lag": user}, None)
        seen.append(len(turns))

    assert seen == [0, 0, 0, 1]


def test_lag_that_cannot_be_sampled_holds_up_no_mirror(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver may commit to Kafka's groups, and may not describe somebody's topic."""

    def refuse(_: object) -> None:
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    monkeypatch.setattr(offset_watch, "_RETRY_PAUSE_S", 0)
    turns: list[str] = []
    users: Any = {
        "lag": SimpleNamespace(turn=refuse),
        "mirror": SimpleNamespace(turn=lambda offsets: turns.append("turn")),
    }
    log: Any = ShortLog([True, True])
    watch = OffsetWatch({}, "p", ENGINE)

    for _ in range(2):
        watch._turn(log, users, None)

    assert turns == ["turn"]
    assert "Topic authorization failed" in capsys.readouterr().out


class Scene:
    """An OffsetWatch without Kafka, whose parts fail on demand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offset_watch, "_RETRY_PAUSE_S", 0)
        self.now_ms, self.failing = 1_000_000, set[str]()
        self.health = HealthReport(lambda: self.now_ms)
        self.watch = OffsetWatch({}, "p", ENGINE, self.health)
        self.log: Any = SimpleNamespace(
            has_caught_up=True, offsets=CommittedOffsets(), turn=lambda _: self._act("log")
        )
        self.users: Any = {"lag": SimpleNamespace(turn=lambda _: self._act("lag"))}
        self.topic: Any = SimpleNamespace(serve=lambda: None, failure="")

    def _act(self, name: str) -> None:
        if name in self.failing:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, f"{name} is away"))

    def turn(self, after_ms: int = 1_000) -> dict[str, Trouble]:
        self.now_ms += after_ms
        self.watch._turn(self.log, self.users, self.topic)
        return self.health.now


def test_what_fails_is_told_since_when_and_until_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator asks why lag stands still: the job's log is on another machine."""
    scene = Scene(monkeypatch)
    scene.failing = {"lag"}
    scene.turn()

    (found,) = scene.turn().items()

    assert (found[0], found[1].since_ms, found[1].last_ms) == ("lag", 1_001_000, 1_002_000)
    assert "lag is away" in found[1].error
    scene.failing = set()
    assert scene.turn() == {}


def test_reading_works_again_when_it_has_not_failed_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two errors a consumer has nothing to say: the trouble must not come and go."""
    scene = Scene(monkeypatch)
    scene.failing = {"log"}
    scene.turn()
    scene.failing = set()
    assert scene.turn(59_000).keys() == {"committed offsets"}

    assert scene.turn(1_000) == {}


def test_samples_that_are_not_written_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is full or forbidden: it is learned from the acknowledgements, later."""
    scene = Scene(monkeypatch)
    scene.topic.failure = "no room"
    assert scene.turn()["lag samples"].error == "no room"
    scene.topic.failure = ""

    assert scene.turn() == {}


def test_offsets_that_are_not_followed_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    monkeypatch.setattr(committed_log, "OFFSETS_MAX", 1)
    for partition in range(4):
        scene.log.offsets.put("g", Place("t", partition), 1)

    assert scene.turn()["offsets left out"].error.startswith("3 have no lag")
    for partition in (1, 2, 3):
        scene.log.offsets.put("g", Place("t", partition), None)
    assert scene.turn() == {}


def test_a_watch_that_has_ended_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of ours, or a client option that only this client refuses."""
    scene = Scene(monkeypatch)

    def fail(*_: object) -> None:
        raise ValueError("no such option")

    monkeypatch.setattr(scene.watch, "_follow", fail)
    scene.watch.start(SHARDS)
    scene.watch.stop()

    assert "no such option" in scene.health.now["lag and mirror"].error


@pytest.mark.parametrize(
    ("not_read", "oldest_s", "is_told"), [(7_000, 60, True), (7_000, 3_600, False), (0, 60, False)]
)
def test_earlier_samples_that_reach_back_too_little_are_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    not_read: int,
    oldest_s: int,
    is_told: bool,
) -> None:
    """Thousands of groups are behind, and the newest records of a shard are those of two rounds:
    after a restart their lag in seconds is a lower bound. A topic that is merely long is none."""
    now_ms = time.time_ns() // 1_000_000
    line = LagLine(topic="orders", partition=0, committed=4, log_start=0, log_end=9, lag=5)

    def read(*_: object, on_cut: Callable[[int], None]) -> Iterator[LagSample]:
        if not_read:
            on_cut(not_read)
        at_ms = now_ms - 1000 * oldest_s
        yield LagSample(time_ms=at_ms, interval_ms=30_000, group="billing", lines=(line,))

    monkeypatch.setattr(offset_watch, "newest_samples", read)
    watch = OffsetWatch({}, "p", EngineConfig(lag_interval_ms=30_000))

    found = watch._earlier([0])

    assert found.keys() == {Place("orders", 0)}
    told = capsys.readouterr().out
    assert ("read in part" in told, "not_read=7000" in told) == (is_told, is_told)


@pytest.mark.stack
def test_only_the_newest_samples_are_read_and_the_others_counted(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the topic is, a start costs the same."""
    monkeypatch.setattr(lag, "SAMPLES_READ_MAX", 2)
    from confluent_kafka import Producer

    producer, topic = Producer(engine.options), f"{engine.prefix}.lag"
    for number in range(5):
        sample = LagSample(time_ms=number, interval_ms=1, group="g", lines=())
        producer.produce(topic, codec.encode(sample), b"g", 0)
    assert producer.flush(60) == 0
    cut: list[int] = []

    found = lag.newest_samples(engine.options, topic, 0, on_cut=cut.append)

    assert [sample.time_ms for sample in found] == [3, 4]
    assert cut == [3]


@pytest.fixture
def engine(broker: "Broker") -> Iterator[Engine]:
    engine = Engine(broker)
    yield engine
    for watch in engine.watches:
        watch.stop()


@pytest.mark.stack
def test_lag_follows_commits_and_what_is_produced(engine: Engine) -> None:
    """Before the start, while it runs, and on a partition that the group has read to its end."""
    engine.make_topic()
    engine.produce(10)
    engine.commit({0: 4, 1: 0})
    engine.watch()
    _wait(lambda: 0 in engine.newest_sample())
    (first, idle) = engine.newest_sample().values()
    assert (first.committed, first.log_start, first.log_end, first.lag) == (4, 0, 10, 6)
    assert first.is_at_least, "it was behind before anybody looked"
    assert (idle.lag, idle.lag_seconds) == (0, 0.0)

    engine.commit({0: 10})
    _wait(lambda: engine.newest_sample()[0].lag == 0)
    engine.produce(5)
    _wait(lambda: engine.newest_sample()[0].lag == 5)

    behind = engine.newest_sample()[0]
    assert behind.lag_seconds is not None
    assert behind.lag_seconds > 0
    assert not behind.is_at_least


@pytest.mark.stack
def test_a_restart_does_not_make_a_group_look_younger(engine: Engine) -> None:
    """The driver's samples end with it; the topic keeps them."""
    engine.make_topic()
    engine.commit({0: 0})
    first = engine.watch()
    _wait(lambda: 0 in engine.newest_sample())
    engine.produce(5)
    _wait(lambda: engine.newest_sample()[0].lag == 5)
    first.stop()
    before = engine.newest_sample()[0].lag_seconds
    assert before is not None
    engine.produce(1)

    engine.watch()

    _wait(lambda: engine.newest_sample()[0].lag == 6)
    line = engine.newest_sample()[0]
    assert line.lag_seconds is not None
    assert (line.lag_seconds > before, line.is_at_least) == (True, False)


@pytest.mark.stack
def test_lost_truncated_and_deleted_logs(engine: Engine) -> None:
    """Retention overtakes the group, then the topic goes, then it comes again, shorter."""
    from confluent_kafka import TopicPartition

    engine.make_topic()
    engine.produce(10)
    engine.commit({0: 4})
    engine.watch()
    cut = TopicPartition(engine.data, 0, 7)
    delete_records(engine.admin, cut)
    _wait(lambda: (line := engine.newest_sample().get(0)) is not None and line.lost == 3)
    assert engine.newest_sample()[0].lag == 3

    engine.delete_topic()
    _wait(lambda: engine.newest_sample()[0].lag is None)
    assert engine.newest_sample()[0].committed == 4

    engine.make_topic()
    engine.produce(2)
    _wait(lambda: engine.newest_sample()[0].is_beyond_end)
    assert (engine.newest_sample()[0].lag, engine.newest_sample()[0].lag_seconds) == (0, 0.0)


@pytest.mark.stack
def test_a_deleted_offset_is_told(engine: Engine) -> None:
    engine.make_topic()
    engine.commit({0: 0})
    engine.watch()
    _wait(lambda: 0 in engine.newest_sample())

    engine.commit({0: None})

    _wait(lambda: engine.newest_sample()[0].committed is None)


@pytest.mark.stack
def test_without_settings_nothing_runs(engine: Engine) -> None:
    """`lag_interval_ms = 0` and no mirror: no consumer, no thread."""
    watch = engine.watch(EngineConfig(lag_interval_ms=0))

    assert watch._thread is None


@pytest.mark.stack
def test_an_open_transaction_is_not_mirrored_until_it_is_committed(engine: Engine) -> None:
    """Never ahead: what the sink has written and not committed may still be aborted. What another
    producer commits meanwhile is mirrored in the other shard, and not past the open transaction."""
    from confluent_kafka import Producer

    engine.make_topic()
    engine.commit({0: 3})
    engine.watch()
    _wait(lambda: engine.mirrored() == {0: 3})
    engine.commit({0: 8}, publish=False)
    other = Producer({**engine.options, "transactional.id": f"{engine.prefix}-2", "log_level": 0})
    other.init_transactions()
    other.begin_transaction()
    names = {shard_of(name, SHARDS): name for name in (f"{engine.group}{i}" for i in range(9))}
    for shard, name in names.items():
        key = codec.encode([name, engine.data, 0])
        other.produce(f"{engine.prefix}.committed", _value(1), key, shard)
    other.commit_transaction(60)
    blocked = names.pop(shard_of(engine.group, SHARDS))
    (free,) = names.values()
    _wait(lambda: engine.mirrored(free) == {0: 1})

    assert (engine.mirrored(), engine.mirrored(blocked)) == ({0: 3}, {})
    engine.producer.commit_transaction(60)
    _wait(lambda: engine.mirrored() == {0: 8})
    _wait(lambda: engine.mirrored(blocked) == {0: 1})


@pytest.mark.stack
def test_an_aborted_transaction_is_never_mirrored(engine: Engine) -> None:
    engine.make_topic()
    engine.commit({0: 3})
    engine.watch()
    engine.commit({0: 8}, publish=False)
    engine.producer.abort_transaction(60)

    engine.commit({1: 1})

    _wait(lambda: 1 in engine.mirrored())
    assert engine.mirrored() == {0: 3, 1: 1}


@pytest.mark.stack
def test_a_restart_catches_up(engine: Engine) -> None:
    """The job was down, and a newer one with another setting went on without a mirror."""
    engine.make_topic()
    engine.commit({0: 3, 1: 4})
    first = engine.watch()
    _wait(lambda: engine.mirrored() == {0: 3, 1: 4})
    first.stop()
    engine.commit({0: 2})
    engine.commit({1: 7})
    engine.commit({1: 6})

    engine.watch()

    _wait(lambda: engine.mirrored() == {0: 2, 1: 6})


@pytest.mark.stack
def test_a_deleted_group_is_deleted_at_kafka_too(engine: Engine) -> None:
    engine.make_topic()
    engine.commit({0: 3})
    engine.watch()
    _wait(lambda: engine.mirrored() == {0: 3})

    engine.commit({0: None})

    _wait(lambda: engine.mirrored() == {})


@pytest.mark.stack
def test_a_kafka_group_with_live_members_is_left_alone_until_they_leave(engine: Engine) -> None:
    """Somebody moved to coordlib and forgot a consumer: its own commits must not be overwritten."""
    from confluent_kafka import Consumer

    engine.make_topic()
    engine.produce(9)
    consumer = Consumer(
        {**engine.options, "group.id": engine.group, "enable.auto.commit": False, "log_level": 0}
    )
    consumer.subscribe([engine.data])
    _wait(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
    engine.commit({0: 3})
    watch = engine.watch()
    _wait(lambda: engine.group in watch.failing)
    assert "has members" in watch.failing[engine.group].error
    assert engine.mirrored() == {}

    consumer.close()

    _wait(lambda: engine.mirrored() == {0: 3})
    _wait(lambda: watch.failing == {})


@pytest.mark.stack
def test_bounds_tell_gone_partitions_from_others(engine: Engine) -> None:
    engine.make_topic()
    engine.produce(3)

    assert engine.bounds(0, 1, 7) == {
        Place(engine.data, 0): Bounds(0, 3),
        Place(engine.data, 1): Bounds(0, 0),
        Place(engine.data, 7): None,
    }
    assert log_bounds(engine.admin, [Place("nowhere", 0)]) == {Place("nowhere", 0): None}
    assert log_bounds(engine.admin, []) == {}

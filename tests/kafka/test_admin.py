"""Questions for offsets, over an admin client that knows who leads before it asks."""

import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import (
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from coordlib.kafka.admin import EACH_MAX, KEPT_S, Admin
from tests.kit import own_time

if TYPE_CHECKING:
    from coordlib.local.broker import Broker

ROOT = Path(__file__).parents[2]
NEWEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def at(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


class Kafka:
    """What Kafka's own client is asked behind ours."""

    def __init__(self) -> None:
        #: The leaders of each topic's partitions.
        self.leaders: dict[str, list[int]] = {}
        #: Topics that Kafka answers with an error.
        self.errors: dict[str, int] = {}
        self.listed: list[str | None] = []
        self.asked: list[TopicPartition] = []
        self.is_down = False
        self.timeouts_s: list[float] = []
        #: The code that answers of offsets fail with; 0: they do not.
        self.fails = 0
        self.offset = 7

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self.listed.append(topic)
        self.timeouts_s.append(timeout)
        if self.is_down:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        names = [*self.leaders, *self.errors] if topic is None else [topic]
        topics = {name: self._topic(name) for name in names}
        return SimpleNamespace(topics=topics, brokers={1: object(), 2: object()})

    def _topic(self, name: str) -> Any:
        found = dict(enumerate(self.leaders.get(name, [])))
        partitions = {number: SimpleNamespace(leader=leader) for number, leader in found.items()}
        code = self.errors.get(name, 0 if found else KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(error=KafkaError(code) if code else None, partitions=partitions)

    def list_offsets(self, asked: Mapping[TopicPartition, Any], **_: Any) -> dict[Any, Any]:
        self.asked += asked
        answers: dict[TopicPartition, Future[Any]] = {place: Future() for place in asked}
        for answer in answers.values():
            if self.fails:
                answer.set_exception(KafkaException(KafkaError(self.fails)))
            else:
                answer.set_result(SimpleNamespace(offset=self.offset))
        return answers


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    kafka = Kafka()
    for name in ("list_topics", "list_offsets"):
        answer = getattr(kafka, name)
        monkeypatch.setattr(AdminClient, name, lambda _self, *a, _=answer, **k: _(*a, **k))
    return kafka


@pytest.fixture
def admin() -> Admin:
    return Admin({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})


def ends(admin: Admin, *places: TopicPartition) -> dict[TopicPartition, Any]:
    """The end of each, or the code of its error."""
    found: dict[TopicPartition, Any] = {}
    asked: dict[TopicPartition, OffsetSpec] = dict.fromkeys(places, NEWEST)
    for place, answer in admin.list_offsets(asked, request_timeout=5.0).items():
        problem = answer.exception(0)
        found[place] = problem.args[0].code() if problem else answer.result().offset
    return found


def test_a_partition_without_a_leader_is_not_asked_for(kafka: Kafka, admin: Admin) -> None:
    """Kafka's client would wait for the next metadata, and be killed by what comes meanwhile."""
    kafka.leaders = {"whole": [1, 2], "half": [1, -1, 3]}
    kafka.errors = {"secret": KafkaError.TOPIC_AUTHORIZATION_FAILED}
    places = [at("whole", 1), at("whole", 2), *(at("half", n) for n in range(3))]

    found = ends(admin, *places, at("gone"), at("secret"))

    assert found == {
        at("whole", 1): 7,
        at("whole", 2): KafkaError.UNKNOWN_TOPIC_OR_PART,
        at("half", 0): 7,
        at("half", 1): KafkaError.LEADER_NOT_AVAILABLE,
        at("half", 2): KafkaError.LEADER_NOT_AVAILABLE,  # its leader is none of the brokers
        at("gone"): KafkaError.UNKNOWN_TOPIC_OR_PART,
        at("secret"): KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
    assert kafka.asked == [at("whole", 1), at("half", 0)]


def test_leaders_are_asked_for_once_in_a_while(
    kafka: Kafka, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's client forgets them in the end; and a partition may move without a word."""
    kafka.leaders = {"t": [1]}
    now_s = time.monotonic()
    own_time.give(monkeypatch, "coordlib.kafka.admin", monotonic=lambda: now_s)
    for after_s in (0.0, KEPT_S - 1, KEPT_S + 1):
        now_s += after_s
        assert ends(admin, at("t")) == {at("t"): 7}

    assert kafka.listed == ["t", "t"]


def test_one_topic_that_is_asked_again_makes_no_other_one_vanish(
    kafka: Kafka, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sampler's topics grow old one after the other: "gone" would be told as the group's loss."""
    kafka.leaders = {"t": [1], "u": [1]}
    now_s = time.monotonic()
    own_time.give(monkeypatch, "coordlib.kafka.admin", monotonic=lambda: now_s)
    for topic in kafka.leaders:
        ends(admin, at(topic))
        now_s += 1
    now_s += KEPT_S - 1.5
    listing = kafka.list_topics

    def slow(*asked: Any, **timeout: Any) -> Any:
        nonlocal now_s
        now_s += 1  # the answer takes a second, and the other topic has grown old, too
        return listing(*asked, **timeout)

    monkeypatch.setattr(AdminClient, "list_topics", lambda _self, *a, **k: slow(*a, **k))

    assert ends(admin, at("t"), at("u")) == {at("t"): 7, at("u"): 7}


def test_an_open_question_does_not_keep_its_client_alive(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its own thread would have to close it, and wait for itself."""
    kafka.leaders = {"t": [1]}
    open_answers: list[Future[Any]] = [Future()]
    pending = dict(zip([at("t")], open_answers, strict=True))
    monkeypatch.setattr(AdminClient, "list_offsets", lambda _self, *_a, **_k: pending)
    admin = Admin({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    admin.list_offsets({at("t"): NEWEST}, request_timeout=5.0)
    alive = weakref.ref(admin)

    del admin

    assert alive() is None


def test_a_client_that_forgets_sooner_is_asked_sooner(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "metadata.max.age.ms": 6000})
    kafka.leaders = {"t": [1]}
    now_s = time.monotonic()
    own_time.give(monkeypatch, "coordlib.kafka.admin", monotonic=lambda: now_s)
    ends(admin, at("t"))
    now_s += 2.5
    ends(admin, at("t"))

    assert kafka.listed == ["t", "t"]


def test_what_was_missing_is_looked_for_each_time(kafka: Kafka, admin: Admin) -> None:
    """A topic is created, and then gets more partitions, while somebody follows it."""
    assert ends(admin, at("t", 1)) == {at("t", 1): KafkaError.UNKNOWN_TOPIC_OR_PART}
    kafka.leaders = {"t": [1]}
    assert ends(admin, at("t", 1)) == {at("t", 1): KafkaError.UNKNOWN_TOPIC_OR_PART}
    kafka.leaders = {"t": [1, 2]}
    assert ends(admin, at("t", 1)) == {at("t", 1): 7}

    assert kafka.listed == ["t", "t", "t"]


def test_after_a_failure_is_asked_who_leads(kafka: Kafka, admin: Admin) -> None:
    """Kafka's client forgets the leaders then: the topic was deleted, or another broker leads."""
    kafka.leaders, kafka.fails = {"t": [1]}, KafkaError.NOT_LEADER_FOR_PARTITION
    assert ends(admin, at("t")) == {at("t"): KafkaError.NOT_LEADER_FOR_PARTITION}
    kafka.leaders, kafka.fails = {}, 0
    assert ends(admin, at("t")) == {at("t"): KafkaError.UNKNOWN_TOPIC_OR_PART}

    assert len(kafka.asked) == 1


def test_a_leader_that_does_not_answer_in_time_is_an_error(kafka: Kafka, admin: Admin) -> None:
    """Kafka's client says -1001 then, and calls it a success. A member took it for the end of its
    answers: it had read all of them, over and over, and worked on while others got its
    partitions. And lag was 0."""
    kafka.leaders, kafka.offset = {"t": [1]}, OFFSET_INVALID
    assert ends(admin, at("t")) == {at("t"): KafkaError._TIMED_OUT}
    kafka.offset = 7
    assert ends(admin, at("t")) == {at("t"): 7}

    assert kafka.listed == ["t", "t"]


def test_that_a_time_has_no_record_is_an_answer(kafka: Kafka, admin: Admin) -> None:
    kafka.leaders, kafka.offset = {"t": [1]}, OFFSET_END
    assert ends(admin, at("t")) == {at("t"): OFFSET_END}


def test_many_topics_are_asked_for_in_one_request(kafka: Kafka, admin: Admin) -> None:
    kafka.leaders = {f"t{number}": [1] for number in range(EACH_MAX + 1)}

    found = ends(admin, *map(at, kafka.leaders))

    assert set(found.values()) == {7}
    assert kafka.listed == [None]


def test_who_leads_is_known_from_any_list_of_topics(kafka: Kafka, admin: Admin) -> None:
    kafka.leaders = {"t": [-1]}
    ends(admin, at("t"))
    kafka.leaders = {"t": [1]}
    admin.list_topics("t", timeout=1.0)

    assert ends(admin, at("t")) == {at("t"): 7}
    assert kafka.listed == ["t", "t"]


def test_without_brokers_each_answer_is_the_reason(kafka: Kafka, admin: Admin) -> None:
    """Whoever asks looks at the answers, now or later, and at nothing else."""
    kafka.is_down = True

    assert ends(admin, at("t"), at("u")) == dict.fromkeys((at("t"), at("u")), KafkaError._TRANSPORT)
    assert kafka.asked == []


def test_a_reader_waits_no_longer_for_metadata_than_it_can(kafka: Kafka, admin: Admin) -> None:
    """A broker that is connected and does not answer: nothing else is read meanwhile."""
    admin.list_offsets({at("t"): NEWEST}, 1.0, request_timeout=5.0)
    admin.list_offsets({at("t"): NEWEST}, request_timeout=5.0)

    assert kafka.timeouts_s == [1.0, 5.0]


def test_threads_that_share_a_client_do_not_kill_the_process(broker: "Broker") -> None:
    """The lag of a topic that is being created was asked for: the job ended by SIGSEGV."""
    topic = f"asked-{uuid4().hex[:8]}"
    run = subprocess.run(
        [sys.executable, "-m", "tests.kafka.asks_in_threads", broker.bootstrap_servers, topic],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert run.returncode == 0, run.stderr[-3_000:]


@pytest.mark.chaos
def test_no_reader_proves_anything_by_a_broker_that_hangs(tmp_path: Path) -> None:
    """The proof by which a fence stays open is that all was read up to an end that was asked for.
    The broker of a member's answers, or of a coordination partition, is suspended; others, to which
    heartbeats go, are not."""
    from coordlib.client.claims.reading import LogReader
    from coordlib.client.kit.process import boottime_ms
    from coordlib.client.kit.reading import ResponseReader
    from coordlib.local.broker import Broker
    from coordlib.local.jars import ensure_jars

    running = Broker(tmp_path / "broker", ensure_jars().broker)
    running.start()
    process = running.program
    assert process is not None
    try:
        options = {"bootstrap.servers": running.bootstrap_servers, "log_level": 0}
        admin = Admin(options)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        producer = Producer(options)
        producer.produce("t", b"x")
        assert producer.flush(60) == 0
        answers, claims = ResponseReader(options, "c", at("t", 0)), LogReader(options, "c", "t")
        answers.start(20)
        claims.add(0, 0)
        proved = read_for(answers, claims, 3)
        os.kill(process.pid, signal.SIGSTOP)
        hangs_ms = boottime_ms()

        assert proved
        assert max(read_for(answers, claims, 8), default=0) < hangs_ms
    finally:
        os.kill(process.pid, signal.SIGCONT)
        running.stop()


def read_for(answers: Any, claims: Any, seconds: float) -> list[int]:
    """When the ends were asked for that were reached meanwhile."""
    from coordlib.client.kit.process import boottime_ms

    proofs, until_s = [], time.monotonic() + seconds
    while time.monotonic() < until_s:
        now_ms = boottime_ms()
        answers.ask(now_ms, lambda: 0)
        claims.ask(now_ms)
        answers.read()
        claims.read()
        proofs += [answers.read_ms] if answers.is_at_end() else []
        proofs += [asked_ms for _, asked_ms in claims.ended()]
    return proofs

"""Ctrl-C in a call, and the program goes on: nothing is lost, and nobody is deaf.  # INV-141"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from coordlib.client.claims.options import ConsumerOptions
from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.kit.events import Polled
from coordlib.client.kit.events import TopicPartition as Place
from coordlib.client.transactions.committed_reader import CommittedReader
from coordlib.core.wire import api
from coordlib.core.wire.data_headers import Marker, Stamp, header_of
from coordlib.testing.fake_log import FakeLog
from tests.client import cooperative
from tests.client.claims import fake_claims
from tests.client.claims.fake_claims import FakeClaimsLog
from tests.client.claims.world import marshaler_of
from tests.client.interrupting import interrupt_everywhere
from tests.client.test_close_in_callbacks import requests_of
from tests.client.test_consumer import FakeReader, Program

Interrupted = Callable[[Callable[[], Any]], Any]
KINDS: dict[str, dict[str, Any]] = {
    "eager": {},
    "cooperative": {"partition.assignment.strategy": [cooperative.assignor()]},
    "assigned": {"group.protocol": "assigned"},
}


def alone(config: dict[str, Any]) -> Program:
    log = FakeLog({"t": 2})
    log.tell_topics()
    program = Program(log, "a", **config)
    for _ in range(4):
        program.settle()
    return program


def places(messages: list[Any]) -> list[tuple[int, int]]:
    return sorted((each.partition(), each.offset()) for each in messages)


ALL = [(partition, offset) for partition in (0, 1) for offset in range(3)]


@pytest.mark.parametrize(("kind", "count"), [("eager", 1), ("cooperative", 6), ("assigned", 6)])
def test_a_poll_of_a_group_loses_no_message(kind: str, count: int) -> None:
    def course(interrupted: Interrupted) -> None:
        a = alone(KINDS[kind])
        given = a.consumer.consume(1, 0.001)
        given += interrupted(lambda: a.consumer.consume(count, 0.001)) or []
        at = {each.partition: each.offset for each in a.consumer.position(of_t())}
        for partition in (0, 1):  # what `commit` would cover
            handed = [offset for where, offset in places(given) if where == partition]
            assert at[partition] == (max(handed) + 1 if handed else -1001)
        for _ in range(8):
            given += a.consumer.consume(count, 0.001)
        assert places(given) == ALL

    interrupt_everywhere(course, FakeReader, least=10)


def test_an_outcome_of_a_commit_that_is_interrupted_is_told_exactly_once() -> None:
    """Interrupted before `on_commit` began, it is called later; once it has begun, never again."""

    def course(interrupted: Interrupted) -> None:
        told: list[Any] = []
        a = alone({"on_commit": lambda error, some: told.append((error, len(some)))})
        a.consumer.consume(1, 0.001)
        for _ in range(2):
            a.consumer.commit(offsets=[TopicPartition("t", 0, 1)])
        a.log.pump()
        interrupted(a.consumer.commits.tell)
        for _ in range(2):
            a.consumer.poll(0)
        assert told == [(None, 1)] * 2

    interrupt_everywhere(course, FakeReader, least=10)


def test_an_outcome_of_a_commit_whose_callback_is_interrupted_is_not_told_again() -> None:
    told: list[int] = []

    def note(_: Any, some: list[Any]) -> None:
        told.append(len(some))
        raise SystemExit

    a = alone({"on_commit": note})
    a.consumer.consume(1, 0.001)
    a.consumer.commit(offsets=[TopicPartition("t", 0, 1)])
    a.log.pump()
    with pytest.raises(SystemExit):
        a.consumer.poll(0)
    a.consumer.poll(0)
    assert told == [1]


def of_t() -> list[TopicPartition]:
    return [TopicPartition("t", 0), TopicPartition("t", 1)]


def test_a_seek_that_is_interrupted_is_done_or_not_begun() -> None:
    def course(interrupted: Interrupted) -> None:
        a = alone({})
        a.consumer.consume(2, 0.001)
        interrupted(lambda: a.consumer.seek(TopicPartition("t", 0, 7)))
        (at,) = a.consumer.position([TopicPartition("t", 0)])
        read = [o for p, o in places(a.consumer.consume(9, 0.001)) if p == 0]
        assert (at.offset, read[0]) in {(7, 7), (1, 1)}

    interrupt_everywhere(course, FakeReader, least=2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["revoke", "commit", "close"])
def test_a_member_is_never_deaf(kind: str, what: str) -> None:
    """Two members: whatever is interrupted, all partitions have an owner in the end."""

    def course(interrupted: Interrupted) -> None:
        a = alone(KINDS[kind])
        log, b = a.log, Program(a.log, "b", **KINDS[kind])
        if what == "revoke":
            for _ in range(2):
                log.pump()
                b.poll()
        else:
            log.advance(10_000, lambda: (a.poll(), b.poll()))
        if what == "close":
            interrupted(lambda: a.consumer.close(0))
            a.consumer.close(0)
            log.pump()
            log.advance(3_000, b.poll)  # a session is longer
            assert len(b.consumer.assignment()) == 2
            return
        for _ in range(3):
            interrupted(a.consumer.commit if what == "commit" else lambda: a.consumer.poll(0))
        log.advance(40_000, lambda: (a.poll(), b.poll()))
        owned = [each.partition for one in (a, b) for each in one.consumer.assignment()]
        assert sorted(owned) == [0, 1]

    interrupt_everywhere(course, FakeReader, least=5, step=7)


@pytest.mark.parametrize("kind", KINDS)
def test_a_callback_that_is_interrupted_before_it_begins_is_called(kind: str) -> None:
    """It was marked as called two frames before, and on_revoke, which commits, never ran."""

    def course(interrupted: Interrupted) -> None:
        log, calls = FakeLog({"t": 2}), list[int]()
        log.tell_topics()
        a = Program(log, "a", **KINDS[kind])
        a.consumer.subscribe(["t"], on_assign=lambda *_: calls.append(1))
        while not a.consumer.member.has_calls:
            log.pump()
            a.consumer.member.note_poll()
        interrupted(lambda: a.consumer.poll(0))
        a.consumer.poll(0)
        assert calls == [1]

    interrupt_everywhere(course, FakeReader, least=10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_close_in_a_callback_that_is_interrupted_goes_on(kind: str) -> None:
    def course(interrupted: Interrupted) -> None:
        log = FakeLog({"t": 2})
        log.tell_topics()
        a = Program(log, "a", **KINDS[kind])
        calls: list[int] = []

        def on_assign(consumer: CoordinatedConsumer, _: Any) -> None:
            calls.append(1)
            interrupted(lambda: consumer.close(0))

        a.consumer.subscribe(["t"], on_assign=on_assign)
        while not calls:
            log.pump()
            a.consumer.poll(0)
        a.consumer.close(0)
        log.pump()
        assert isinstance(requests_of(log, "a")[-1], api.LeaveGroup)

    interrupt_everywhere(course, FakeReader, least=5)


# ---- claims -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7])
def test_a_poll_of_claims_loses_no_message_and_commits_over_none(count: int) -> None:
    def course(interrupted: Interrupted) -> None:
        log = FakeClaimsLog({"t": 1})
        marshaler = marshaler_of(log)
        consumer, given = marshaler.consumer(["t"], ConsumerOptions()), list[Any]()
        log.put("t", 0, 20)
        while not consumer.claims():
            log.advance(200, lambda: consumer.consume(0, 0))

        def work(messages: list[Any]) -> None:
            for each in messages:
                given.append(each)
                consumer.commit(each)

        work(interrupted(lambda: consumer.consume(count, 0)) or [])
        log.advance(1_000, lambda: work(consumer.consume(5, 0)))
        log.advance(6_000)
        assert [each.offset() for each in given] == list(range(20))
        assert log.world("t").slots["g", "t", 0].position == 20

    interrupt_everywhere(course, fake_claims.FakeReader, least=10)


def test_a_callback_of_claims_that_is_interrupted_before_it_begins_is_called() -> None:
    def course(interrupted: Interrupted) -> None:
        log, calls = FakeClaimsLog({"t": 1}), list[int]()
        marshaler = marshaler_of(log)
        consumer = marshaler.consumer(["t"], ConsumerOptions())
        consumer.on_claimed = lambda _: calls.append(1)
        while not consumer._member._callbacks.due:
            log.advance(200, lambda: consumer._member._give(Polled(log.now_ms)))
        interrupted(lambda: consumer.poll(0))
        consumer.poll(0)
        assert calls == [1]

    interrupt_everywhere(course, fake_claims.FakeReader, least=10)


def test_a_close_of_claims_that_is_interrupted_goes_on() -> None:
    def course(interrupted: Interrupted) -> None:
        log = FakeClaimsLog({"t": 1})
        transport = log.transport()
        marshaler = marshaler_of(log, transport)
        consumer = marshaler.consumer(["t"], ConsumerOptions())
        while not consumer.claims():
            log.advance(200, lambda: consumer.consume(0, 0))
        interrupted(lambda: consumer.close(timeout=0))
        consumer.close(timeout=0)
        log.advance(1_000)
        assert log.world("t").slots["g", "t", 0].is_released

    interrupt_everywhere(course, fake_claims.FakeReader, least=5)


def test_a_close_of_claims_in_a_callback_that_is_interrupted_goes_on() -> None:
    def course(interrupted: Interrupted) -> None:
        log = FakeClaimsLog({"t": 1})
        marshaler = marshaler_of(log)
        consumer, calls = marshaler.consumer(["t"], ConsumerOptions()), list[int]()

        def on_claimed(_: Any) -> None:
            calls.append(1)
            interrupted(lambda: consumer.close(timeout=0))

        consumer.on_claimed = on_claimed
        while not calls:
            log.advance(200, lambda: None if calls else consumer.consume(0, 0))
        consumer.close(timeout=0)
        log.advance(1_000)
        assert log.world("t").slots["g", "t", 0].is_released

    interrupt_everywhere(course, fake_claims.FakeReader, least=5)


# ---- committed records --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message(fake_claims.FakeMessage):
    body: Any
    header: Any

    def headers(self) -> Any:
        return [header_of(self.header)] if self.header is not None else []

    def leader_epoch(self) -> int:
        return 0

    def __len__(self) -> int:
        return 1


class Given:
    """What a reader reads, once each."""

    def __init__(self, messages: list[Message]) -> None:
        self._left = messages

    def assign(self, _: Any) -> None: ...

    def poll(self, _: float) -> Message | None:
        return self._left.pop(0) if self._left else None


LOGS: dict[str, list[Any]] = {
    "plain": [None] * 10,
    "numbered": [Stamp(i="inc", p=7, s=n) for n in range(10)],
    "transaction": [
        *(Stamp(i="inc", t="id", p=7, e=0, s=n) for n in range(9)),
        Marker(i="inc", t="id", p=7, e=0, r="commit"),
    ],
}


def read_log(kind: str) -> list[Message]:
    place = Place("out", 0)
    return [
        Message(place, offset, None if isinstance(header, Marker) else b"v", header)
        for offset, header in enumerate(LOGS[kind])
    ]


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("count", [1, 4])
def test_a_poll_of_committed_records_loses_none(kind: str, count: int) -> None:
    def course(interrupted: Interrupted) -> None:
        reader = CommittedReader({}, data_consumer=Given(read_log(kind)))
        reader.assign([TopicPartition("out", 0, 0)])
        given = interrupted(lambda: reader.consume(count, 0)) or []
        (at,) = reader.position([TopicPartition("out", 0)])
        assert at.offset == (len(given) or -1001)
        for _ in range(12):
            given += reader.consume(5, 0)
        assert [each.offset() for each in given] == list(range(9 if kind == "transaction" else 10))

    interrupt_everywhere(course, Given, least=6)

"""INV-130. A topic is deleted and made anew under consumers of both kinds of groups."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from coordlib.client.groups.reading import COMMITS_MS, LOOK_MS
from coordlib.core.wire.offsets import CommittedOffset
from coordlib.errors import CannotReach, ErrorCode, GroupError
from coordlib.testing.fake_log import FakeLog
from tests.client.test_consumer import Program, offsets_of

KINDS = [{}, {"group.protocol": "assigned"}]
kinds = pytest.mark.parametrize("kind", KINDS, ids=["classic", "assigned"])
BEGIN = [(0, OFFSET_BEGINNING), (1, OFFSET_BEGINNING)]


def reading(kind: dict[str, Any], log: FakeLog | None = None, client: str = "a") -> Program:
    """A consumer that has read two messages of the first partition and one of the other."""
    log = log or FakeLog({"t": 2})
    log.tell_topics()
    program = Program(log, client, **kind)
    for _ in range(3):
        program.settle()
    return program


def read_three(program: Program) -> None:
    assert [program.poll() for _ in range(3)] == [(0, 0), (1, 0), (0, 1)]


def commit(program: Program, **how: Any) -> None:
    """A commit whose answer is waited for."""
    log = program.log
    rows = program.consumer.rows_of(how.get("message"), how.get("offsets"))
    program.consumer.commits.commit_async(rows)
    log.pump()


def committed(program: Program) -> dict[int, tuple[int, Any]]:
    asked = program.consumer.member.committed_async()
    program.log.pump()
    return {row.partition: (row.offset, row.topic_id) for row in asked.result(0).offsets}


@kinds
def test_offsets_are_committed_under_the_id_of_the_topic(kind: dict[str, Any]) -> None:
    """The next owner compares it with that of the topic which it is about to read."""
    a = reading(kind)
    read_three(a)
    commit(a)

    assert committed(a) == {0: (2, a.log.id_of("t")), 1: (1, a.log.id_of("t"))}


@kinds
def test_a_group_that_was_stopped_begins_the_new_topic_at_its_beginning(
    kind: dict[str, Any],
) -> None:
    """strimzi-kafka-operator#9269, whether the coordinator has learned of it yet or not."""
    for is_told in (True, False):
        a = reading(kind)
        read_three(a)
        commit(a)
        a.transport.is_cut = True
        a.consumer.member.close(timeout_s=0)
        a.transport.is_cut = False
        a.log.advance(20_000)
        a.log.make_anew("t")
        if is_told:
            a.log.tell_topics()
        b = Program(a.log, "b", **kind)
        for _ in range(4):
            b.settle()

        assert b.reader.started == [BEGIN]


@kinds
def test_a_consumer_that_runs_begins_anew_without_a_commit(kind: dict[str, Any]) -> None:
    """It commits once an hour; librdkafka goes on at the old offset as if nothing had been."""
    a = reading(kind)
    read_three(a)
    a.log.make_anew("t")
    a.log.advance(LOOK_MS + 500, lambda: a.consumer.member.poll())
    a.poll()
    a.poll()

    assert a.reader.started[1:] == [BEGIN]
    assert offsets_of(a.ahead())[-1:] == [(1, 2)]


@kinds
def test_nothing_that_was_read_meanwhile_is_committed(kind: dict[str, Any]) -> None:
    """Its offsets would skip the first records of the new topic for the whole group."""
    errors: list[Any] = []
    a = reading(kind | {"on_commit": lambda error, some: errors.append((error, len(some)))})
    read_three(a)
    a.log.make_anew("t")
    a.log.now_ms += COMMITS_MS
    a.consumer.commit()
    a.log.pump()

    a.poll()
    ((error, count),) = errors
    assert (error.code, count) == (ErrorCode.UNKNOWN_TOPIC_ID, 2)
    assert committed(a) == {}
    assert a.reader.started[1:] == [BEGIN]
    assert a.consumer.position([TopicPartition("t", 0)])[0].offset < 2


@kinds
def test_a_commit_that_is_waited_for_raises(kind: dict[str, Any]) -> None:
    """Whoever has paid out money by these messages should know that they are not done."""
    a = reading(kind)
    read_three(a)
    a.log.make_anew("t")

    with pytest.raises(GroupError) as refused:
        a.consumer.commit(asynchronous=False)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID


@kinds
def test_messages_of_before_are_not_committed_afterwards(kind: dict[str, Any]) -> None:
    """They are worked on in threads, and done one by one, after the partition was begun anew."""
    a = reading(kind)
    late = a.consumer.poll(0)
    read = [a.consumer.poll(0) for _ in range(2)]
    a.log.make_anew("t")
    a.log.advance(LOOK_MS + 500, lambda: a.consumer.member.poll())
    a.poll()
    assert a.poll() == (0, 0)
    assert late is not None

    commit(a, message=read[-1])
    assert committed(a) == {}
    commit(a, message=late)
    assert committed(a) == {0: (1, a.log.id_of("t"))}


@kinds
def test_a_topic_that_is_gone_changes_nothing(kind: dict[str, Any]) -> None:
    """Absence alone deletes nothing: a broker that has just started lists less than there is."""
    a = reading(kind)
    read_three(a)
    ids = a.log.id_of("t")
    del a.log.topics["t"]
    commit(a)
    a.log.topics["t"] = 2

    assert committed(a) == {0: (2, ids), 1: (1, ids)}
    a.poll()
    assert len(a.reader.started) == 1


def test_a_broker_that_does_not_answer_holds_up_no_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The id is that with which the partition was begun: if it is old, nobody takes the offset."""
    a = reading({})
    read_three(a)

    def silent(_: Any) -> dict[str, str]:
        raise CannotReach("No broker answers.")

    monkeypatch.setattr(a.consumer._reading.ids, "_ask", silent)
    commit(a)
    assert committed(a) == {0: (2, a.log.id_of("t")), 1: (1, a.log.id_of("t"))}


def test_a_partition_is_not_begun_before_the_id_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """At an offset of which nobody knows what it is of."""
    log = FakeLog({"t": 2})
    answers: list[Callable[[], dict[str, str]]] = []
    a = Program(log, "a")
    ask = a.consumer._reading.ids._ask

    def by_chance(topics: Any) -> dict[str, str]:
        return answers.pop()() if answers else ask(topics)

    def silent() -> dict[str, str]:
        raise CannotReach("No broker answers.")

    monkeypatch.setattr(a.consumer._reading.ids, "_ask", by_chance)
    answers += [silent, silent]
    log.pump()
    a.consumer.member.poll()
    log.pump()
    a.consumer._reading.start(True)
    assert a.reader.started == []
    for _ in range(4):
        log.pump()
        a.consumer._reading.start(True)
    assert a.reader.started == [BEGIN]


def test_asynchronous_commits_in_a_row_ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that commits after each message must not wait for brokers each time."""
    a = reading({})
    asked: list[Any] = []
    ask = a.consumer._reading.ids._ask
    monkeypatch.setattr(
        a.consumer._reading.ids, "_ask", lambda topics: (asked.append(topics), ask(topics))[1]
    )
    a.log.now_ms += COMMITS_MS
    for _ in range(3):
        a.poll()
        a.consumer.commit()
    assert len(asked) == 1
    a.log.now_ms += COMMITS_MS
    a.consumer.commit()
    assert len(asked) == 2


@kinds
def test_an_offset_without_an_id_is_of_the_topic_of_now(kind: dict[str, Any]) -> None:
    """Committed by another program, or mirrored: begun there, and labelled from then on."""
    a = reading(kind)
    read_three(a)
    a.consumer.member.commit_async([CommittedOffset("t", 0, 2), CommittedOffset("t", 1, 1)])
    a.log.pump()
    assert {offset for offset, _ in committed(a).values()} == {1, 2}

    a.log.make_anew("t")
    a.log.tell_topics()
    assert {offset for offset, _ in committed(a).values()} == {1, 2}


class Course:
    """One program at a time, in a group whose topic is made anew now and then."""

    def __init__(self, seed: int, kind: dict[str, Any], met: Counter[str]) -> None:
        self.luck, self.kind, self.met = Random(seed), kind, met
        self.program = reading(kind)
        #: Ids that a listing has shown and another one replaced.
        self.old: set[str] = set()
        self.shown = self.log.id_of("t")
        #: Begins of partitions since the topic is the one that it is, the first one counts.
        self.begun: dict[int, int] = {}
        self.seen = 1

    @property
    def log(self) -> FakeLog:
        return self.program.log

    def note_begins(self) -> None:
        for begins in self.program.reader.started[self.seen :]:
            for partition, offset in begins:
                self.begun.setdefault(partition, offset)
        self.seen = len(self.program.reader.started)

    def happen(self, number: int) -> None:
        dice = self.luck.random()
        if dice < 0.15:
            self.met["made anew"] += 1
            self.note_begins()
            self.log.make_anew("t")
            self.begun = {}
        elif dice < 0.35:
            self.log.tell_topics()
            if self.shown != self.log.id_of("t"):
                self.old.add(self.shown)
                self.shown = self.log.id_of("t")
        elif dice < 0.45:
            self.restart(f"p{number}")
        elif dice < 0.75:
            self.log.now_ms += COMMITS_MS
            commit(self.program)
        else:
            self.log.advance(LOOK_MS, self.program.consumer.member.poll)
        for _ in range(3):
            self.program.poll()
        self.note_begins()
        self.check()

    def restart(self, client: str) -> None:
        self.program.consumer.member.close(timeout_s=0)
        self.log.advance(20_000)
        self.program, self.seen = Program(self.log, client, **self.kind), 0
        for _ in range(4):
            self.program.settle()

    def check(self) -> None:
        for offset, topic_id in committed(self.program).values():
            self.met["offsets are served"] += 1
            assert topic_id not in self.old, f"{offset} is of a topic of before"


@kinds
def test_whatever_happens_no_offset_of_a_topic_of_before_is_read_from(kind: dict[str, Any]) -> None:
    """INV-130: no record of the new one is skipped but for what is fetched until it is noticed."""
    met: Counter[str] = Counter()
    for seed in range(20):
        course = Course(seed, kind, met)
        for number in range(40):
            course.happen(number)
        course.log.advance(2 * LOOK_MS, course.program.consumer.member.poll)
        for _ in range(3):
            course.program.poll()
        course.note_begins()
        wrong = {p: at for p, at in course.begun.items() if at != OFFSET_BEGINNING}
        is_anew = course.log.id_of("t") != course.log.id_of("t")[:8] + f"{0:014d}"
        assert not is_anew or (course.begun and not wrong), f"seed {seed}: {course.begun}"

    assert min(met["made anew"], met["offsets are served"]) > 50, met

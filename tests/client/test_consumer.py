"""The consumer over the real core in memory; what it reads comes from a list."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)

from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.groups.settings import read_settings
from coordlib.client.kit.fence import MemberFenced
from coordlib.core.wire import api
from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.testing.fake_log import FakeLog
from tests.client import cooperative

CONFIG: dict[str, Any] = {
    "group.id": "orders",
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 8_000,
    "max.poll.interval.ms": 12_000,
    "heartbeat.interval.ms": 2_000,
    "enable.auto.commit": False,
}


class FakeMessage:
    def __init__(self, partition: int, offset: int, error: KafkaError | None = None) -> None:
        self._at, self._error = (partition, offset), error

    def topic(self) -> str | None:
        return "t" if self._error is None else None  # as librdkafka's own events

    def partition(self) -> int:
        return self._at[0]

    def offset(self) -> int:
        return self._at[1]

    def leader_epoch(self) -> int | None:
        return None

    def error(self) -> KafkaError | None:
        return self._error


class FakeReader:
    """Partitions have messages without end, unless they are told where they begin and end; it
    fetches ahead, as librdkafka does, and goes on at the begin where retention was faster."""

    def __init__(self) -> None:
        self.started: list[list[tuple[int, int]]] = []
        self.ahead: list[FakeMessage] = []
        #: Partition -> its first offset, and the one after its last.
        self.begins: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.paused: set[int] = set()
        self.is_closed = False
        self.before_poll: Callable[[], None] = lambda: None
        #: Told for how long it may wait.
        self.waits: Callable[[float], None] = lambda _: None

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.started.append([(each.partition, each.offset) for each in partitions])
        for ahead in range(3):
            for each in partitions:
                number = each.partition
                at = max(each.offset, self.begins.get(number, 0)) + ahead
                if at < self.ends.get(number, at + 1):
                    self.ahead.append(FakeMessage(number, at))

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        gone = {each.partition for each in partitions}
        self.ahead = [each for each in self.ahead if each.partition() not in gone]

    def unassign(self) -> None:
        self.ahead = []

    def seek(self, partition: TopicPartition) -> None:
        self.incremental_unassign([partition])
        self.incremental_assign([partition])

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {each.partition for each in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {each.partition for each in partitions}

    def poll(self, timeout: float) -> FakeMessage | None:
        self.before_poll()
        self.waits(timeout)
        ready = [each for each in self.ahead if each.partition() not in self.paused]
        if ready:
            self.ahead.remove(ready[0])
        return ready[0] if ready else None

    def close(self) -> None:
        self.is_closed = True


class Program:
    def __init__(self, log: FakeLog, client: str, **config: Any) -> None:
        self.log, self.transport, self.reader = log, log.transport(), FakeReader()
        self.told: list[tuple[str, list[int]]] = []
        self.consumer = CoordinatedConsumer(
            {**CONFIG, "client.id": client, **config},
            transport=self.transport,
            data_consumer=self.reader,
        )
        self.consumer.subscribe(
            ["t"], on_assign=self._note("assign"), on_revoke=self._note("revoke")
        )

    def _note(self, what: str) -> Callable[[Any, list[TopicPartition]], None]:
        def noted(consumer: CoordinatedConsumer, partitions: list[TopicPartition]) -> None:
            self.told.append((what, [each.partition for each in partitions]))
            if what == "revoke" and self.consumer.member.may_work():
                consumer.commit()

        return noted

    def poll(self) -> tuple[int, int] | None:
        message = self.consumer.poll(0)
        self.log.pump()
        return None if message is None else (message.partition() or 0, message.offset() or 0)

    def ahead(self) -> list[FakeMessage]:
        """What was fetched, and not handed out."""
        self.consumer._reading.positions()
        return [*(each.message for each in self.consumer._reading.out._ready), *self.reader.ahead]

    def settle(self) -> None:
        """Poll until it reads, or holds nothing."""
        reads = len(self.reader.started)
        for _ in range(10):
            self.log.pump()
            if len(self.reader.started) == reads:
                self.consumer.member.poll()
                self.log.pump()
                self.consumer._reading.start(self.consumer.member.may_work())


def cooperative_group(log: FakeLog, *clients: str) -> list[Program]:
    strategy = {"partition.assignment.strategy": [cooperative.assignor()]}
    programs = [Program(log, client, **strategy) for client in clients]
    for _ in range(4):
        for program in programs:
            program.settle()
    return programs


@pytest.fixture
def log() -> FakeLog:
    return FakeLog({"t": 2})


def test_reads_what_it_is_given_from_the_beginning_without_a_commit(log: FakeLog) -> None:
    program = Program(log, "a")
    program.settle()

    assert program.reader.started == [[(0, OFFSET_BEGINNING), (1, OFFSET_BEGINNING)]]
    assert [program.poll() for _ in range(3)] == [(0, 0), (1, 0), (0, 1)]
    assert program.told == [("assign", [0, 1])]


def test_the_next_owner_starts_where_the_former_one_committed(log: FakeLog) -> None:
    """Everything that poll returned counts as done at the commit inside on_revoke."""
    a = Program(log, "a")
    a.settle()
    assert [a.poll() for _ in range(3)] == [(0, 0), (1, 0), (0, 1)]

    b = Program(log, "b")
    log.pump()
    assert a.poll() is None
    assert a.told[-1] == ("revoke", [0, 1])
    a.settle()
    b.settle()

    assert a.reader.started[-1] == [(0, 2)]
    assert b.reader.started == [[(1, 1)]]
    assert a.poll() == (0, 2)


def test_nothing_fetched_before_a_revoke_is_handed_out_after_it(log: FakeLog) -> None:
    a = Program(log, "a")
    a.settle()
    a.poll()
    assert a.ahead()

    Program(log, "b")
    log.pump()

    assert a.poll() is None
    assert a.told[-1] == ("revoke", [0, 1])
    assert a.ahead() == []


def test_a_message_that_arrives_after_the_fence_fell_is_dropped(log: FakeLog) -> None:
    """The machine slept inside the data consumer's poll; others own the partition by now."""
    a = Program(log, "a")
    a.settle()
    a.transport.is_cut = True

    def sleep() -> None:
        log.now_ms += 60_000

    a.reader.before_poll = sleep

    assert a.consumer.poll(0) is None
    assert a.consumer.assignment() == []
    a.reader.before_poll = lambda: None
    assert a.consumer.poll(0) is None
    assert a.told[-1] == ("revoke", [0, 1])  # No on_lost was given: confluent-kafka's fallback.
    with pytest.raises(MemberFenced):
        a.consumer.commit(offsets=[TopicPartition("t", 0, 1)])


def test_commit_committed_and_position(log: FakeLog) -> None:
    done: list[tuple[Any, list[int]]] = []
    note = lambda error, some: done.append((error, [each.offset for each in some]))  # noqa: E731
    a = Program(log, "a", on_commit=note)
    a.settle()
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert [each.offset for each in a.consumer.position(partitions)] == [OFFSET_INVALID] * 2
    a.poll()

    assert a.consumer.commit() is None
    log.pump()
    a.poll()

    assert done == [(None, [1])]
    assert [each.offset for each in a.consumer.position(partitions)] == [1, 1]
    asked = a.consumer.member.committed_async()
    log.pump()
    assert [(row.partition, row.offset) for row in asked.result(0).offsets] == [(0, 1)]


def test_a_synchronous_commit_without_a_coordinator_says_so(log: FakeLog) -> None:
    a = Program(log, "a")
    a.settle()
    a.poll()
    log.job_is_up = False

    with pytest.raises(CannotReach, match="did not answer in time"):
        a.consumer.commit(asynchronous=False, timeout_s=0)


def test_who_was_overtaken_by_retention_commits_behind_what_is_left(log: FakeLog) -> None:
    """The library goes on at the log's begin, without a word; a log that ends there has nothing
    more, and what was committed stands."""
    program = Program(log, "a")
    program.settle()
    assert [program.poll() for _ in range(3)] == [(0, 0), (1, 0), (0, 1)]
    program.consumer.close()
    heir = Program(log, "b")
    heir.reader.begins, heir.reader.ends = {0: 10}, {0: 11, 1: 0}
    heir.settle()

    assert [heir.poll() for _ in range(3)] == [(0, 10), None, None]
    heir.consumer.close()
    last = Program(log, "c")
    last.settle()

    assert last.reader.started == [[(0, 11), (1, 1)]]


def test_errors_of_the_data_consumer_surface_as_messages(log: FakeLog) -> None:
    a = Program(log, "a")
    a.settle()
    a.reader.ahead = [FakeMessage(0, 0, KafkaError(KafkaError._ALL_BROKERS_DOWN))]

    message = a.consumer.poll(0)

    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._ALL_BROKERS_DOWN


def test_leaving_the_with_block_revokes_and_leaves(log: FakeLog) -> None:
    a = Program(log, "a")
    a.settle()
    b = Program(log, "b")
    for _ in range(3):
        a.settle()
        b.settle()

    a.transport.is_cut = True  # close must not wait for what cannot come
    a.consumer.member.close(timeout_s=0)
    a.consumer.close()
    a.transport.is_cut = False
    log.pump()
    b.settle()
    b.settle()

    assert a.told[-1][0] == "revoke"
    assert a.reader.is_closed
    assert len(b.consumer.assignment()) == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("group.protocol", "consumer"),
        ("auto.offset.reset", "sometimes"),
        ("partition.assignment.strategy", "mine"),
        ("heartbeat.interval.ms", 4_000),
        ("heartbeat.interval.ms", "often"),
        ("max.poll.interval.ms", None),
        ("topic.metadata.refresh.interval.ms", ""),
        ("group.id", ""),
    ],
)
def test_a_key_whose_promise_cannot_be_kept_is_refused(key: str, value: Any) -> None:
    with pytest.raises(SetupError):
        read_settings({**CONFIG, key: value})


def test_what_is_not_ours_goes_to_every_client() -> None:
    settings = read_settings({**CONFIG, "bootstrap.servers": "b:1", "security.protocol": "SSL"})

    assert settings.common == {"bootstrap.servers": "b:1", "security.protocol": "SSL"}
    assert settings.timing.rebalance_timeout_ms == 12_000


def test_what_stays_is_read_on_without_a_gap_and_what_goes_is_never_handed_out_again() -> None:
    """KIP-429 as a consumer sees it: the rebalance is no pause for partitions that stay."""
    log = FakeLog({"t": 2})
    (a,) = cooperative_group(log, "a")
    assert [a.poll() for _ in range(3)] == [(0, 0), (1, 0), (0, 1)]

    b = Program(log, "b", **{"partition.assignment.strategy": [cooperative.assignor()]})
    log.pump()
    assert [each.partition() for each in a.ahead()] == [1, 0, 1]
    assert a.poll() == (0, 2)
    assert a.told == [("assign", [0, 1]), ("revoke", [1])]
    for _ in range(3):
        b.settle()
        a.settle()

    assert a.reader.started == [[(0, OFFSET_BEGINNING), (1, OFFSET_BEGINNING)]]
    assert b.reader.started == [[(1, 1)]]
    assert [some for what, some in b.told if some] == [[1]]


def test_start_positions_that_come_after_a_revoke_start_nothing() -> None:
    """The answer to the fetch is slower than the next rebalance."""
    log = FakeLog({"t": 2})
    a = Program(log, "a", **{"partition.assignment.strategy": [cooperative.assignor()]})
    log.pump()
    a.consumer.member.poll()  # assigned; the positions are asked for
    Program(log, "b", **{"partition.assignment.strategy": [cooperative.assignor()]})
    log.pump()
    a.consumer.member.poll()
    log.pump()
    a.consumer._reading.start(may_work=True)

    assert a.reader.started == [[(0, OFFSET_BEGINNING)]]


def test_a_message_that_came_while_the_fence_was_closed_is_not_missing_afterwards(
    log: FakeLog,
) -> None:
    """The machine slept inside the data consumer's poll, and nobody had taken over: rule 11 gives
    the partitions back before the user's thread could be told of a loss."""
    a = Program(log, "a")
    a.settle()
    assert a.poll() == (0, 0)

    def sleep() -> None:
        a.reader.before_poll = lambda: None
        log.job_is_up = False
        log.now_ms += 9_000

    a.reader.before_poll = sleep
    assert a.consumer.poll(0) is None
    log.job_is_up = True
    for _ in range(5):
        log.now_ms += 100
        a.transport.tell_time()
        log.pump()

    assert a.consumer.member.may_work()
    assert a.poll() == (1, 0)


def test_seek_before_and_after_the_start_and_what_commit_then_says(log: FakeLog) -> None:
    a = Program(log, "a")
    log.pump()
    a.consumer.member.poll()
    a.consumer.incremental_assign([TopicPartition("t", 0, 7), TopicPartition("t", 1)])
    a.settle()
    assert a.reader.started == [[(0, 7), (1, OFFSET_BEGINNING)]]

    a.consumer.seek(TopicPartition("t", 1, 5))
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert [each.offset for each in a.consumer.position(partitions)] == [7, 5]
    with pytest.raises(CoordError):
        a.consumer.seek(TopicPartition("t", 9, 5))


def test_a_paused_partition_is_not_handed_out(log: FakeLog) -> None:
    a = Program(log, "a")
    a.settle()
    a.consumer.pause([TopicPartition("t", 0)])
    assert [a.poll() for _ in range(2)] == [(1, 0), (1, 1)]

    a.consumer.resume([TopicPartition("t", 0)])
    assert {a.poll(), a.poll()} == {(1, 2), (0, 0)}


def test_a_paused_partition_that_comes_back_is_read(log: FakeLog) -> None:
    """librdkafka keeps it paused over the assignment: nothing of it would be read, nor an error."""
    a = Program(log, "a")
    a.settle()
    a.consumer.pause([TopicPartition("t", 0)])
    a.consumer.unassign()
    a.consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    a.settle()

    assert {a.poll(), a.poll()} == {(0, 0), (1, 0)}


def test_unsubscribe_revokes_in_poll(log: FakeLog) -> None:
    a = Program(log, "a")
    a.settle()
    a.consumer.unsubscribe()
    assert a.poll() is None

    assert a.told[-1] == ("revoke", [0, 1])
    assert a.ahead() == []


def test_keys_of_static_members_racks_and_metadata() -> None:
    more = {
        "group.instance.id": "till-7",
        "client.rack": "r1",
        "topic.metadata.refresh.interval.ms": 9_000,
    }
    settings = read_settings({**CONFIG, **more})

    assert (settings.instance, settings.rack) == ("till-7", "r1")
    assert settings.timing.metadata_refresh_ms == 9_000
    assert "group.instance.id" not in settings.common


def all_of_t(offset: int = OFFSET_INVALID) -> list[TopicPartition]:
    return [TopicPartition("t", 0, offset), TopicPartition("t", 1, offset)]


def offsets_of(messages: Sequence[Any]) -> list[tuple[int, int]]:
    return [(each.partition(), each.offset()) for each in messages]


@pytest.mark.parametrize(
    ("wanted", "start"), [(7, 7), (OFFSET_BEGINNING, OFFSET_BEGINNING), (OFFSET_STORED, 4)]
)
def test_assign_in_on_assign_says_where_to_start(log: FakeLog, wanted: int, start: int) -> None:
    """As every confluent-kafka program does it that keeps its offsets elsewhere."""
    a = Program(log, "a")
    a.settle()
    a.consumer.commit(offsets=all_of_t(4))

    def start_there(consumer: CoordinatedConsumer, given: list[TopicPartition]) -> None:
        consumer.assign([TopicPartition(each.topic, each.partition, wanted) for each in given])

    a.consumer.unsubscribe()
    a.poll()
    a.consumer.subscribe(["t"], on_assign=start_there)
    a.settle()

    assert a.reader.started[-1] == [(0, start), (1, start)]


def test_assign_reads_nothing_that_the_group_has_not_given(log: FakeLog) -> None:
    """A program that divides partitions by itself: nobody would keep others off them."""
    a = Program(log, "a")
    with pytest.raises(CoordError, match="Subscribe, and set start offsets in on_assign"):
        a.consumer.assign([TopicPartition("t", 0)])
    a.settle()
    assert a.poll() == (0, 0)

    with pytest.raises(CoordError, match="t-9"):
        a.consumer.assign([TopicPartition("t", 1, 5), TopicPartition("t", 9, 5)])

    assert [each.offset for each in a.consumer.position(all_of_t())] == [1, OFFSET_INVALID]
    assert a.poll() == (1, 0)


def test_what_is_unassigned_is_read_again_when_it_is_assigned_anew(log: FakeLog) -> None:
    """From where the group stopped; of what was handed out and not committed nothing is known."""
    a = Program(log, "a")
    a.settle()
    assert [a.poll() for _ in range(3)] == [(0, 0), (1, 0), (0, 1)]
    a.consumer.commit(offsets=[TopicPartition("t", 0, 1)])

    a.consumer.unassign()

    assert [a.poll(), a.poll()] == [None, None]
    assert [each.offset for each in a.consumer.position(all_of_t())] == [OFFSET_INVALID] * 2
    a.consumer.assign(all_of_t())
    a.settle()
    assert a.reader.started[-1] == [(0, 1), (1, OFFSET_BEGINNING)]
    assert a.poll() == (0, 1)


def test_unassign_in_on_revoke_takes_nothing_from_what_a_cooperative_member_keeps() -> None:
    """The callback of an eager program, run with cooperative-sticky: what stays is not told anew,
    so nobody would read it for as long as this member has it."""
    log = FakeLog({"t": 2})
    (a,) = cooperative_group(log, "a")
    a.consumer.subscribe(["t"], on_revoke=lambda consumer, _: consumer.unassign())
    b = Program(log, "b", **{"partition.assignment.strategy": [cooperative.assignor()]})
    for _ in range(3):
        a.settle()
        b.settle()

    assert offsets_of(a.consumer.consume(9, 0)) == [(0, 0), (0, 1), (0, 2)]
    a.consumer.unassign()
    assert a.ahead() == []


def test_requests_that_the_producer_gave_up_are_written_again(log: FakeLog) -> None:
    """A JoinGroup, a SyncGroup and heartbeats: nobody knows whether they are in the log."""
    a = Program(log, "a")
    for _ in range(3):
        a.transport.fail_next = 1
        log.advance(5_000, a.settle)
        assert a.transport.fail_next == 0

    assert a.poll() == (0, 0)
    written = [type(each) for batch in log.batches for each in batch]
    assert written.count(api.JoinGroup) == 1
    assert api.Heartbeat in written


def test_consume_returns_a_list_that_the_next_commit_covers(log: FakeLog) -> None:
    a = Program(log, "a")
    a.settle()

    assert offsets_of(a.consumer.consume()) == [(0, 0)]
    assert offsets_of(a.consumer.consume(3)) == [(1, 0), (0, 1), (1, 1)]
    assert [each.offset for each in a.consumer.position(all_of_t())] == [2, 2]
    assert offsets_of(a.consumer.consume(9, timeout=0)) == [(0, 2), (1, 2)]
    assert a.consumer.consume(9, timeout=0) == []
    for wrong in (-1, 1_000_001):
        with pytest.raises(ValueError, match="num_messages"):
            a.consumer.consume(wrong)


def test_what_is_revoked_while_a_list_is_gathered_is_neither_in_it_nor_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commit in on_revoke must not cover what the user has not seen yet: its next owner would
    begin behind it."""
    monkeypatch.setattr("coordlib.client.groups.reading.AHEAD_MAX", 1)
    log = FakeLog({"t": 2})
    (a,) = cooperative_group(log, "a")
    assert a.poll() == (0, 0)
    trouble = FakeMessage(0, 0, KafkaError(KafkaError._ALL_BROKERS_DOWN))
    a.reader.ahead = [FakeMessage(1, 0), trouble, FakeMessage(0, 1), FakeMessage(1, 1)]
    joined: list[Program] = []

    def one_joins_and_then_more_comes() -> None:
        if not a.reader.ahead and joined:
            a.reader.ahead = [FakeMessage(0, 2), FakeMessage(0, 3), FakeMessage(0, 4)]
        elif not a.reader.ahead:
            more = {"partition.assignment.strategy": [cooperative.assignor()]}
            joined.append(Program(log, "b", **more))
            log.pump()

    a.reader.before_poll = one_joins_and_then_more_comes
    messages = a.consumer.consume(5)

    assert a.told[-1] == ("revoke", [1])
    assert messages[0].error() is not None
    assert offsets_of(messages[1:]) == [(0, 1), (0, 2), (0, 3), (0, 4)]
    asked = a.consumer.member.committed_async()
    log.pump()
    assert [(row.partition, row.offset) for row in asked.result(0).offsets] == [(0, 1)]


def test_what_consume_had_when_it_failed_comes_with_the_next_call(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Program(log, "a")
    a.settle()

    def fail() -> bool:
        raise CannotReach("the transport has failed")

    with monkeypatch.context() as failing:
        a.reader.before_poll = lambda: (
            None if a.reader.ahead else failing.setattr(a.consumer.member, "note_poll", fail)
        )
        with pytest.raises(CannotReach):
            a.consumer.consume(9)

    a.reader.before_poll = lambda: None
    assert a.poll() == (0, 0)
    assert offsets_of(a.consumer.consume(9, 0)) == [(1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]


def test_who_is_fenced_with_a_message_at_hand_waits_and_does_not_spin(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is away for an hour: every fenced consumer would take a core for as long."""
    a = Program(log, "a")
    a.settle()
    log.job_is_up = False

    def sleep() -> None:
        log.now_ms += 9_000

    a.reader.before_poll = sleep
    assert a.consumer.poll(0) is None
    a.reader.before_poll = lambda: None
    monkeypatch.setattr(type(a.consumer.member), "has_calls", False)  # not told of it yet
    monkeypatch.setattr(a.consumer.member, "run_calls", lambda: False)
    looks: list[int] = []
    look = a.consumer.member.note_poll
    monkeypatch.setattr(a.consumer.member, "note_poll", lambda: looks.append(1) or look())

    assert a.consumer.poll(0.1) is None

    assert 2 <= len(looks) <= 10


def test_a_member_id_is_known_when_it_has_joined(log: FakeLog) -> None:
    log.job_is_up = False
    a = Program(log, "a")
    log.pump()
    assert a.consumer.memberid() is None

    log.job_is_up = True
    a.settle()

    assert a.consumer.memberid() == a.consumer.member.member_id != ""


def test_questions_about_the_cluster_are_confluent_kafkas_own(log: FakeLog) -> None:
    """Asked of librdkafka's mock cluster, so that the real Consumer takes what is handed on."""
    real = Consumer(
        {"test.mock.num.brokers": 1, "bootstrap.servers": "none", "group.id": "g", "log_level": 0}
    )
    broker = next(iter(real.list_topics(timeout=30).brokers.values()))
    producer = Producer({"bootstrap.servers": f"{broker.host}:{broker.port}", "log_level": 0})
    producer.produce("t", b"one", partition=0)
    assert producer.flush(60) == 0
    with CoordinatedConsumer(CONFIG, transport=log.transport(), data_consumer=real) as a:
        assert "t" in a.list_topics("t", 30).topics
        assert a.list_topics(timeout=30).brokers.keys() == {broker.id}
        assert a.cluster_id(30) == real.cluster_id(30)
        assert a.get_watermark_offsets(TopicPartition("t", 0), 30) == (0, 1)
        (found,) = a.offsets_for_times([TopicPartition("t", 0, 2**62)], 30)
        assert (found.topic, found.partition, found.error) == ("t", 0, None)


def test_a_second_thread_that_polls_is_refused(log: FakeLog) -> None:
    """It got IndexError, or half of the messages."""
    a = Program(log, "a")
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        go_on.wait()

    a.settle()
    a.reader.before_poll = wait
    other = threading.Thread(target=a.consumer.poll, args=(0,))
    other.start()
    inside.wait()

    with pytest.raises(CoordError, match="Another thread is polling"):
        a.consumer.poll(0)
    go_on.set()
    other.join()
    a.consumer.poll(0)


def test_a_thread_may_commit_while_another_one_polls(log: FakeLog) -> None:
    """Workers commit what they have done. The positions changed while `commit` read them."""
    a = Program(log, "a")
    a.settle()
    a.settle()
    positions = a.consumer._reading._positions = _Growing({TopicPartition("t", 0): (1, -1)})  # type: ignore[dict-item]

    a.consumer.commit()
    a.consumer.position([TopicPartition("t", 0)])
    assert len(positions) == 1


class _Growing(dict[Any, Any]):
    """Positions to which another thread adds one while they are read one by one."""

    def items(self) -> Any:
        for each in super().items():
            yield each
            self[TopicPartition("t", len(self))] = (1, -1)

"""Auto-commit of the consumer, over the real core in memory, with the defaults.  # INV-158"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from coordlib.client import TopicPartition as Place
from coordlib.client import exactly_once, send_offsets_to_transaction
from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.groups.settings import read_settings
from coordlib.client.kit import events as sg
from coordlib.client.kit.offsets import Unit
from coordlib.client.transactions.producer import CoordinatedProducer
from coordlib.core.wire import api
from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.testing.fake_log import FakeLog
from tests.client.test_consumer import CONFIG as WITHOUT
from tests.client.test_consumer import FakeMessage, FakeReader, Program

INTERVAL_MS = 5_000
CONFIG = {key: value for key, value in WITHOUT.items() if key != "enable.auto.commit"}
PROTOCOLS = ("classic", "assigned")
STORING: dict[str, Any] = {"enable.auto.offset.store": False}


class Member:
    """A program with a consumer that commits nothing by itself."""

    def __init__(self, log: FakeLog, client: str = "a", **config: Any) -> None:
        self.log, self.transport, self.reader = log, log.transport(), FakeReader()
        self.outcomes: list[tuple[Any, dict[int, int]]] = []
        self.on_revoke: Callable[[CoordinatedConsumer, list[TopicPartition]], None] = lambda *_: (
            None
        )
        self.consumer = CoordinatedConsumer(
            {**CONFIG, "client.id": client, "on_commit": self._noted, **config},
            transport=self.transport,
            data_consumer=self.reader,
        )
        self.consumer.subscribe(["t"], on_revoke=lambda *given: self.on_revoke(*given))
        self.settle = Program.settle.__get__(self)

    def _noted(self, error: Any, partitions: list[TopicPartition]) -> None:
        self.outcomes.append((error, {each.partition: each.offset for each in partitions}))

    def poll(self, count: int = 1) -> list[tuple[int, int]]:
        """What some calls of `poll` have returned."""
        found = [self.consumer.poll(0) for _ in range(count)]
        self.log.pump()
        return [(each.partition() or 0, each.offset() or 0) for each in found if each is not None]


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog({"t": 2})
    log.tell_topics()
    return log


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"group.protocol": request.param}


def settled(log: FakeLog, client: str = "a", **config: Any) -> Member:
    member = Member(log, client, **config)
    for _ in range(4):
        member.settle()
    return member


def later(log: FakeLog, member: Member, ms: int = INTERVAL_MS) -> None:
    """The log goes on; the member lives and does not poll its consumer."""
    log.advance(ms, lambda: member.consumer.member.poll())


def committed(log: FakeLog) -> dict[int, int]:
    """What the group has committed."""
    looker = CoordinatedConsumer(
        {**CONFIG, "client.id": "looker"}, transport=log.transport(), data_consumer=FakeReader()
    )
    asked = looker.member.committed_async([Place("t", 0), Place("t", 1)])
    log.pump()
    found = {row.partition: row.offset for row in asked.result(0).offsets if row.offset >= 0}
    looker.close(0)
    return found


def written(log: FakeLog) -> list[dict[int, int]]:
    """The offsets of each commit in the log, those of Releases too."""
    return [
        {row.partition: row.offset for row in each.offsets}
        for batch in log.batches
        for each in batch
        if isinstance(each, api.OffsetCommit | api.Release) and each.offsets
    ]


# ---- rules 1 and 2: stored by the next call, committed in the interval ---------------------------


def test_by_default_processed_messages_are_committed_every_five_seconds(
    log: FakeLog, protocol: dict[str, Any]
) -> None:
    a = settled(log, **protocol)
    assert a.poll(3) == [(0, 0), (1, 0), (0, 1)]
    later(log, a, INTERVAL_MS - 1_000)
    assert a.poll() == [(1, 1)]
    assert written(log) == []
    later(log, a, 1_000)

    a.poll()

    assert written(log) == [{0: 2, 1: 2}]
    a.poll()
    assert a.outcomes == [(None, {0: 2, 1: 2})]


def test_what_poll_has_just_returned_is_never_committed(log: FakeLog) -> None:
    """A message is processed when the next call begins: a crash before that must not lose it."""
    a = settled(log)
    assert a.poll() == [(0, 0)]
    later(log, a)
    assert a.poll() == [(1, 0)]

    assert written(log) == [{0: 1}]


def test_a_look_for_messages_is_no_call_of_the_program(log: FakeLog) -> None:
    """`AsyncConsumer` looks at any time, also while a message is being processed."""
    a = settled(log)
    assert a.poll(2) == [(0, 0), (1, 0)]

    def work() -> None:
        assert a.poll() == [(0, 1)]
        a.reader.ahead = []
        a.consumer.has(99)
        raise ZeroDivisionError

    failing(a, work)

    assert committed(log) == {0: 1, 1: 1}


def test_a_list_is_stored_when_the_next_call_begins(log: FakeLog) -> None:
    a = settled(log)
    assert len(a.consumer.consume(3, 0)) == 3
    later(log, a)
    assert written(log) == []

    assert len(a.consumer.consume(1, 0)) == 1
    log.pump()

    assert written(log) == [{0: 2, 1: 1}]


def test_a_poll_that_waits_commits_too(log: FakeLog) -> None:
    """`poll()` without a timeout waits for ever on a topic without new messages."""
    a = settled(log)
    a.reader.ends, a.reader.ahead = {0: 1, 1: 0}, a.reader.ahead[:1]
    assert a.poll() == [(0, 0)]

    def pass_time(_: float) -> None:
        log.now_ms += 1_000
        log.pump()

    a.reader.waits = pass_time
    thread = threading.Thread(target=lambda: a.consumer.poll(0.5))
    thread.start()
    thread.join(60)

    assert written(log)[:1] == [{0: 1}]


def test_nothing_new_is_not_committed_again(log: FakeLog) -> None:
    a = settled(log)
    a.reader.ahead = a.reader.ahead[:2]
    assert a.poll(3) == [(0, 0), (1, 0)]
    for _ in range(4):
        later(log, a)
        a.poll()

    assert len(written(log)) == 1


def test_a_failure_goes_to_on_commit_and_the_log_and_is_tried_again(
    log: FakeLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = settled(log)
    a.poll(2)
    member, commits = a.consumer.member, []

    def fail(rows: Any) -> Any:
        commits.append(rows)
        failed: Future[Any] = Future()
        failed.set_result(sg.Answer(0, error=CannotReach("no answer")))
        return failed

    monkeypatch.setattr(member, "commit_async", fail)
    later(log, a)
    with caplog.at_level(logging.WARNING, "coordlib.client"):
        assert len(a.poll(2)) == 2

    assert [type(error) for error, _ in a.outcomes] == [CannotReach]
    assert "no answer" in caplog.text
    monkeypatch.undo()
    later(log, a)
    a.poll()
    assert len(commits) == 1
    assert written(log) == [{0: 2, 1: 2}]


def test_while_a_commit_is_not_answered_there_is_no_other_one(log: FakeLog) -> None:
    """A job that is away for minutes finds one commit of each member, not one of each interval."""
    a = settled(log)
    a.poll(2)
    log.job_is_up = False
    for _ in range(3):
        log.now_ms += INTERVAL_MS
        a.poll()
    log.job_is_up = True
    for _ in range(3):
        log.pump()
        a.poll()

    assert len(written(log)) == 1


def test_a_commit_that_the_log_has_lost_is_made_again(log: FakeLog) -> None:
    """Nobody sends an asynchronous commit again, so its answer may never come."""
    a = settled(log)
    a.reader.ahead = a.reader.ahead[:2]
    a.poll(2)
    later(log, a)
    member, lost = a.consumer.member, []
    commit = member.commit_async
    member.commit_async = lambda rows: lost.append(rows) or Future()  # type: ignore
    a.poll()
    member.commit_async = commit  # type: ignore[method-assign]
    for _ in range(13):
        later(log, a)
        a.poll()

    assert len(lost) == 1
    assert written(log) == [{0: 1, 1: 1}]
    a.poll()
    assert [(type(error), at) for error, at in a.outcomes] == [
        (CannotReach, {0: 1, 1: 1}),
        (type(None), {0: 1, 1: 1}),
    ]
    # From then on it commits in each interval, as before.
    for offset in (2, 3):
        a.reader.ahead = [FakeMessage(0, offset - 1)]
        while (0, offset - 1) not in a.poll():
            pass
        later(log, a)
        a.poll()
        assert written(log)[-1] == {0: offset}


def test_an_answer_that_was_not_reported_yet_does_not_cost_an_interval(log: FakeLog) -> None:
    """A commit of the program before it, without an answer, keeps `on_commit` waiting."""
    a = settled(log)
    a.poll(2)
    member = a.consumer.member
    commit = member.commit_async
    member.commit_async = lambda rows: Future()  # type: ignore
    a.consumer.commit(offsets=[TopicPartition("t", 1, 0)])
    member.commit_async = commit  # type: ignore[method-assign]
    for _ in range(2):
        later(log, a)
        a.poll()

    assert written(log) == [{0: 1, 1: 1}, {0: 2}]


def test_an_answer_counts_when_the_next_interval_is_over(log: FakeLog) -> None:
    """The call that finds it may be the first one since."""
    a = settled(log)
    for _ in range(3):
        a.poll()
        later(log, a)

    assert written(log) == [{0: 1}, {1: 1}]


def test_who_is_fenced_commits_nothing_and_goes_on_afterwards(log: FakeLog) -> None:
    a = settled(log)
    a.poll(3)
    a.transport.is_cut = True
    log.now_ms += 60_000

    assert a.poll(2) == []
    a.transport.is_cut = False
    assert written(log) == []
    assert committed(log) == {}


@pytest.mark.parametrize("interval", [0, "0"])
def test_an_interval_of_zero_commits_only_what_is_let_go(log: FakeLog, interval: Any) -> None:
    a = settled(log, **{"auto.commit.interval.ms": interval})
    a.poll(2)
    later(log, a, 20_000)
    a.poll()
    assert written(log) == []

    a.consumer.close(0)
    log.pump()

    assert committed(log) == {0: 2, 1: 1}


def test_without_auto_commit_nothing_is_committed(log: FakeLog, protocol: dict[str, Any]) -> None:
    a = settled(log, **protocol, **{"enable.auto.commit": False})
    a.poll(3)
    later(log, a, 20_000)
    a.poll()
    a.consumer.close(0)
    log.pump()

    assert written(log) == []


# ---- rule 3: revoked, lost, sought ---------------------------------------------------------------


def handed_over(log: FakeLog, a: Member, **config: Any) -> Member:
    b = Member(log, "b", **config)
    for _ in range(4):
        b.settle()
        a.settle()
    return b


def test_what_is_revoked_is_committed_after_the_callback(
    log: FakeLog, protocol: dict[str, Any]
) -> None:
    """The callback may still commit something else: what it has finished."""
    a = settled(log, **protocol)
    assert a.poll(3) == [(0, 0), (1, 0), (0, 1)]
    told: list[int] = []

    def on_revoke(_: Any, partitions: list[TopicPartition]) -> None:
        log.pump()
        told.append(len(written(log)))

    a.on_revoke = on_revoke
    b = handed_over(log, a, **protocol)

    assert told == [0]
    ((number, offset),) = [pair for some in b.reader.started for pair in some]
    assert offset == {0: 2, 1: 1}[number]


def test_in_a_server_assigned_group_the_release_carries_it(log: FakeLog) -> None:
    config = {"group.protocol": "assigned"}
    a = settled(log, **config)
    a.poll(3)
    handed_over(log, a, **config)

    (release,) = [e for batch in log.batches for e in batch if isinstance(e, api.Release)]
    assert [(row.partition, row.offset) for row in release.offsets] in ([(0, 2)], [(1, 1)])
    assert len(written(log)) == 1


def test_partitions_that_the_callback_has_committed_are_its_own(
    log: FakeLog, protocol: dict[str, Any]
) -> None:
    """It has left out what is unfinished."""
    a = settled(log, **protocol)
    a.poll(3)

    def on_revoke(consumer: CoordinatedConsumer, partitions: list[TopicPartition]) -> None:
        given = [TopicPartition("t", each.partition, 0) for each in partitions]
        consumer.commit(offsets=given)

    a.on_revoke = on_revoke
    b = handed_over(log, a, **protocol)

    ((_, offset),) = [pair for some in b.reader.started for pair in some]
    assert offset == 0


def test_a_callback_that_unassigns_loses_nothing(log: FakeLog, protocol: dict[str, Any]) -> None:
    """As programs for confluent-kafka do."""
    a = settled(log, **protocol)
    a.poll(3)
    a.on_revoke = lambda consumer, _: consumer.unassign()
    b = handed_over(log, a, **protocol)

    ((number, offset),) = [pair for some in b.reader.started for pair in some]
    assert offset == {0: 2, 1: 1}[number]


def test_a_callback_that_raises_does_not_take_back_what_was_processed(
    log: FakeLog, protocol: dict[str, Any]
) -> None:
    a = settled(log, **protocol)
    a.poll(3)

    def on_revoke(*_: Any) -> None:
        raise ValueError("mine")

    a.on_revoke = on_revoke
    b = Member(log, "b", **protocol)
    for _ in range(3):
        b.settle()
    log.pump()
    with pytest.raises(ValueError, match="mine"):
        a.consumer.consume(9, 5.0)
    a.on_revoke = lambda *_: None
    for _ in range(4):
        a.settle()
        b.settle()

    ((number, offset),) = [pair for some in b.reader.started for pair in some]
    assert offset == {0: 2, 1: 1}[number]


def test_what_is_lost_is_dropped(log: FakeLog, protocol: dict[str, Any]) -> None:
    a = settled(log, **protocol)
    a.poll(3)
    a.transport.is_cut = True
    log.now_ms += 60_000
    a.poll(2)
    a.transport.is_cut = False
    for _ in range(6):
        log.advance(1_000)
        a.settle()
    a.reader.ahead = []
    later(log, a)
    a.poll()

    assert written(log) == []


def test_what_was_read_before_a_seek_is_dropped(log: FakeLog) -> None:
    a = settled(log)
    a.poll(3)
    a.consumer.seek(TopicPartition("t", 0, 7))
    later(log, a)
    a.reader.ahead = []
    a.poll()

    assert written(log) == [{1: 1}]


def test_after_a_seek_back_the_lower_offset_counts(log: FakeLog) -> None:
    a = settled(log)
    a.poll(4)
    a.consumer.commit(asynchronous=True)
    log.pump()
    a.consumer.poll(0)
    assert committed(log) == {0: 2, 1: 2}
    a.consumer.seek(TopicPartition("t", 0, 0))
    a.reader.ahead = [each for each in a.reader.ahead if each.partition() == 0]
    while (0, 0) not in a.poll():
        pass
    later(log, a)
    a.reader.ahead = []
    a.consumer.poll(0)
    log.pump()

    assert committed(log)[0] < 2


# ---- rule 4: the end -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "unsubscribe"])
def test_the_end_commits_the_last_message_too(
    log: FakeLog, protocol: dict[str, Any], how: str
) -> None:
    a = settled(log, **protocol)
    a.poll(3)

    getattr(a.consumer, how)(*([0] if how == "close" else []))
    log.pump()
    if how == "unsubscribe":
        a.consumer.poll(0)
        log.pump()

    assert committed(log) == {0: 2, 1: 1}


def test_close_waits_until_the_commit_is_answered(log: FakeLog, protocol: dict[str, Any]) -> None:
    a = settled(log, **protocol)
    a.poll(3)
    stop = threading.Event()

    def pump() -> None:
        while not stop.wait(0.01):
            log.pump()

    pumping = threading.Thread(target=pump)
    pumping.start()
    a.consumer.close(60.0)
    stop.set()
    pumping.join()

    assert a.outcomes == [(None, {0: 2, 1: 1})]


def failing(a: Member, work: Callable[[], None]) -> None:
    """The `with` block ends by an exception; `close` does not wait for the log here."""
    a.consumer.close = partial(a.consumer.close, 0)  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError), a.consumer:
        work()
    a.log.pump()


def test_a_block_that_ends_by_an_exception_does_not_store_the_last_message(
    log: FakeLog, protocol: dict[str, Any]
) -> None:
    """Java's consumer commits it, and the message that could not be processed is lost."""
    a = settled(log, **protocol)
    assert a.poll(2) == [(0, 0), (1, 0)]

    def work(message: Any) -> None:
        raise ZeroDivisionError

    failing(a, lambda: work(a.poll()))

    assert committed(log) == {0: 1, 1: 1}


def test_a_block_that_ends_by_an_exception_does_not_store_the_last_list(log: FakeLog) -> None:
    a = settled(log)
    assert len(a.consumer.consume(2, 0)) == 2

    def work() -> None:
        assert len(a.consumer.consume(2, 0)) == 2
        a.consumer.position([TopicPartition("t", 0)])  # notes what was handed out
        raise ZeroDivisionError

    failing(a, work)

    assert committed(log) == {0: 1, 1: 1}


# ---- rule 5: stored by hand ----------------------------------------------------------------------


def test_with_storing_by_hand_only_that_is_committed(
    log: FakeLog, protocol: dict[str, Any]
) -> None:
    a = settled(log, **protocol, **STORING)
    messages = a.consumer.consume(4, 0)
    a.consumer.store_offsets(messages[0])
    a.consumer.store_offsets(offsets=[TopicPartition("t", 1, 1)])
    later(log, a)
    a.poll()

    assert written(log) == [{0: 1, 1: 1}]


def test_commit_means_what_is_stored_by_hand(log: FakeLog) -> None:
    a = settled(log, **STORING, **{"enable.auto.commit": False})
    a.poll(3)
    a.consumer.commit()
    a.consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])
    a.consumer.commit()
    log.pump()

    assert written(log) == [{0: 1}]


def test_what_is_stored_in_the_callback_goes_with_it(
    log: FakeLog, protocol: dict[str, Any]
) -> None:
    a = settled(log, **protocol, **STORING)
    a.poll(3)

    def on_revoke(consumer: CoordinatedConsumer, partitions: list[TopicPartition]) -> None:
        given = [TopicPartition("t", each.partition, 1) for each in partitions]
        consumer.store_offsets(offsets=given)

    a.on_revoke = on_revoke
    b = handed_over(log, a, **protocol)

    ((_, offset),) = [pair for some in b.reader.started for pair in some]
    assert offset == 1


def test_a_stored_offset_below_a_committed_one_is_dropped(log: FakeLog) -> None:
    a = settled(log, **STORING)
    a.poll(4)
    a.consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])
    a.consumer.commit(offsets=[TopicPartition("t", 0, 2)])
    log.pump()
    a.poll()
    a.consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])
    later(log, a)
    a.poll()
    a.consumer.close(0)
    log.pump()

    assert committed(log) == {0: 2}


@pytest.mark.parametrize("stored_first", [False, True])
def test_a_late_store_does_not_move_the_group_back(log: FakeLog, stored_first: bool) -> None:
    """The partition went away, others committed, and it came back."""
    a = settled(log, **STORING)
    a.poll(4)
    b = handed_over(log, a, **STORING)
    (number,) = {each.partition for each in b.consumer.assignment()}
    b.consumer.commit(offsets=[TopicPartition("t", number, 9)], asynchronous=True)
    log.pump()
    b.consumer.close(0)
    late = [TopicPartition("t", number, 1)]
    has_stored = False
    for _ in range(6):
        log.advance(1_000)
        a.settle()
        if stored_first and not has_stored:
            has_stored = Place("t", number) in a.consumer._reading.partitions()
            if has_stored:
                a.consumer.store_offsets(offsets=late)
    if not stored_first:
        a.consumer.store_offsets(offsets=late)
    later(log, a)
    a.poll()
    a.consumer.close(0)
    log.pump()

    assert committed(log)[number] == 9


def test_an_explicit_commit_names_what_an_unanswered_one_names(log: FakeLog) -> None:
    """It returns when these are committed, not before."""
    a = settled(log, **STORING)
    a.poll(2)
    a.consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])
    log.job_is_up = False
    log.now_ms += INTERVAL_MS
    a.poll()

    with pytest.raises(CannotReach):
        a.consumer.commit(asynchronous=False, timeout_s=0.05)
    log.job_is_up = True
    for _ in range(3):
        later(log, a)
        a.poll()
    assert committed(log) == {0: 1}
    assert a.consumer.commit(asynchronous=False, timeout_s=0.05) == []


def test_storing_by_hand_is_refused_where_it_is_automatic(log: FakeLog) -> None:
    """confluent-kafka refuses it, too."""
    a = settled(log)
    a.poll()

    with pytest.raises(CoordError, match=r"enable\.auto\.offset\.store") as refused:
        a.consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])
    assert "false" in refused.value.hint


def test_what_cannot_be_stored_is_refused(log: FakeLog) -> None:
    a = settled(log, **STORING)
    with pytest.raises(ValueError, match="message or offsets"):
        a.consumer.store_offsets()
    with pytest.raises(CoordError, match="message or offsets"):
        a.consumer.store_offsets(*a.consumer.consume(1, 0), [TopicPartition("t", 0, 1)])
    with pytest.raises(CoordError, match="not have"):
        a.consumer.store_offsets(offsets=[TopicPartition("t", 5, 1)])
    a.consumer.close(0)
    with pytest.raises(CoordError, match="closed"):
        a.consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])


# ---- rule 6: transactions ------------------------------------------------------------------------


@pytest.mark.parametrize("config", [{}, {"enable.auto.commit": True}, STORING], ids=str)
def test_a_transaction_needs_a_consumer_without_auto_commit(
    log: FakeLog, config: dict[str, Any]
) -> None:
    """Offsets committed beside the transaction would count although it is aborted."""
    a = settled(log, **config)
    producer = CoordinatedProducer(
        {"transactional.id": "x", "coord.decided.by": "coordinator"},
        transport=log.transport(),
        open_producer=lambda *_: object(),
    )
    position = [TopicPartition("t", 0, 1)]
    metadata = a.consumer.consumer_group_metadata()
    for call in (
        lambda: exactly_once(a.consumer, producer),
        lambda: a.consumer.begin_unit(Unit()),
        lambda: send_offsets_to_transaction(producer, a.consumer, position),
        lambda: producer.send_offsets_to_transaction(position, metadata),
    ):
        with pytest.raises(SetupError, match=r"enable\.auto\.commit") as refused:
            call()
        assert refused.value.hint == "Set enable.auto.commit to false: the transaction commits."


# ---- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("no", [False, "false", "False", 0, "0", "f"])
def test_it_is_turned_off_as_in_librdkafka(no: Any) -> None:
    off = read_settings({**CONFIG, "enable.auto.commit": no, "enable.auto.offset.store": no})

    assert (off.auto_commit_ms, off.stores) == (None, False)
    assert not {"enable.auto.commit", "enable.auto.offset.store"} & off.common.keys()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enable.auto.commit", "sometimes"),
        ("enable.auto.offset.store", None),
        ("auto.commit.interval.ms", "often"),
        ("auto.commit.interval.ms", -1),
        ("auto.commit.interval.ms", 86_400_001),
    ],
)
def test_a_wrong_value_is_refused(key: str, value: Any) -> None:
    with pytest.raises(SetupError, match=key.replace(".", r"\.")):
        read_settings({**CONFIG, key: value})
    if value is not None:
        with pytest.raises(KafkaException):
            Consumer({"group.id": "g", key: value})

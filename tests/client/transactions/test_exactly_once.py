"""Copiers over the real core in memory; their transactions of Kafka are played."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from coordlib.client.transactions import by_kafka
from coordlib.client.transactions.data_cluster import TRANSACTION_TIMEOUT_MS, transaction_error
from coordlib.client.transactions.machine import State, TransactionError
from coordlib.client.transactions.producer import CoordinatedProducer
from coordlib.client.units import exactly_once, send_offsets_to_transaction
from coordlib.core.wire import api, codec
from coordlib.errors import CoordError, NotAllowed, SetupError
from coordlib.kafka.transactions import DOUBTFUL_AFTER_MS, RETRY_BACKOFF_MS
from coordlib.testing.fake_log import FakeLog
from tests.client.test_consumer import Program
from tests.client.transactions.data import PATIENCE_S
from tests.kit import own_time

GROUP = "orders"
FENCED = KafkaException(KafkaError(KafkaError._FENCED, "newer", True, False, False))
ABORTABLE = KafkaException(KafkaError(KafkaError._STATE, "abort", False, False, True))
WRONG_STATE = KafkaException(KafkaError(KafkaError._STATE, "wrong state", False, False, False))
TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT, "late", False, True, False))


class FakeTransactions:
    """confluent-kafka's transactional producer. Records of `out` are kept once committed."""

    def __init__(self, log: FakeLog, config: Mapping[str, Any], on_error: Callable[..., None]):
        self.log, self.config, self.on_error = log, config, on_error
        self.committed: list[tuple[int, int]] = []
        self._records: list[tuple[int, int]] = []
        self._asked: list[int] = []
        self.epochs = 0
        self._is_open = False
        #: What the next call of this name raises.
        self.fails: dict[str, KafkaException] = {}
        #: Whether the program ends when it would commit: nobody has decided then.
        self.loses_commit = False
        #: Gets what a record's delivery would be told to, in place of the delivery.
        self.produce_out: Callable[[Any], None] | None = None

    def _maybe_fail(self, name: str) -> None:
        if name in self.fails:
            raise self.fails.pop(name)

    def init_transactions(self, _timeout: float) -> None:
        self._maybe_fail("init")
        self.epochs += 1

    def _require_open(self, is_open: bool) -> None:
        """As librdkafka, for which a call that has ended and was interrupted then has ended."""
        if self._is_open is not is_open:
            raise WRONG_STATE

    def begin_transaction(self) -> None:
        self._maybe_fail("begin")
        self._require_open(False)
        self._is_open = True
        self._records, self._asked = [], []

    def produce(self, topic: str, *args: Any, on_delivery: Any = None, **_: Any) -> None:
        self._maybe_fail("produce")
        if topic == "coord.requests":
            value, _key, partition = args
            request = codec.decode_request(value)
            assert isinstance(request, api.PendingCommit)
            self._asked.append(self.log.append(partition, request))
        else:
            self._records.append(args[0])
        if self.produce_out is not None:
            self.produce_out(on_delivery)
        elif on_delivery is not None:
            on_delivery(None, None)

    def poll(self, _timeout: float) -> int:
        self.log.pump()
        return 0

    def flush(self, _timeout: float) -> int:
        self._maybe_fail("flush")
        return 0

    def commit_transaction(self, _timeout: float) -> None:
        self._maybe_fail("commit")
        self._require_open(True)
        self._is_open = False
        self.committed += self._records
        self.log.tell_ended(committed=self._asked)
        self.log.pump()

    def abort_transaction(self, _timeout: float) -> None:
        self._maybe_fail("abort")
        self._require_open(True)
        self._is_open = False
        self.log.tell_ended(aborted=self._asked)
        self.log.pump()


class Copier:
    """A program that copies t to out, unit by unit."""

    def __init__(self, log: FakeLog, name: str, **config: Any) -> None:
        self.log, self.program = log, Program(log, name)
        #: confluent-kafka's, in the order in which they were opened.
        self.opened: list[FakeTransactions] = []
        self._config = {"transactional.id": name, **config}
        self.renew()

    def renew(self) -> None:
        """A new producer for the same consumer, as after a fatal error."""

        def open_producer(
            given: Mapping[str, Any], on_error: Callable[..., None]
        ) -> FakeTransactions:
            self.opened.append(FakeTransactions(self.log, given, on_error))
            return self.opened[-1]

        self.producer = CoordinatedProducer(self._config, open_producer=open_producer)
        self.producer.init_transactions()

    @property
    def consumer(self) -> Any:
        return self.program.consumer

    @property
    def out(self) -> list[tuple[int, int]]:
        return [record for each in self.opened for record in each.committed]

    def unit(
        self,
        count: int = 2,
        during: Callable[[], None] = lambda: None,
        timeout_s: float = PATIENCE_S,
    ) -> None:
        with exactly_once(self.consumer, self.producer, timeout_s):
            for message in self.consumer.consume(count, 0):
                self.producer.produce("out", (message.partition(), message.offset()))
            during()

    def committed(self, partition: int = 0) -> int:
        self.log.pump()
        future = self.consumer.member.committed_async()
        self.log.pump()
        (row,) = [r for r in future.result(0).offsets if r.partition == partition]
        return int(row.offset)


def copier(log: FakeLog, name: str = "a", **config: Any) -> Copier:
    made = Copier(log, name, **config)
    made.program.settle()
    return made


def asked_of(log: FakeLog) -> list[api.PendingCommit]:
    return [r for each in log.batches for r in each if isinstance(r, api.PendingCommit)]


def test_what_is_read_counts_with_what_is_written() -> None:
    one = copier(FakeLog({"t": 1}))

    one.unit()
    one.unit(1)

    assert one.out == [(0, 0), (0, 1), (0, 2)]
    assert one.committed() == 3


def test_a_unit_that_has_read_of_a_topic_made_anew_is_aborted() -> None:
    """INV-130: its offsets would skip what the new topic has before them."""
    log = FakeLog({"t": 1})
    one = copier(log)
    one.unit(1)
    assert {row.topic_id for each in asked_of(log) for row in each.offsets} == {log.id_of("t")}

    with pytest.raises(TransactionError) as told:
        one.unit(2, lambda: log.make_anew("t"))
    assert told.value.txn_requires_abort()
    assert one.out == [(0, 0)]
    assert len(asked_of(log)) == 1

    one.unit(2)
    assert one.out == [(0, 0), (0, 0), (0, 1)]
    assert one.program.reader.started[-1] == [(0, OFFSET_BEGINNING)]
    assert asked_of(log)[-1].offsets[0].topic_id == log.id_of("t")


def test_an_exception_aborts_and_sets_the_consumer_back() -> None:
    """Kafka does not: a program that goes on would skip what it has aborted."""
    one = copier(FakeLog({"t": 1}))

    def fails() -> None:
        raise ValueError("in the user's own work")

    with pytest.raises(ValueError, match="own work"):
        one.unit(2, fails)
    assert one.out == []
    one.unit(2)

    assert one.out == [(0, 0), (0, 1)]
    assert one.committed() == 2


def test_who_is_fenced_before_the_commit_reads_again_with_a_new_producer() -> None:
    """Nothing was written, so nothing counts: the same consumer must not skip it."""
    one = copier(FakeLog({"t": 1}))
    with pytest.raises(TransactionError) as told:
        one.unit(2, lambda: one.opened[-1].fails.update(produce=FENCED))
    assert told.value.fatal()
    one.renew()

    one.unit(2)

    assert one.out == [(0, 0), (0, 1)]
    assert one.committed() == 2


def test_a_commit_that_is_refused_before_it_is_sent_sets_the_consumer_back() -> None:
    """A record was not delivered, for good, while the group's answer was waited for."""
    one = copier(FakeLog({"t": 1}))
    fake = one.opened[-1]

    def loses_a_record() -> None:
        poll = fake.poll

        def polls(timeout: float) -> int:
            fake.poll = poll  # type: ignore[method-assign]
            told[0](FENCED.args[0], None)
            return poll(timeout)

        told: list[Any] = []
        fake.produce_out = told.append
        one.producer.produce("out", (0, 9))
        fake.poll = polls  # type: ignore[method-assign]

    with pytest.raises(TransactionError) as fatal:
        one.unit(2, loses_a_record)
    assert fatal.value.fatal()
    one.renew()
    one.unit(2)

    assert one.out == [(0, 0), (0, 1)]


@pytest.mark.parametrize(("decision", "next_read"), [("committed", 3), ("aborted", 1)])
@pytest.mark.parametrize(
    "fails", [{"commit": FENCED}, {"commit": ABORTABLE, "abort": FENCED}], ids=["commit", "abort"]
)
def test_after_a_commit_of_unknown_outcome_the_group_says_where_to_go_on(
    fails: dict[str, KafkaException], decision: str, next_read: int
) -> None:
    """Fenced while EndTxn is under way: it may have counted. Nobody reads until it is known."""
    log = FakeLog({"t": 1})
    one = copier(log)
    one.unit(1)
    lost = one.opened[-1]
    with pytest.raises(TransactionError) as told:
        one.unit(2, lambda: lost.fails.update(fails))
    assert told.value.fatal()
    one.renew()

    log.advance(2_000, one.program.poll)
    one.unit(2)
    assert one.out == [(0, 0)], "read before it was decided"
    log.tell_ended(**{decision: lost._asked})
    started = len(one.program.reader.started)
    log.advance(3_000, one.consumer.member.poll)
    one.unit(1)

    assert one.program.reader.started[started:] == [[(0, next_read)]]
    assert one.out == [(0, 0), (0, next_read)]
    assert one.committed() == next_read + 1


def test_a_first_unit_of_unknown_outcome_is_read_again_where_it_began() -> None:
    """The group has no offset, and `auto.offset.reset` could skip what the unit has read."""
    log = FakeLog({"t": 1})
    one = copier(log)
    lost = one.opened[-1]
    with pytest.raises(TransactionError):
        one.unit(2, lambda: lost.fails.update(commit=FENCED))
    log.tell_ended(aborted=lost._asked)
    log.advance(3_000, one.consumer.member.poll)
    one.consumer.consume(0, 0)

    assert one.program.reader.started[-1] == [(0, 0)]


def test_a_commit_that_ran_out_of_time_may_be_called_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumer waits meanwhile, and goes on behind what has counted."""
    log = FakeLog({"t": 1})
    one = copier(log)

    def late(_timeout: float) -> None:
        raise TIMED_OUT

    with monkeypatch.context() as patched:
        patched.setattr(one.opened[-1], "commit_transaction", late)
        with pytest.raises(TransactionError) as told:
            one.unit(2, timeout_s=0.05)
    assert told.value.retriable()
    assert one.consumer.consume(1, 0) == []
    one.producer.commit_transaction()
    log.advance(3_000, one.consumer.member.poll)
    one.unit(1)

    assert one.out == [(0, 0), (0, 1), (0, 2)]


def test_a_paused_partition_stays_paused_while_an_outcome_is_unknown() -> None:
    log = FakeLog({"t": 1})
    one = copier(log)
    lost = one.opened[-1]

    def pauses() -> None:
        one.consumer.pause([TopicPartition("t", 0)])
        lost.fails["commit"] = FENCED

    with pytest.raises(TransactionError):
        one.unit(2, pauses)
    one.program.reader.paused.clear()
    log.tell_ended(aborted=lost._asked)
    log.advance(3_000, one.consumer.member.poll)
    one.consumer.consume(0, 0)

    assert one.program.reader.paused == {0}


def test_a_unit_in_which_nothing_is_read_asks_the_group_nothing() -> None:
    log = FakeLog({"t": 1})
    one = copier(log)
    before = len(log.batches)

    one.unit(0)

    assert not any(isinstance(r, api.PendingCommit) for each in log.batches[before:] for r in each)
    assert one.producer.state is State.READY


def test_a_rebalance_inside_a_unit_aborts_it() -> None:
    """What was read before it must not be committed by the right of the generation after it."""
    log = FakeLog({"t": 2})
    one = copier(log)
    other: list[Copier] = []

    def joins() -> None:
        other.append(Copier(log, "b"))
        for _ in range(12):
            log.advance(500)
            one.program.poll()
            other[0].program.poll()

    with pytest.raises(TransactionError) as refused:
        one.unit(2, joins)

    assert refused.value.txn_requires_abort()
    assert one.out == []
    assert one.producer.state is State.READY


@pytest.mark.parametrize(("decision", "start"), [("committed", 2), ("aborted", OFFSET_BEGINNING)])
def test_a_successor_waits_until_a_dead_copier_s_transaction_is_decided(
    decision: str, start: int
) -> None:
    """KIP-447: killed between acceptance and commit, and only Kafka knows how it ends."""
    log = FakeLog({"t": 1})
    dead = copier(log)
    metadata = dead.consumer.consumer_group_metadata()
    dead.producer.begin_transaction()
    dead.consumer.consume(2, 0)
    dead.producer.send_offsets_to_transaction([TopicPartition("t", 0, 2)], metadata)
    dead.program.transport.is_cut = True
    heir = Copier(log, "b")

    log.advance(15_000, heir.program.poll)
    assert [each.partition for each in heir.consumer.assignment()] == [0]
    assert heir.program.reader.started == []
    log.tell_ended(**{decision: dead.opened[-1]._asked})
    log.advance(3_000, heir.program.poll)

    assert heir.program.reader.started == [[(0, start)]]


def test_a_doubtful_transaction_is_followed_by_a_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end may be under way still, and would end the next one (KIP-890)."""
    now = [0.0]
    own_time.give(monkeypatch, "coordlib.client.transactions.by_kafka", monotonic=lambda: now[0])
    one = copier(FakeLog({"t": 1}))
    one.unit(1)
    one.unit(1)
    assert len(one.opened) == 1

    one.unit(1, lambda: now.__setitem__(0, now[0] + DOUBTFUL_AFTER_MS / 1000))
    one.unit(1)

    assert [each.epochs for each in one.opened] == [1, 1]
    assert len(one.out) == 3, "all that there is"


@pytest.mark.parametrize("how", [{"coord.new.epoch": "always"}, {"coord.new.epoch.after.ms": 0}])
def test_each_transaction_may_have_an_epoch_of_its_own(how: dict[str, Any]) -> None:
    one = copier(FakeLog({"t": 1}), **how)
    one.unit(1)
    one.unit(1)

    assert len(one.opened) == 2


def test_trouble_with_brokers_makes_a_transaction_doubtful() -> None:
    one = copier(FakeLog({"t": 1}))
    one.unit(1, lambda: one.opened[-1].on_error(KafkaError(KafkaError._TRANSPORT)))
    one.unit(1)

    assert len(one.opened) == 2


def test_offsets_that_were_not_accepted_are_not_committed() -> None:
    """The job is away: the call runs out of time, and the transaction cannot commit past it."""
    log = FakeLog({"t": 1})
    one = copier(log)
    one.producer.begin_transaction()
    metadata = one.consumer.consumer_group_metadata()
    log.job_is_up = False
    position = [TopicPartition("t", 0, 1)]

    with pytest.raises(TransactionError) as late:
        one.producer.send_offsets_to_transaction(position, metadata, 0.05)
    assert late.value.retriable()
    with pytest.raises(TransactionError, match="has not accepted"):
        one.producer.commit_transaction()
    log.job_is_up = True
    one.producer.send_offsets_to_transaction(position, metadata, 1.0)
    one.producer.commit_transaction()

    assert one.committed() == 1
    assert len(asked_of(log)) == 1, "the same question went on"


def test_an_answer_between_two_calls_is_heard() -> None:
    """The first call ran out of time; the answer to it comes before the second one."""
    log = FakeLog({"t": 1})
    one = copier(log)
    one.producer.begin_transaction()
    metadata = one.consumer.consumer_group_metadata()
    log.job_is_up = False
    position = [TopicPartition("t", 0, 1)]
    with pytest.raises(TransactionError):
        one.producer.send_offsets_to_transaction(position, metadata, 0.05)
    log.job_is_up = True
    log.pump()

    one.producer.send_offsets_to_transaction(position, metadata, 0.3)
    one.producer.commit_transaction()

    assert one.committed() == 1
    assert len(asked_of(log)) == 1


def test_a_question_hears_nothing_more_once_its_transaction_has_ended() -> None:
    one = copier(FakeLog({"t": 1}))
    before = set(one.program.transport._handlers)

    one.unit(1)
    with pytest.raises(ZeroDivisionError):
        one.unit(1, lambda: 1 // 0)  # type: ignore[arg-type, return-value]

    assert set(one.program.transport._handlers) == before


def test_a_full_queue_is_an_error_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka raises BufferError; the question was not asked, so a later call asks it."""
    log = FakeLog({"t": 1})
    one = copier(log)
    one.producer.begin_transaction()
    metadata = one.consumer.consumer_group_metadata()
    position = [TopicPartition("t", 0, 1)]

    def full(*_: Any, **__: Any) -> None:
        raise BufferError("Local: Queue full")

    with monkeypatch.context() as patched:
        patched.setattr(one.opened[-1], "produce", full)
        with pytest.raises(TransactionError, match="queue is full") as told:
            one.producer.send_offsets_to_transaction(position, metadata, 0.05)
    assert told.value.retriable()
    one.producer.send_offsets_to_transaction(position, metadata, 1.0)
    one.producer.commit_transaction()

    assert one.committed() == 1
    assert len(asked_of(log)) == 1


def test_a_queue_that_is_full_for_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    one = copier(FakeLog({"t": 1}))
    fake, left = one.opened[-1], [2]
    produce = fake.produce

    def sometimes_full(topic: str, *args: Any, **named: Any) -> None:
        if topic == "coord.requests" and left[0]:
            left[0] -= 1
            raise BufferError("Local: Queue full")
        produce(topic, *args, **named)

    monkeypatch.setattr(fake, "produce", sometimes_full)
    one.unit(1)

    assert one.committed() == 1


def test_each_group_of_a_transaction_must_have_accepted() -> None:
    """One transaction for the offsets of two groups: neither may count without the other."""
    log = FakeLog({"t": 1})
    one = copier(log)
    audit = Program(log, "c", **{"group.id": "audit"})
    audit.settle()
    one.producer.begin_transaction()
    metadata = [each.consumer_group_metadata() for each in (one.consumer, audit.consumer)]
    position = [TopicPartition("t", 0, 1)]
    log.job_is_up = False
    with pytest.raises(TransactionError) as late:
        one.producer.send_offsets_to_transaction(position, metadata[0], 0.05)
    assert late.value.retriable()
    log.job_is_up = True
    one.producer.send_offsets_to_transaction(position, metadata[1], 1.0)

    with pytest.raises(TransactionError, match="has not accepted") as refused:
        one.producer.commit_transaction()
    assert "group orders" in str(refused.value)
    one.producer.send_offsets_to_transaction(position, metadata[0], 1.0)
    one.producer.commit_transaction()

    assert one.committed() == 1
    assert [each.group for each in asked_of(log)] == ["orders", "audit"]


def test_each_part_of_a_group_s_offsets_must_have_been_accepted() -> None:
    log = FakeLog({"t": 2})
    one = copier(log)
    one.producer.begin_transaction()
    metadata = one.consumer.consumer_group_metadata()
    parts = [[TopicPartition("t", each, 1)] for each in (0, 1)]
    log.job_is_up = False
    with pytest.raises(TransactionError):
        one.producer.send_offsets_to_transaction(parts[0], metadata, 0.05)
    log.job_is_up = True
    one.producer.send_offsets_to_transaction(parts[1], metadata, 1.0)

    with pytest.raises(TransactionError, match="has not accepted"):
        one.producer.commit_transaction()


def test_newer_offsets_of_the_same_partitions_take_the_place_of_older_ones() -> None:
    """A program may give up waiting, and send what it has read since: the later rows hold."""
    log = FakeLog({"t": 1})
    one = copier(log)
    one.producer.begin_transaction()
    metadata = one.consumer.consumer_group_metadata()
    log.job_is_up = False
    with pytest.raises(TransactionError):
        one.producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], metadata, 0.05)
    log.job_is_up = True
    one.producer.send_offsets_to_transaction([TopicPartition("t", 0, 2)], metadata, 1.0)
    one.producer.commit_transaction()

    assert one.committed() == 2


def test_a_fenced_producer_can_do_nothing_more() -> None:
    one = copier(FakeLog({"t": 1}))
    one.opened[-1].fails["commit"] = FENCED

    with pytest.raises(TransactionError) as told:
        one.unit(1)

    assert told.value.fatal()
    assert one.producer.state is State.FATAL_ERROR
    with pytest.raises(TransactionError) as again:
        one.producer.begin_transaction()
    assert again.value.fatal()


def test_who_is_not_answered_aborts_before_kafka_does() -> None:
    """Kafka's own abort would fence the producer for good, and the job may be away for longer."""
    log = FakeLog({"t": 1})
    one = copier(log, **{"transaction.timeout.ms": 150})
    log.job_is_up = False

    with pytest.raises(TransactionError, match="two thirds") as late:
        one.unit(1)
    log.job_is_up = True
    one.unit(1)

    assert late.value.txn_requires_abort()
    assert one.out == [(0, 0)]
    assert one.committed() == 1


def test_who_took_longer_than_kafka_allows_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    own_time.give(monkeypatch, "coordlib.client.transactions.by_kafka", monotonic=lambda: now[0])
    one = copier(FakeLog({"t": 1}))
    one.opened[-1].fails["commit"] = FENCED
    one.producer.begin_transaction()
    now[0] += TRANSACTION_TIMEOUT_MS / 1000

    with pytest.raises(TransactionError, match=r"longer than transaction\.timeout\.ms") as told:
        one.producer.commit_transaction()

    assert told.value.fatal()


def test_an_id_that_this_principal_may_not_use_is_named() -> None:
    """Brokers say that it is not for this principal; which right is missing they do not say."""
    denied = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no", True, False, False)
    made = copier(FakeLog({"t": 1}))
    made.producer._machine.replaced()
    made.opened[-1].fails["init"] = KafkaException(denied)

    with pytest.raises(TransactionError) as told:
        made.producer.init_transactions()

    assert isinstance(told.value, NotAllowed)
    assert told.value.fatal()
    assert told.value.what == "A right is missing: Write on the transactional-id a."
    with pytest.raises(NotAllowed):
        made.producer.begin_transaction()


def test_a_topic_that_this_principal_may_not_write_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its records are purged, without a reason; the transaction is aborted."""
    asked = list[Any]()

    def unwritable(options: Mapping[str, Any], topics: list[str], _: float) -> list[str]:
        asked.append((sorted(options), topics))
        return ["out"]

    monkeypatch.setattr(by_kafka, "unwritable", unwritable)
    log = FakeLog({"t": 1})
    made = copier(log)
    purged = KafkaError(KafkaError._PURGE_QUEUE)
    made.opened[-1].produce_out = lambda told: told and told(purged, None)

    with pytest.raises(TransactionError) as told:
        made.unit()

    assert isinstance(told.value, NotAllowed)
    assert told.value.txn_requires_abort()
    assert told.value.what == "A right is missing: Write on the topic out."
    assert asked[0] == ([], ["out"])
    assert made.producer.state is State.READY


def test_offsets_that_this_principal_may_not_write_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The producer logs in as somebody else than the consumer, who may write requests."""
    monkeypatch.setattr(by_kafka, "unwritable", lambda _, topics, __: topics[:1])
    made = copier(FakeLog({"t": 1}))
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    refuse = {"produce_out": lambda told: told(denied, None)}

    with pytest.raises(TransactionError) as told:
        made.unit(2, lambda: vars(made.opened[-1]).update(refuse))

    assert isinstance(told.value, NotAllowed)
    assert told.value.what == "A right is missing: Write on the topic coord.requests."


def test_offsets_that_the_log_does_not_take_abort() -> None:
    """The queue was purged, and nobody knows why; each later call names it until the abort."""
    made = copier(FakeLog({"t": 1}))
    late = KafkaError(KafkaError._MSG_TIMED_OUT)
    made.producer.begin_transaction()
    made.opened[-1].produce_out = lambda told: told(late, None)
    row = TopicPartition("t", 0, 2)

    for _ in range(2):
        with pytest.raises(TransactionError, match="could not be written") as told:
            made.producer.send_offsets_to_transaction(
                [row], made.consumer.consumer_group_metadata(), 1.0
            )
        assert told.value.txn_requires_abort()
        assert not isinstance(told.value, NotAllowed)
    made.producer.abort_transaction()


@pytest.mark.parametrize("by", ["the wire", "the user's message.max.bytes"])
def test_offsets_that_no_record_can_carry_abort(by: str) -> None:
    """Rows that are all allowed. The job dropped them without an answer, or it was told that the
    producer has failed for ever."""
    made = copier(FakeLog({"t": 1}))
    made.producer.begin_transaction()
    rows = [TopicPartition("t", n, 2, "m" * 4_096) for n in range(300)]
    if by != "the wire":
        rows = rows[:1]
        too_large = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
        made.opened[-1].fails["produce"] = KafkaException(too_large)
    with pytest.raises(TransactionError, match=r"written|too large") as told:
        made.producer.send_offsets_to_transaction(
            rows, made.consumer.consumer_group_metadata(), 1.0
        )
    assert told.value.txn_requires_abort()
    made.producer.abort_transaction()
    made.unit()
    assert made.out


def test_what_was_purged_for_another_reason_is_told_as_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody answers, or every topic may be written."""
    answers = list[Any]([TimeoutError("late"), []])

    def unwritable(*_: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(by_kafka, "unwritable", unwritable)
    way = copier(FakeLog({"t": 1})).producer._backend
    for _ in range(2):
        error = way.lost(KafkaError(KafkaError._PURGE_QUEUE))
        assert not isinstance(error, NotAllowed)
        assert error.txn_requires_abort()
    assert answers == []


def test_a_fenced_producer_closes_without_an_error() -> None:
    """confluent-kafka raises at each call of such a one; what it raised first must be seen."""
    one = copier(FakeLog({"t": 1}))
    one.opened[-1].fails |= {"commit": FENCED, "flush": FENCED}

    with pytest.raises(TransactionError), one.producer:
        one.unit(1)


def test_a_group_that_did_not_answer_in_time_lets_the_next_unit_begin() -> None:
    """The unit is aborted, so there is no commit that could be called again."""
    log = FakeLog({"t": 1})
    one = copier(log)
    log.job_is_up = False
    with pytest.raises(TransactionError) as late:
        one.unit(2, timeout_s=0.05)
    log.job_is_up = True

    assert late.value.txn_requires_abort()
    assert one.producer.state is State.READY
    one.unit(2)
    assert one.out == [(0, 0), (0, 1)]
    assert one.committed() == 2


def test_an_abort_that_ran_out_of_time_may_be_called_again() -> None:
    """The unit counts for nobody, so the consumer reads it again."""
    log = FakeLog({"t": 1})
    one = copier(log)
    log.job_is_up = False
    one.opened[-1].fails["abort"] = TIMED_OUT
    with pytest.raises(TransactionError) as late:
        one.unit(2, timeout_s=0.05)
    log.job_is_up = True

    assert late.value.retriable()
    assert one.producer.state is State.ABORTING
    one.producer.abort_transaction()
    one.unit(2)
    assert one.out == [(0, 0), (0, 1)]
    assert one.committed() == 2


def test_a_plain_producer_sends_offsets_too() -> None:
    log = FakeLog({"t": 1})
    one = copier(log)
    plain = FakeTransactions(log, {}, lambda *_: None)
    plain.begin_transaction()
    one.consumer.consume(2, 0)

    send_offsets_to_transaction(plain, one.consumer)
    plain.commit_transaction(PATIENCE_S)

    assert one.committed() == 2


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"transactional.id": "x", "coord.decided.by": "nobody"},
        {"transactional.id": "x", "coord.new.epoch": "never"},
        {"transactional.id": "x", "coord.new.epoch.after.ms": 401},
        {"transactional.id": "x", "coord.new.epoch.after.ms": "soon"},
        {"transactional.id": "x", "transaction.timeout.ms": None},
        {"transactional.id": "x", "coord.nonsense": 1},
        {"transactional.id": "x", "bootstrap.servers": "a", "coord.bootstrap.servers": "b"},
        {"transactional.id": "x", "retry.backoff.ms": 50},
        {"transactional.id": "x", "retry.backoff.max.ms": 5_000},
    ],
)
def test_keys_that_are_wrong_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(SetupError):
        CoordinatedProducer(config)


def test_a_backoff_that_would_be_overridden_is_refused_and_the_reason_told() -> None:
    """Who sets it to fail fast must know that it does not."""
    with pytest.raises(SetupError, match="end the next one") as told:
        CoordinatedProducer({"transactional.id": "x", "retry.backoff.ms": RETRY_BACKOFF_MS})

    assert told.value.where == "retry.backoff.ms"


def test_a_unit_inside_a_unit_leaves_its_producer_as_it_was() -> None:
    """A second producer, by mistake with the same consumer: it was left in a transaction that
    nobody ended, and could begin no other one.
    """
    log = FakeLog({"t": 1})
    one, two = copier(log), copier(log, "b")
    one.program.settle()
    with exactly_once(one.consumer, one.producer, 0.2):
        with (
            pytest.raises(CoordError, match="A unit of work is open"),
            exactly_once(one.consumer, two.producer, 0.2),
        ):
            raise AssertionError
        assert two.producer.state is State.READY


def test_a_unit_that_cannot_begin_leaves_its_consumer_as_it_was() -> None:
    log = FakeLog({"t": 1})
    one = copier(log)
    one.producer.begin_transaction()
    with (
        pytest.raises(TransactionError, match="not allowed"),
        exactly_once(one.consumer, one.producer, 0.2),
    ):
        raise AssertionError
    one.producer.abort_transaction()
    with exactly_once(one.consumer, one.producer, 0.2):
        """It begins now."""


@pytest.mark.parametrize("of", ["consumer", "producer"])
def test_a_unit_that_is_interrupted_while_it_begins_is_ended(
    of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes behind the call that has begun it."""
    one = copier(FakeLog({"t": 1}))
    one.program.settle()
    asked, name = {
        "consumer": (one.consumer, "begin_unit"),
        "producer": (one.producer, "begin_transaction"),
    }[of]
    begin = getattr(asked, name)

    def interrupted(*args: Any) -> None:
        begin(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(asked, name, interrupted)
    with pytest.raises(KeyboardInterrupt), exactly_once(one.consumer, one.producer, 0.2):
        raise AssertionError
    monkeypatch.undo()

    assert one.producer.state is State.READY
    with exactly_once(one.consumer, one.producer, 0.2):
        """It begins now."""


@pytest.mark.parametrize(
    ("refused", "is_for_good"), [(KafkaError._FATAL, True), (KafkaError.MSG_SIZE_TOO_LARGE, False)]
)
def test_a_record_that_is_refused_at_once_is_an_error_of_the_transaction(
    refused: int, is_for_good: bool
) -> None:
    """INV-156. Kafka's own exception came out of `produce`: the program had no way to see whether
    to abort or to end, and the producer went on as if nothing were."""
    copier = Copier(FakeLog({"t": 1, "out": 1}), "a")
    copier.producer.begin_transaction()
    copier.opened[-1].fails["produce"] = KafkaException(KafkaError(refused))

    with pytest.raises(TransactionError) as told:
        copier.producer.produce("out", b"1")

    assert told.value.fatal() is is_for_good
    assert told.value.txn_requires_abort() is not is_for_good
    expected = State.FATAL_ERROR if is_for_good else State.ABORTABLE_ERROR
    assert copier.producer.state is expected


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (KafkaError._FENCED, "End: a newer process uses this transactional id."),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "Close this producer. Make a new one unless"),
    ],
)
def test_only_a_fenced_producer_is_told_of_a_newer_process(code: int, hint: str) -> None:
    """INV-156. Whatever ended it, the program was told to end for a process that was not there."""
    error = transaction_error(KafkaException(KafkaError(code, fatal=True)), "commit", "id a")

    assert error.fatal()
    assert error.hint.startswith(hint)

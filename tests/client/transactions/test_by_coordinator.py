"""Producers whose transactions the coordinator decides, over the real core in memory."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from coordlib import limits
from coordlib.client.kit import events as sg
from coordlib.client.transactions import data_cluster
from coordlib.client.transactions.by_coordinator import CoordinatorTransactions
from coordlib.client.transactions.data_cluster import (
    DataCluster,
    MarkerWriter,
    Outgoing,
    write_markers,
)
from coordlib.client.transactions.life import Place, Unmarked
from coordlib.client.transactions.machine import State, TransactionError
from coordlib.client.transactions.producer import CoordinatedProducer
from coordlib.client.units import exactly_once
from coordlib.core.wire import api
from coordlib.core.wire.data_headers import Marker, Stamp, Txn
from coordlib.core.wire.transactions import ABORT, COMMIT, TRANSACTION
from coordlib.errors import CannotReach, SetupError
from coordlib.testing.fake_log import FakeLog, FakeTransport
from tests.client.test_consumer import Program
from tests.client.transactions.data import PATIENCE_S, FakeCluster
from tests.tools.core import Shard

BROKEN = KafkaError(KafkaError._FATAL, "broken", True, False, False)


@pytest.fixture(autouse=True)
def policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics' settings are asked of an admin client."""

    def policy(self: DataCluster, topic: str) -> str:
        cluster = self._producer._cluster  # type: ignore[attr-defined]
        return "compact" if topic in cluster.compacted else "delete"

    monkeypatch.setattr(data_cluster.DataCluster, "cleanup_policy", policy)


class Copier:
    """A program that copies t to out, unit by unit."""

    def __init__(self, log: FakeLog, cluster: FakeCluster, name: str = "a", id_: str = "") -> None:
        self.log, self.cluster = log, cluster
        self.program = Program(log, name)
        self.transport: FakeTransport = log.transport()
        self.producer = CoordinatedProducer(
            {
                "bootstrap.servers": "there",
                "transactional.id": id_ or name,
                "client.id": name,
                "coord.decided.by": "coordinator",
                "transaction.timeout.ms": 10_000,
            },
            transport=self.transport,
            open_producer=cluster.producer,
        )

    @property
    def consumer(self) -> Any:
        return self.program.consumer

    def ready(self) -> "Copier":
        self.producer.init_transactions(PATIENCE_S)
        self.program.settle()
        return self

    def unit(
        self,
        count: int = 2,
        during: Callable[[], None] = lambda: None,
        timeout_s: float = PATIENCE_S,
    ) -> None:
        with exactly_once(self.consumer, self.producer, timeout_s):
            for message in self.consumer.consume(count, 0):
                self.producer.produce("out", f"v{message.offset()}", partition=0)
            during()

    def write(self, *values: str, partition: int = 0) -> None:
        for value in values:
            self.producer.produce("out", value, partition=partition)

    def committed(self) -> int:
        future = self.consumer.member.committed_async()
        self.log.advance(3_000, self.program.poll)
        (row,) = future.result(0).offsets
        return int(row.offset)


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def log(request: pytest.FixtureRequest) -> FakeLog:
    return FakeLog({"t": 1}, shards=request.param)


@pytest.fixture
def cluster(log: FakeLog) -> FakeCluster:
    return FakeCluster(log)


@pytest.fixture
def one(log: FakeLog, cluster: FakeCluster) -> Copier:
    return Copier(log, cluster).ready()


def asked(log: FakeLog, kind: type[api.Request]) -> list[Any]:
    return [r for each in log.batches for r in each if isinstance(r, kind)]


def test_what_is_read_counts_with_what_is_written(one: Copier) -> None:
    one.unit()
    one.unit(1)

    assert one.cluster.committed() == ["v0", "v1", "v2"]
    assert one.committed() == 3
    assert one.producer.state is State.READY


def test_records_carry_their_number_and_markers_their_count(one: Copier) -> None:
    """What a reader in another cluster has to go by."""
    one.producer.begin_transaction()
    one.write("x", "y")
    one.write("z", partition=1)
    one.producer.commit_transaction(PATIENCE_S)

    stamps = [(each.t, each.s) for each in one.cluster.headers() if isinstance(each, Stamp)]
    assert stamps == [("a", 0), ("a", 1)]
    counts = [
        (each.r, each.n)
        for partition in (0, 1)
        for each in one.cluster.headers(partition=partition)
        if isinstance(each, Marker)
    ]
    assert counts == [(COMMIT, 2), (COMMIT, 1)]


def test_no_record_is_written_before_its_partition_is_part_of_the_transaction(
    one: Copier, log: FakeLog
) -> None:
    """Else nobody would write its marker, and readers would wait for ever."""
    one.producer.begin_transaction()
    log.job_is_up = False
    one.write("x")
    one.producer.poll(0.05)
    assert one.cluster.headers() == []
    log.job_is_up = True
    assert one.producer.flush(PATIENCE_S) == 0

    assert one.cluster.committed() == []
    assert len(one.cluster.headers()) == 1


def test_partitions_that_come_together_are_named_together(one: Copier, log: FakeLog) -> None:
    one.producer.begin_transaction()
    one.write("x")
    one.write("y", partition=1)
    one.producer.commit_transaction(PATIENCE_S)
    one.producer.begin_transaction()
    one.write("x")
    one.producer.commit_transaction(PATIENCE_S)

    partitions = [r.partitions[0].partitions for r in asked(log, api.AddPartitionsToTxn)]
    assert partitions == [(0, 1), (0,)]


def test_the_end_waits_for_all_records(one: Copier, log: FakeLog) -> None:
    """EndTxn names how many there are; what the other cluster has not taken would be torn."""
    one.producer.begin_transaction()
    one.write("x")
    assert one.producer.flush(PATIENCE_S) == 0
    one.cluster.is_up = False
    one.write("y")
    with pytest.raises(TransactionError) as late:
        one.producer.commit_transaction(0.2)
    assert late.value.retriable()
    assert asked(log, api.EndTxn) == []

    one.cluster.is_up = True
    one.producer.commit_transaction(PATIENCE_S)

    assert len(asked(log, api.EndTxn)) == 1
    assert one.cluster.committed() == ["x", "y"]


def test_an_exception_aborts_and_sets_the_consumer_back(one: Copier) -> None:
    def fails() -> None:
        one.producer.flush(PATIENCE_S)
        raise ValueError("in the user's own work")

    with pytest.raises(ValueError, match="own work"):
        one.unit(2, fails)
    assert len(one.cluster.headers()) == 3, "two records and a marker"
    one.unit(2)

    assert one.cluster.committed() == ["v0", "v1"]
    assert one.committed() == 2


def test_a_transaction_in_which_nothing_is_done_asks_nothing(one: Copier, log: FakeLog) -> None:
    one.producer.begin_transaction()
    one.producer.commit_transaction(PATIENCE_S)
    one.producer.begin_transaction()
    one.producer.abort_transaction(PATIENCE_S)

    assert asked(log, api.EndTxn) == []


def test_a_record_that_is_not_delivered_aborts(one: Copier) -> None:
    one.producer.begin_transaction()
    one.cluster.fails = KafkaError(KafkaError._MSG_TIMED_OUT)
    one.write("x")
    with pytest.raises(TransactionError) as refused:
        one.producer.commit_transaction(PATIENCE_S)
    assert refused.value.txn_requires_abort()
    one.cluster.fails = None
    one.producer.abort_transaction(PATIENCE_S)
    one.unit(1)

    assert one.cluster.committed() == ["v0"]


def test_a_data_producer_that_failed_for_ever_is_replaced_by_the_abort(one: Copier) -> None:
    """The transaction is lost, and not the transactional id."""
    one.producer.begin_transaction()
    one.cluster.fails = BROKEN
    one.write("x")
    with pytest.raises(TransactionError) as refused:
        one.producer.commit_transaction(PATIENCE_S)
    assert refused.value.txn_requires_abort()
    one.cluster.fails = None
    before = one.producer._backend._data._producer  # type: ignore[attr-defined]
    one.producer.abort_transaction(PATIENCE_S)

    assert one.producer._backend._data._producer is not before  # type: ignore[attr-defined]
    assert one.producer.state is State.READY


def test_a_commit_whose_markers_are_late_goes_on(one: Copier) -> None:
    """It is decided; the other cluster is away for a while."""
    one.producer.begin_transaction()
    one.write("x")
    assert one.producer.flush(PATIENCE_S) == 0
    one.cluster.is_up = False
    with pytest.raises(TransactionError) as late:
        one.producer.commit_transaction(0.1)
    assert late.value.retriable()
    assert "decided" in str(late.value)
    one.cluster.is_up = True
    one.producer.commit_transaction(PATIENCE_S)

    assert one.cluster.committed() == ["x"]
    assert one.producer.state is State.READY


def test_a_committed_unit_is_not_read_again_where_its_word_is_refused(
    one: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is not told of a marker, for good, while another one is still missing."""
    send, life = one.transport.send, one.producer._backend._machine  # type: ignore[attr-defined]

    def refuses(handler: Any, request: api.Request) -> None:
        if not isinstance(request, api.TxnMarkersWritten):
            send(handler, request)
        else:
            handler.feed(sg.NotWritten(0, request.id, "denied", is_final=True))

    turn = data_cluster.MarkerWriter.turn

    def one_by_one(writer: Any) -> Any:
        done = sorted(turn(writer))
        waiting.extend(done)
        return [waiting.pop(0)] if waiting else []

    waiting: list[Any] = []
    monkeypatch.setattr(data_cluster.MarkerWriter, "turn", one_by_one)
    monkeypatch.setattr(one.transport, "send", refuses)
    one.unit(2, lambda: one.write("other", partition=1))

    assert life.is_decided
    assert one.cluster.committed() == ["v0", "v1"]
    assert [each.offset for each in one.consumer.position(one.consumer.assignment())] == [2]
    assert one.producer.may_be_committed


def test_a_partition_that_is_no_more_counts_as_written(one: Copier) -> None:
    one.producer.begin_transaction()
    one.write("x")
    assert one.producer.flush(PATIENCE_S) == 0
    del one.cluster.topics["out"]
    one.producer.commit_transaction(PATIENCE_S)
    one.cluster.topics["out"] = 2
    one.unit(1)

    assert one.producer.state is State.READY


def test_the_next_transaction_waits_for_the_end_of_the_one_before(
    one: Copier, log: FakeLog
) -> None:
    """TransactionCompleted is told; nothing is asked that would be refused."""
    for number in range(3):
        one.producer.begin_transaction()
        one.write(f"x{number}")
        one.producer.commit_transaction(PATIENCE_S)

    assert one.cluster.committed() == ["x0", "x1", "x2"]
    said = [
        output.value for output in log.responses if b"CONCURRENT_TRANS" in (output.value or b"")
    ]
    assert said == []


# ---- processes that die, and those that come after them --------------------------------------


def dies(copier: Copier) -> None:
    """SIGKILL: nothing it has under way goes on."""
    copier.transport.is_cut = True


def test_the_successor_writes_the_markers_of_who_died_behind_the_decision(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    """Between EndTxn and the markers: the transaction is committed, and nobody reads it yet."""
    one.producer.begin_transaction()
    one.write("x", "y")
    one.write("z", partition=1)
    assert one.producer.flush(PATIENCE_S) == 0
    cluster.is_up = False
    with pytest.raises(TransactionError):
        one.producer.commit_transaction(0.1)
    dies(one)
    cluster.is_up = True
    assert cluster.committed() == []

    heir = Copier(log, cluster, "b", id_="a").ready()

    assert (cluster.committed(), cluster.committed(partition=1)) == (["x", "y"], ["z"])
    heir.producer.begin_transaction()
    heir.write("w")
    heir.producer.commit_transaction(PATIENCE_S)
    assert cluster.committed() == ["x", "y", "w"]


def test_the_successor_aborts_what_was_open(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    one.producer.begin_transaction()
    one.write("x")
    assert one.producer.flush(PATIENCE_S) == 0
    dies(one)

    Copier(log, cluster, "b", id_="a").ready()

    assert cluster.committed() == []
    assert [each.r for each in cluster.headers() if isinstance(each, Marker)] == [ABORT]


def test_whoever_is_fenced_ends_and_its_late_records_are_dropped(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    """It was stalled, not dead: it wakes up while its successor works."""
    one.producer.begin_transaction()
    one.write("x")
    assert one.producer.flush(PATIENCE_S) == 0
    heir = Copier(log, cluster, "b", id_="a").ready()
    one.write("late")
    assert one.producer.flush(PATIENCE_S) == 0
    with pytest.raises(TransactionError) as fenced:
        one.producer.commit_transaction(PATIENCE_S)
    assert fenced.value.fatal()
    heir.producer.begin_transaction()
    heir.write("w")
    heir.producer.commit_transaction(PATIENCE_S)

    assert cluster.committed() == ["w"]
    with pytest.raises(TransactionError):
        one.producer.begin_transaction()


def test_markers_in_a_cluster_that_is_not_named_are_for_the_operator(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    """The successor was given other brokers."""
    one.producer.begin_transaction()
    one.write("x")
    assert one.producer.flush(PATIENCE_S) == 0
    dies(one)
    heir = Copier(log, FakeCluster(log, "elsewhere"), "b", id_="a")

    with pytest.raises(TransactionError, match="another cluster") as told:
        heir.producer.init_transactions(PATIENCE_S)

    assert told.value.fatal()
    assert "coord transactions finish a" in told.value.hint


def test_an_operator_writes_missing_markers(one: Copier, cluster: FakeCluster) -> None:
    one.producer.begin_transaction()
    one.write("x", "y")
    assert one.producer.flush(PATIENCE_S) == 0
    life = one.producer._backend._machine  # type: ignore[attr-defined]
    life.end(COMMIT, 0)
    one.log.advance(1_000, lambda: one.producer.poll(0) if not life.is_decided else None)
    unmarked = Unmarked(life.unmarked.txn, COMMIT, dict.fromkeys(life.unmarked.places))
    given = DataCluster({}, cluster.producer)

    written = write_markers([given], unmarked, 1.0)

    assert [(each.cluster, each.partitions) for each in written] == [("there", (0,))]
    assert cluster.committed() == ["x", "y"]
    assert write_markers([DataCluster({}, FakeCluster(one.log, "no").producer)], unmarked) == ()


def test_no_failed_marker_is_forgotten_where_the_cluster_cannot_be_asked(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a partition is gone is not known: its marker, and all others, are written later."""

    def away(_: Place) -> bool:
        raise CannotReach("No metadata from Kafka.")

    data = DataCluster({}, cluster.producer)
    places = [Place(data.id, "out", number) for number in range(2)]
    txn = Txn("FakeLog0", "a", 1, 0)
    writer = MarkerWriter({data.id: data}, Unmarked(txn, COMMIT, dict.fromkeys(places)))
    cluster.fails = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    writer.turn()
    data.poll()
    with monkeypatch.context() as patch:
        patch.setattr(data, "has", away)
        with pytest.raises(CannotReach):
            writer.turn()
    cluster.fails = None
    done = writer.turn()
    data.poll()
    done += writer.turn()

    assert sorted(each.partition for each in done) == [0, 1]


def test_a_producer_goes_on_after_its_transaction_timed_out(one: Copier, log: FakeLog) -> None:
    """A slow process is no zombie."""
    one.producer.begin_transaction()
    one.write("slow")
    assert one.producer.flush(PATIENCE_S) == 0
    log.advance(30_000, one.program.poll)
    with pytest.raises(TransactionError) as late:
        one.producer.commit_transaction(PATIENCE_S)
    assert late.value.txn_requires_abort()
    one.producer.abort_transaction(PATIENCE_S)
    one.producer.begin_transaction()
    one.write("quick")
    one.producer.commit_transaction(PATIENCE_S)

    assert one.cluster.committed() == ["quick"]


def test_an_id_that_has_expired_is_taken_anew(one: Copier, log: FakeLog) -> None:
    """Seven days without a transaction: the coordinator knows nothing of its producer."""
    one.unit(1)
    log.advance(3_000)
    _expire(log, one)
    one.producer.begin_transaction()
    one.write("x")
    with pytest.raises(TransactionError) as gone:
        one.producer.commit_transaction(PATIENCE_S)
    assert gone.value.txn_requires_abort()
    one.producer.abort_transaction(PATIENCE_S)
    one.producer.begin_transaction(1.0)
    one.write("y")
    one.producer.commit_transaction(PATIENCE_S)

    assert one.cluster.committed() == ["v0", "y"]


def _expire(log: FakeLog, of: Copier) -> None:
    """Forget the transactional id, as the shard does at a check of retention."""
    identity = of.producer._backend.identity  # type: ignore[attr-defined]
    kept = log._shards[identity.shard]
    shard = Shard(kept._blob, kept._settings)
    shard._let(shard._here(), (TRANSACTION, identity.group), lambda step: step.delete())
    shard.close()
    kept._blob = shard.encode()


def test_whatever_an_abort_raises_at_the_end_all_is_given_back(
    one: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what the program raised first is what is seen."""
    detached: list[Any] = []
    monkeypatch.setattr(one.producer._backend, "abort", _breaks)
    monkeypatch.setattr(one.transport, "detach", detached.append)

    def work() -> None:
        with one.producer:
            one.producer.begin_transaction()
            raise ValueError("in the user's own work")

    with pytest.raises(ValueError, match="own work"):
        work()

    assert detached == [one.producer._backend]


def test_a_producer_of_data_that_fails_at_the_end_leaves_nothing_open(
    one: Copier, cluster: FakeCluster, log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Any] = []
    transport = log.transport()
    monkeypatch.setattr(transport, "close", lambda: closed.append(transport))
    config = {"transactional.id": "z", "coord.decided.by": "coordinator"}
    way = CoordinatorTransactions(config, transport, cluster.producer)
    way._own = True
    monkeypatch.setattr(way._data, "flush", _breaks)
    with pytest.raises(CannotReach):
        way.close(is_usable=True)

    assert closed == [transport]


def _breaks(*_: Any) -> None:
    raise CannotReach("no broker")


# ---- the group ---------------------------------------------------------------------------------


def test_offsets_that_the_group_refuses_abort(one: Copier, log: FakeLog) -> None:
    """A rebalance inside the unit: what was read before belongs to nobody any more."""
    others: list[Program] = []

    def joins() -> None:
        others.append(Program(log, "other"))
        for _ in range(12):
            log.advance(500)
            one.program.poll()
            others[0].poll()

    with pytest.raises(TransactionError) as refused:
        one.unit(2, joins)

    assert refused.value.txn_requires_abort()
    assert one.producer.state is State.READY
    assert one.cluster.committed() == []


def test_two_commits_of_one_transaction_count_both(one: Copier, log: FakeLog) -> None:
    one.producer.begin_transaction()
    metadata = one.consumer.consumer_group_metadata()
    one.producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], metadata, 1.0)
    one.producer.send_offsets_to_transaction([TopicPartition("t", 0, 2)], metadata, 1.0)
    one.producer.commit_transaction(PATIENCE_S)

    assert [r.number for r in asked(log, api.TxnOffsetCommit)] == [0, 1]
    assert one.committed() == 2


def test_offsets_that_are_not_accepted_are_waited_for(one: Copier, log: FakeLog) -> None:
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
    one.producer.commit_transaction(PATIENCE_S)

    assert len(asked(log, api.TxnOffsetCommit)) == 1, "the same question went on"
    assert one.committed() == 1


# ---- what is not offered -----------------------------------------------------------------------


def test_a_compacted_topic_is_refused(one: Copier, cluster: FakeCluster) -> None:
    """An aborted record would swallow a committed one."""
    cluster.topics["tables"] = 1
    cluster.compacted.add("tables")
    one.producer.begin_transaction()

    with pytest.raises(SetupError, match="compacted"):
        one.producer.produce("tables", "x")
    with pytest.raises(SetupError, match="no such topic"):
        one.producer.produce("nowhere", "x")
    assert one.producer.state is State.IN_TRANSACTION


@pytest.mark.parametrize("headers", [{"coord-txn": b"{}"}, [("coord-marker", b"{}")]])
def test_a_record_that_uses_our_headers_is_refused(one: Copier, headers: Any) -> None:
    one.producer.begin_transaction()

    with pytest.raises(SetupError, match="headers"):
        one.producer.produce("out", "x", headers=headers)


@pytest.mark.parametrize(
    "config",
    [
        {"transactional.id": ""},
        {"coord.decided.by": "chance"},
        {"coord.nonsense": 1},
        {"partitioner": "murmur2"},
        {"transaction.timeout.ms": "long"},
    ],
)
def test_a_wrong_key_is_refused(log: FakeLog, cluster: FakeCluster, config: Any) -> None:
    usual = {"transactional.id": "a", "coord.decided.by": "coordinator"}

    with pytest.raises(SetupError):
        CoordinatedProducer(
            {**usual, **config}, transport=log.transport(), open_producer=cluster.producer
        )


def test_a_program_changes_one_key(log: FakeLog, cluster: FakeCluster) -> None:
    """Keys of the other way are taken, and mean nothing here."""
    config = {
        "transactional.id": "a",
        "coord.decided.by": "coordinator",
        "coord.new.epoch": "always",
        "coord.new.epoch.after.ms": 100,
        "coord.prefix": "coord",
        "coord.bootstrap.servers": "here",
    }
    made = CoordinatedProducer(config, transport=log.transport(), open_producer=cluster.producer)

    assert made.state is State.UNINIT


@pytest.mark.parametrize("what", ["offsets", "records"])
def test_work_that_fails_while_the_unit_before_is_being_told_fences_nobody(
    log: FakeLog, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The job of the group's cell is away behind a commit, and the next unit fails. Its abort was
    refused as an older producer's, so that a healthy process ended.
    """
    one = Copier(log, cluster).ready()
    me = one.consumer.consumer_group_metadata()
    one.producer.begin_transaction()
    one.producer.send_rows((api.CommittedOffset("t", 0, 1),), me, 1.0)
    feed, held = log._feed, list[Any]()
    monkeypatch.setattr(log, "_feed", lambda made: bool(held.extend(made)))
    one.producer.commit_transaction(PATIENCE_S)
    one.producer.begin_transaction()
    if what == "offsets":
        with pytest.raises(TransactionError):
            one.producer.send_rows((api.CommittedOffset("t", 0, 2),), me, 0.3)
    else:
        one.write("x")
        one.producer.flush(0.3)
    one.producer.abort_transaction(PATIENCE_S)
    assert one.producer.state is State.READY

    monkeypatch.setattr(log, "_feed", feed)
    feed(held)
    log.advance(3_000)
    one.producer.begin_transaction()
    one.write("y")
    one.producer.commit_transaction(PATIENCE_S)
    assert cluster.committed() == ["y"]


@pytest.mark.parametrize("bad", [{"a": 1}, 5, "\ud800"], ids=["dict", "number", "no text"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_record_that_is_refused_is_no_part_of_the_transaction(
    one: Copier, bad: Any, is_first: bool
) -> None:
    """A program leaves out what cannot be written, and goes on. The record was counted all the
    same, and found only when it was written: all readers stopped at a torn transaction.
    """
    one.producer.begin_transaction()
    if not is_first:
        one.write("w")
        one.producer.flush(PATIENCE_S)
    for value in ("x", bad, "y"):
        try:
            one.write(value)
        except (TypeError, ValueError):
            assert value is bad
    one.producer.commit_transaction(PATIENCE_S)

    assert one.cluster.committed() == ([] if is_first else ["w"]) + ["x", "y"]


@pytest.mark.parametrize(
    "named",
    [{"key": 5}, {"headers": [("n", 5)]}, {"headers": [(5, "v")]}, {"timestamp": "now"}],
    ids=["key", "header", "name of a header", "timestamp"],
)
def test_what_confluent_kafka_does_not_take_is_refused_at_once(
    one: Copier, named: dict[str, Any]
) -> None:
    one.producer.begin_transaction()
    with pytest.raises(TypeError):
        one.producer.produce("out", "x", partition=0, **named)
    one.write("y")
    one.producer.commit_transaction(PATIENCE_S)

    assert one.cluster.committed() == ["y"]


def test_a_record_that_the_client_refuses_later_makes_the_transaction_abort(
    one: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it does not like: the number of the record is used, and it is not there."""

    def refuse(*_args: Any, **_named: Any) -> None:
        raise ValueError("embedded null byte")

    one.producer.begin_transaction()
    one.write("x")
    monkeypatch.setattr(DataCluster, "produce", refuse)
    with pytest.raises(TransactionError, match="embedded null byte") as failed:
        one.producer.commit_transaction(PATIENCE_S)

    assert failed.value.txn_requires_abort()


def test_a_commit_that_was_interrupted_behind_its_request_goes_on(
    one: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked for is decided; there is nothing to abort."""
    one.producer.begin_transaction()
    one.write("x")
    one.producer.flush(PATIENCE_S)

    def interrupted(*_args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as now:
        now.setattr(CoordinatorTransactions, "_finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one.producer.commit_transaction(PATIENCE_S)
    one.producer.commit_transaction(PATIENCE_S)

    assert one.cluster.committed() == ["x"]


def test_threads_that_share_a_producer_number_its_records_in_their_order(
    one: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As programs share confluent-kafka's. Two records had one number, or came in the wrong order:
    readers dropped one, or stopped at a torn transaction.
    """
    is_inside, may_go_on, add = threading.Event(), threading.Event(), Outgoing.add

    def slow(self: Outgoing, record: Any) -> None:
        if record.value == "slow":
            is_inside.set()
            may_go_on.wait(0.3)
        add(self, record)

    one.producer.begin_transaction()
    one.write("x")
    one.producer.flush(PATIENCE_S)
    monkeypatch.setattr(Outgoing, "add", slow)
    other = threading.Thread(target=one.write, args=("slow",))
    other.start()
    is_inside.wait(PATIENCE_S)
    one.write("y")
    may_go_on.set()
    other.join()
    one.producer.commit_transaction(PATIENCE_S)

    assert one.cluster.committed() == ["x", "slow", "y"]


def test_nothing_is_produced_into_a_transaction_that_another_thread_ends(
    one: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would come behind the marker, and readers would drop it without a word."""
    place_of = DataCluster.place_of

    def ends_meanwhile(*args: Any) -> Any:
        one.producer.commit_transaction(PATIENCE_S)
        return place_of(*args)

    one.producer.begin_transaction()
    monkeypatch.setattr(DataCluster, "place_of", ends_meanwhile)
    with pytest.raises(TransactionError, match="another thread"):
        one.write("late")
    assert one.cluster.committed() == []


def test_a_process_that_slept_through_a_producer_id_does_not_fence_its_successor(
    log: FakeLog, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended while its successor used up the epochs. It woke, was told that its producer id is
    not known, asked for another one as a new process, and aborted the successor's transaction.
    """
    monkeypatch.setattr(limits, "EPOCH_MAX", 3)
    sleeper, successor = (Copier(log, cluster, name, "id") for name in ("a", "b"))
    for one, units in ((sleeper, 1), (successor, 5)):
        one.producer.init_transactions(PATIENCE_S)
        for number in range(units):
            one.producer.begin_transaction()
            one.write(f"{one.transport.reply}{number}")
            one.producer.commit_transaction(PATIENCE_S)
    successor.producer.begin_transaction()
    successor.write("open")
    successor.producer.flush(PATIENCE_S)

    sleeper.producer.begin_transaction()
    sleeper.write("late")
    with pytest.raises(TransactionError, match="INVALID_PRODUCER_ID_MAPPING"):
        sleeper.producer.commit_transaction(PATIENCE_S)
    sleeper.producer.abort_transaction(PATIENCE_S)
    with pytest.raises(TransactionError, match="PRODUCER_FENCED") as fenced:
        sleeper.producer.begin_transaction(1.0)
    assert fenced.value.fatal()
    successor.producer.commit_transaction(PATIENCE_S)
    assert cluster.committed()[-1] == "open"

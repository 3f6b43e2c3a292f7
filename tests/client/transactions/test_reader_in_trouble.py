"""Readers of committed records in trouble: what they raise, and that they lose nothing by it."""

from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition

from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.transactions import committed_reader
from coordlib.client.transactions.committed import TornTransaction, UndecidedTransaction
from coordlib.client.transactions.committed_reader import CommittedReader, _Question
from coordlib.core.wire.data_headers import Stamp, Txn, header_of
from coordlib.errors import CannotReach, CoordError
from coordlib.testing.fake_log import FakeLog, FakeTransport
from tests.client.test_consumer import CONFIG
from tests.client.transactions.data import PATIENCE_S, FakeCluster, FakeConsumer
from tests.client.transactions.test_by_coordinator import Copier, policies
from tests.client.transactions.test_committed_reader import (
    OUT,
    cluster,
    left_undecided,
    log,
    one,
    open_reader,
    read,
)

__all__ = ["cluster", "log", "one", "policies"]  # fixtures

OTHER = TopicPartition("out", 1, 0)


def of_another_coordinator() -> tuple[Any, Any]:
    """A record of a transaction that nobody here can be asked about."""
    return "theirs", [header_of(Stamp(i="Other000", t="b", p=3, e=0, s=0))]


def left_open(one: Copier) -> None:
    """Its record x is in the log, and it has not ended."""
    one.producer.begin_transaction()
    one.write("x")
    assert one.producer.flush(PATIENCE_S) == 0


def test_records_that_were_taken_are_returned_before_a_problem_is_raised(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    """The positions have moved past them: nobody would read them again."""
    one.unit(1)
    cluster.records["out", 0].append(of_another_coordinator())
    reader = open_reader(log, cluster)

    assert [each.value() for each in reader.consume(5, 5.0)] == ["v0"]
    with pytest.raises(UndecidedTransaction):
        reader.consume(5, 0)
    assert reader.consume(5, 0) == []


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_partition_that_was_full_is_read_from_where_it_is_sought(
    one: Copier,
    log: FakeLog,
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    is_paused: bool,
) -> None:
    """What the program has paused itself stays so."""
    monkeypatch.setattr(committed_reader, "KEPT_MAX", 4)
    left_open(one)
    plain = [str(number) for number in range(20)]
    cluster.records["out", 0] += [(each, None) for each in plain]
    consumer = FakeConsumer(cluster)
    reader = CommittedReader({}, transport=log.transport(), data_consumer=consumer)
    reader.assign([OUT])
    assert read(reader) == []
    assert ("out", 0) in consumer.paused
    if is_paused:
        reader.pause([OUT])

    reader.seek(TopicPartition("out", 0, 1))

    assert read(reader) == ([] if is_paused else plain)
    reader.resume([OUT])
    assert read(reader) == (plain if is_paused else [])


def waiting_for_answers(
    log: FakeLog, cluster: FakeCluster, *places: TopicPartition
) -> tuple[CommittedReader, FakeTransport]:
    """A reader that has asked the coordinator, whose job is down."""
    transport = log.transport()
    reader = CommittedReader({}, transport=transport, data_consumer=FakeConsumer(cluster))
    reader.assign(list(places))
    log.job_is_up = False
    assert reader.poll(0) is None
    log.advance(2_000)
    assert reader.poll(0) is None
    assert len(transport._handlers) == len(places)
    return reader, transport


def test_a_transport_that_fails_while_a_question_is_open_is_told(
    one: Copier, log: FakeLog, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer will come: to wait for it in silence would be to wait for ever."""

    def fails() -> None:
        raise CannotReach("The transport has failed.")

    left_open(one)
    reader, transport = waiting_for_answers(log, cluster, OUT)
    monkeypatch.setattr(transport, "check", fails)

    for _ in range(2):
        with pytest.raises(CannotReach, match="failed"):
            reader.poll(0.1)


def test_a_question_that_fails_is_asked_again_and_others_keep_their_answers(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    two = Copier(log, cluster, "b").ready()
    left_undecided(one, "x")
    cluster.records["out", 1] = cluster.records["out", 0]
    del cluster.records["out", 0]
    left_undecided(two, "y")
    reader, transport = waiting_for_answers(log, cluster, OTHER, OUT)
    x, y = (cast(_Question, each) for each in transport._handlers.values())
    assert (x.txn.transactional_id, y.txn.transactional_id) == ("a", "b")
    y.feed = lambda _: y.fail(ValueError("broken"))  # type: ignore[method-assign]
    log.job_is_up = True
    log.advance(1_000)

    with pytest.raises(ValueError, match="broken"):
        reader.poll(0)

    assert [each.value() for each in reader.consume(1, 0)] == ["x"]
    assert [each.value() for each in reader.consume(1, 5.0)] == ["y"]
    assert transport._handlers == {}


def test_no_more_bytes_are_kept_than_may_wait(
    one: Copier, log: FakeLog, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed_reader, "KEPT_BYTES_MAX", 8)
    left_open(one)
    plain = [f"{number:02}" for number in range(20)]
    cluster.records["out", 0] += [(each, None) for each in plain]
    consumer = FakeConsumer(cluster)
    reader = CommittedReader({}, transport=log.transport(), data_consumer=consumer)
    reader.assign([OUT])

    for _ in range(3):
        assert read(reader) == []
        assert consumer.positions["out", 0] == 5, "1 byte and four times 2"
    one.producer.commit_transaction(PATIENCE_S)
    assert [each.value() for each in reader.consume(21, 5.0)] == ["x", *plain]


def tear(one: Copier) -> None:
    """The cluster loses a record of a committed transaction; z is committed behind it."""
    one.producer.begin_transaction()
    one.write("x", "y")
    one.producer.commit_transaction(PATIENCE_S)
    del one.cluster.records["out", 0][1]
    one.producer.begin_transaction()
    one.write("z")
    one.producer.commit_transaction(PATIENCE_S)


def test_a_torn_transaction_is_raised_again_and_other_partitions_are_read(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    tear(one)
    reader = open_reader(log, cluster, OUT, OTHER)

    for _ in range(5):
        with pytest.raises(TornTransaction):
            reader.poll(0.1)
    cluster.records["out", 1].append(("plain", None))
    found: list[Any] = []
    for _ in range(4):
        try:
            found += [each.value() for each in reader.consume(5, 0.1)]
        except TornTransaction as torn:
            error = torn
    assert found == ["plain"]
    reader.give_up(error, OUT)
    assert read(reader) == ["z"]


def test_a_marker_beyond_what_may_wait_is_not_waited_for(
    log: FakeLog, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more is read, so that another coordinator's marker is never seen."""
    monkeypatch.setattr(committed_reader, "KEPT_MAX", 4)
    cluster.records["out", 0].append(of_another_coordinator())
    reader = open_reader(log, cluster)
    with pytest.raises(UndecidedTransaction) as early:
        reader.poll(PATIENCE_S)
    assert "Call again to wait for its marker" in early.value.hint

    cluster.records["out", 0] += [("plain", None)] * 20
    with pytest.raises(UndecidedTransaction, match="cannot be waited for") as full:
        reader.poll(PATIENCE_S)
    assert "Call again" not in full.value.hint


def test_a_consumer_of_a_group_gives_up_a_torn_transaction(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    tear(one)
    consumer = CoordinatedConsumer(
        {**CONFIG, "group.id": "readers", "client.id": "r", "coord.decided.by": "coordinator"},
        transport=log.transport(),
        data_consumer=FakeConsumer(cluster),
    )
    consumer.subscribe(["out"])
    log.advance(3_000, lambda: consumer.member.poll())
    with pytest.raises(TornTransaction) as torn:
        consumer.poll(1.0)

    consumer.give_up(torn.value, OUT)

    assert read(consumer) == ["z"]


def test_a_consumer_that_reads_all_records_has_nothing_to_give_up(
    log: FakeLog, cluster: FakeCluster
) -> None:
    consumer = CoordinatedConsumer(
        CONFIG, transport=log.transport(), data_consumer=FakeConsumer(cluster)
    )
    torn = TornTransaction(Txn("FakeLog0", "a", 1, 0), "a record is missing", "out-0")

    with pytest.raises(CoordError, match="decided"):
        consumer.give_up(torn, OUT)

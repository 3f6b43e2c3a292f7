"""Programs that read what producers write whose transactions the coordinator decides."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.transactions import committed_reader
from coordlib.client.transactions.committed import TornTransaction, UndecidedTransaction
from coordlib.client.transactions.committed_reader import CommittedReader
from coordlib.client.transactions.idempotent import IdempotentProducer
from coordlib.client.transactions.machine import TransactionError
from coordlib.core.wire import api
from coordlib.core.wire.data_headers import Marker, Stamp, header_of
from coordlib.core.wire.transactions import COMMIT
from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.testing.fake_log import FakeLog
from tests.client.test_consumer import CONFIG
from tests.client.transactions.data import PATIENCE_S, FakeCluster, FakeConsumer, FakeMessage
from tests.client.transactions.test_by_coordinator import BROKEN, Copier, asked, dies, policies

__all__ = ["policies"]  # a fixture

OUT = TopicPartition("out", 0, 0)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> FakeLog:
    made = FakeLog({"t": 1, "out": 1})
    monkeypatch.setattr(committed_reader, "_now_ms", lambda: made.now_ms)
    monkeypatch.setattr(committed_reader, "LOOK_S", 0.0)
    return made


@pytest.fixture
def cluster(log: FakeLog) -> FakeCluster:
    return FakeCluster(log)


@pytest.fixture
def one(log: FakeLog, cluster: FakeCluster) -> Copier:
    return Copier(log, cluster).ready()


def open_reader(log: FakeLog, cluster: FakeCluster, *places: TopicPartition) -> CommittedReader:
    made = CommittedReader({}, transport=log.transport(), data_consumer=FakeConsumer(cluster))
    made.assign(list(places or (OUT,)))
    return made


def read(reader: Any, timeout: float = 0.1) -> list[Any]:
    """Values, until for this time there are none."""
    found = []
    while (message := reader.poll(timeout)) is not None:
        assert message.error() is None
        found.append(message.value())
    return found


def left_undecided(one: Copier, *values: str) -> None:
    """Its process dies behind the decision; no marker is written."""
    one.producer.begin_transaction()
    one.write(*values)
    assert one.producer.flush(PATIENCE_S) == 0
    one.cluster.is_up = False
    with pytest.raises(TransactionError):
        one.producer.commit_transaction(0.1)
    dies(one)
    one.cluster.is_up = True


@pytest.mark.parametrize("name", ["poll", "consume"])
def test_a_second_thread_that_polls_is_refused(
    log: FakeLog, cluster: FakeCluster, name: str
) -> None:
    """It was handed the records of the first one, too."""
    reader = open_reader(log, cluster)
    inside, go_on = threading.Event(), threading.Event()
    was = reader._data.poll

    def poll(timeout: float) -> Any:
        inside.set()
        go_on.wait()
        return was(timeout)

    reader._data.poll = poll
    other = threading.Thread(target=reader.poll, args=(0,))
    other.start()
    inside.wait()
    call = {"poll": lambda: reader.poll(0), "consume": lambda: reader.consume(1, 0)}[name]
    timer = threading.Timer(5, go_on.set)  # where it is not refused, it waits for the other one
    timer.start()
    with pytest.raises(CoordError, match="Another thread is polling"):
        call()
    timer.cancel()
    go_on.set()
    other.join()
    call()


def test_committed_records_are_read_and_nobody_is_asked(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    reader = open_reader(log, cluster)
    one.unit(2)
    one.producer.begin_transaction()
    one.write("dropped")
    assert one.producer.flush(PATIENCE_S) == 0
    one.producer.abort_transaction(PATIENCE_S)
    one.unit(1)

    assert read(reader) == ["v0", "v1", "v2"]
    assert asked(log, api.DescribeTransaction) == []
    assert reader.position([OUT])[0].offset == 6
    assert reader.last_stable(OUT) == 7


def test_where_a_marker_stays_away_the_coordinator_is_asked(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    reader = open_reader(log, cluster)
    left_undecided(one, "x", "y")

    assert reader.poll(0) is None
    assert reader.last_stable(OUT) == 0
    assert [reader.poll(PATIENCE_S).value() for _ in "xy"] == ["x", "y"]  # type: ignore[union-attr]
    assert len(asked(log, api.DescribeTransaction)) == 1


def test_an_open_transaction_holds_back_what_stands_behind_it(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    """Its timeout ends it: then the rest is delivered, and no marker was ever written."""
    one.producer.begin_transaction()
    one.write("x")
    assert one.producer.flush(PATIENCE_S) == 0
    dies(one)
    cluster.records["out", 0].append(("plain", None))
    reader = open_reader(log, cluster)

    assert reader.poll(0) is None
    log.advance(12_000)
    message = reader.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == "plain"


def test_a_reader_of_another_coordinator_s_transaction_says_so(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    """Nobody here can be asked; its marker may come."""
    other = {"i": "Other000", "t": "b", "p": 3, "e": 0}
    cluster.records["out", 0].append(("theirs", [header_of(Stamp(**other, s=0))]))
    reader = open_reader(log, cluster)

    with pytest.raises(UndecidedTransaction, match="Other000"):
        reader.poll(PATIENCE_S)
    assert reader.poll(0.05) is None
    cluster.records["out", 0].append((None, [header_of(Marker(**other, r=COMMIT, n=1))]))
    assert read(reader) == ["theirs"]


def test_records_of_others_are_delivered_as_they_are(log: FakeLog, cluster: FakeCluster) -> None:
    """Headers that no producer of ours writes mean nothing."""
    strange: list[tuple[Any, Any]] = [
        ("a", None),
        ("b", [("coord-txn", b"not json")]),
        ("c", [("coord-txn", None)]),
        ("d", [("coord-marker", b"{}")]),
        ("e", [("coord-txn", b'{"i":"FakeLog0","p":1,"s":0,"t":"x"}')]),
        ("f", [("coord-txn", b'{"i":"FakeLog0","p":-1,"s":0}')]),
        (None, [("other", b"x")]),
        ("g", [header_of(Stamp(i="FakeLog0", p=1, s=0))] * 2),
        ("h", [("coord-txn", b'{"i":"FakeLog0","p":1,"s":0,"t":"x","e":40000}')]),
    ]
    cluster.records["out", 0] += strange

    assert read(open_reader(log, cluster)) == [value for value, _ in strange]


def test_a_torn_transaction_is_raised_until_it_is_given_up(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    one.producer.begin_transaction()
    one.write("x", "y")
    one.producer.commit_transaction(PATIENCE_S)
    one.producer.begin_transaction()
    one.write("z")
    one.producer.commit_transaction(PATIENCE_S)
    del cluster.records["out", 0][1]  # the cluster has lost it
    reader = open_reader(log, cluster)

    for _ in range(2):
        with pytest.raises(TornTransaction) as torn:
            reader.poll(1.0)
    reader.give_up(torn.value, OUT)

    assert read(reader) == ["z"]


@pytest.mark.parametrize("name", ["unassign", "seek"])
def test_what_was_met_behind_messages_at_hand_goes_with_the_partition(
    one: Copier, log: FakeLog, cluster: FakeCluster, name: str
) -> None:
    """A torn transaction is met ahead of the records before it, which are handed out first."""
    one.unit(2)
    one.producer.begin_transaction()
    one.write("x", "y")
    one.producer.commit_transaction(PATIENCE_S)
    del cluster.records["out", 0][3]
    reader = open_reader(log, cluster)
    message = reader.poll(1.0)
    assert message is not None
    assert message.value() == "v0"
    assert reader._problem is not None, "it was met"

    if name == "unassign":
        reader.incremental_unassign([OUT])
        assert reader.poll(0) is None
    else:
        reader.seek(TopicPartition("out", 0, 0))
        assert [message.value() for message in reader.consume(2, 1.0)] == ["v0", "v1"]
        with pytest.raises(TornTransaction):
            reader.poll(1.0)


@pytest.mark.parametrize("is_reading", [True, False])
def test_a_reader_that_retention_overtakes_tells_what_it_had_begun_and_no_more(
    one: Copier, log: FakeLog, cluster: FakeCluster, is_reading: bool
) -> None:
    """Of a transaction that it holds it knows how many records are missing. What stood before the
    begin of its log it cannot know: the limits page says so."""
    one.producer.begin_transaction()
    one.write("w", "x")
    assert one.producer.flush(PATIENCE_S) == 0
    reader = open_reader(log, cluster)
    if is_reading:
        assert read(reader) == []
    one.write("y", "z")
    one.producer.commit_transaction(PATIENCE_S)
    cluster.begins["out", 0] = 3

    if is_reading:
        with pytest.raises(TornTransaction, match="records 2 to 2 are missing"):
            reader.poll(1.0)
    else:
        assert read(reader) == ["z"]


def test_a_forged_record_of_an_unknown_id_stops_nobody(log: FakeLog, cluster: FakeCluster) -> None:
    forged = header_of(Stamp(i="FakeLog0", t="nobody", p=1, e=0, s=0))
    cluster.records["out", 0] += [("forged", [forged]), ("plain", None)]
    reader = open_reader(log, cluster)

    message = reader.poll(PATIENCE_S)

    assert message is not None
    assert message.value() == "plain"


def test_partitions_come_and_go(one: Copier, log: FakeLog, cluster: FakeCluster) -> None:
    cluster.records["out", 0] += [("a", None), ("b", None)]
    cluster.records["out", 1] += [("c", None)]
    other = TopicPartition("out", 1, 0)
    reader = open_reader(log, cluster, OUT, other)

    reader.pause([OUT])
    assert read(reader) == ["c"]
    reader.resume([OUT])
    assert read(reader) == ["a", "b"]
    reader.seek(TopicPartition("out", 0, 1))
    assert read(reader) == ["b"]
    reader.incremental_unassign([OUT])
    assert [(each.topic, each.partition) for each in reader.assignment()] == [("out", 1)]
    with pytest.raises(CoordError, match="not read here"):
        reader.last_stable(OUT)
    reader.incremental_assign([OUT])
    assert reader.consume(5, 0.1)[0].value() == "a"
    reader.unassign()
    assert read(reader) == []
    with pytest.raises(CoordError, match="joins no group"):
        reader.subscribe(["out"])
    reader.close()


def test_no_more_is_read_than_may_wait(
    one: Copier, log: FakeLog, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open transaction must not fill this program's memory with what stands behind it."""
    monkeypatch.setattr(committed_reader, "KEPT_MAX", 4)
    one.producer.begin_transaction()
    one.write("x")
    assert one.producer.flush(PATIENCE_S) == 0
    cluster.records["out", 0] += [(str(number), None) for number in range(20)]
    consumer = FakeConsumer(cluster)
    reader = CommittedReader({}, transport=log.transport(), data_consumer=consumer)
    reader.assign([OUT])

    assert read(reader) == []
    assert consumer.positions["out", 0] == 4
    one.producer.commit_transaction(PATIENCE_S)
    assert read(reader, 5.0)[:3] == ["x", "0", "1"]


@pytest.mark.parametrize("how", ["assign", "incremental_assign"])
def test_a_partition_of_which_too_much_waited_is_read_when_it_comes_back(
    one: Copier, log: FakeLog, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A rebalance takes it away and gives it back. librdkafka kept it paused: nothing of it was
    ever read again, without an error.
    """
    monkeypatch.setattr(committed_reader, "KEPT_MAX", 4)
    one.producer.begin_transaction()
    one.write("x")
    assert one.producer.flush(PATIENCE_S) == 0
    cluster.records["out", 0] += [(str(number), None) for number in range(20)]
    reader = open_reader(log, cluster)
    assert read(reader) == []
    if how == "incremental_assign":
        reader.incremental_unassign([OUT])
    one.producer.commit_transaction(PATIENCE_S)
    getattr(reader, how)([OUT])

    assert read(reader, 5.0)[:3] == ["x", "0", "1"]


def test_errors_are_the_program_s(log: FakeLog, cluster: FakeCluster) -> None:
    consumer = FakeConsumer(cluster)
    event = FakeMessage.event(("out", 0), 0, KafkaError._ALL_BROKERS_DOWN)
    events: list[Any] = [event]
    poll: Callable[[float], Any] = consumer.poll
    consumer.poll = lambda t: events.pop() if events else poll(t)  # type: ignore[method-assign]
    reader = CommittedReader({}, transport=log.transport(), data_consumer=consumer)
    reader.assign([OUT])

    assert reader.poll(0) is event


# ---- in a group ----------------------------------------------------------------------------------


def test_a_consumer_of_a_group_reads_committed_records_alone(
    one: Copier, log: FakeLog, cluster: FakeCluster
) -> None:
    consumer = CoordinatedConsumer(
        {**CONFIG, "group.id": "readers", "client.id": "r", "coord.decided.by": "coordinator"},
        transport=log.transport(),
        data_consumer=FakeConsumer(cluster),
    )
    consumer.subscribe(["out"])
    log.advance(3_000, lambda: consumer.member.poll())
    one.producer.begin_transaction()
    one.write("x")
    assert one.producer.flush(PATIENCE_S) == 0
    assert consumer.poll(0.1) is None
    one.producer.commit_transaction(PATIENCE_S)

    message = consumer.poll(1.0)

    assert message is not None
    assert message.value() == "x"
    consumer.commit()
    log.advance(1_000)
    future = consumer.member.committed_async()
    log.pump()
    assert [row.offset for row in future.result(0).offsets] == [1]


def test_who_decides_is_kafka_or_the_coordinator(log: FakeLog) -> None:
    with pytest.raises(SetupError, match="decided"):
        CoordinatedConsumer({**CONFIG, "coord.decided.by": "chance"}, transport=log.transport())


# ---- producers without id ------------------------------------------------------------------------


def producer_of(log: FakeLog, cluster: FakeCluster, **config: Any) -> IdempotentProducer:
    return IdempotentProducer(
        {"client.id": "i", **config}, transport=log.transport(), open_producer=cluster.producer
    )


def test_what_is_sent_again_after_a_fatal_error_is_read_once(
    log: FakeLog, cluster: FakeCluster
) -> None:
    """The log has taken the first record, and its acknowledgement was lost."""
    told: list[Any] = []
    producer = producer_of(log, cluster)
    for value in ("a", "b", "c"):
        producer.produce("out", value, partition=0, on_delivery=lambda error, _: told.append(error))
    lost = cluster.records["out", 0]
    cluster.fails = BROKEN
    headers = producer._data._producer._queue[0][2]  # type: ignore[attr-defined]
    lost.append(("a", headers))
    producer.poll(0)
    cluster.fails = None
    assert producer.flush(PATIENCE_S) == 0

    assert [value for value, _ in cluster.records["out", 0]] == ["a", "a", "b", "c"]
    assert read(open_reader(log, cluster)) == ["a", "b", "c"]
    assert told == [None, None, None]


def test_each_producer_without_id_has_an_id_of_its_own(log: FakeLog, cluster: FakeCluster) -> None:
    for value in ("a", "b"):
        producer_of(log, cluster).produce("out", value, partition=0)
    stamps = []
    for number in range(2):
        with producer_of(log, cluster) as producer:
            producer.produce("out", str(number), partition=0)
    for header in cluster.headers():
        assert isinstance(header, Stamp)
        assert header.txn is None
        stamps.append((header.p, header.s))

    assert len(set(stamps)) == len(stamps)
    assert read(open_reader(log, cluster))[-2:] == ["0", "1"]


def test_a_record_that_is_given_up_is_told(log: FakeLog, cluster: FakeCluster) -> None:
    told: list[Any] = []
    producer = producer_of(log, cluster)
    cluster.fails = KafkaError(KafkaError._MSG_TIMED_OUT)
    producer.produce("out", "x", callback=lambda error, _: told.append(error.code()))

    assert producer.flush(PATIENCE_S) == 0
    assert told == [KafkaError._MSG_TIMED_OUT]
    with pytest.raises(SetupError, match="no transactional"):
        producer_of(log, cluster, **{"transactional.id": "a"})


def test_a_coordinator_that_is_away_at_the_end_leaves_nothing_open(
    log: FakeLog, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = open_reader(log, cluster)

    def breaks() -> None:
        raise CannotReach("no broker")

    monkeypatch.setattr(reader._describing, "close", breaks)
    with pytest.raises(CannotReach):
        reader.close()

    assert reader._data.positions == {}


def test_an_interruption_takes_no_records_away(
    one: Copier, log: FakeLog, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a call waits for more than it has, and the program keeps its position: what the
    call had taken was given to nobody, and the position stood behind it.
    """
    one.unit(2)
    reader = open_reader(log, cluster)
    poll, polled = reader._data.poll, []

    def interrupted(timeout: float) -> Any:
        message = poll(timeout)
        polled.append(message)
        if message is None and len(polled) > 1:
            raise KeyboardInterrupt
        return message

    monkeypatch.setattr(reader._data, "poll", interrupted)
    assert [message.value() for message in reader.consume(500, 5.0)] == ["v0", "v1"]
    with pytest.raises(KeyboardInterrupt):
        reader.consume(500, 5.0)
    assert [each.offset for each in reader.position([OUT])] == [2]

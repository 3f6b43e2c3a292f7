"""Reading a partition to its end: what is there, what is left out, and when it ends."""

import time
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from coordlib.errors import CannotReach
from coordlib.kafka.cluster import create_topic, partitions_of
from coordlib.kafka.reading import PartitionReader, _until, newest_by_key, newest_of_each
from coordlib.local.broker import Broker

PARTITIONS = 4


class Poll:
    """A consumer that answers one poll after another; then it is silent."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    def poll(self, _timeout_s: float) -> object:
        return self.answers.pop(0) if self.answers else time.sleep(0.01)


class Record:
    def __init__(self, offset: int = -1, error: int | None = None) -> None:
        self._offset, self._error = offset, error

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return None if self._error is None else KafkaError(self._error)


def offsets(*answers: object, end: int = 9) -> list[int | None]:
    consumer: Any = Poll(*answers)
    return [each.offset() for each in _until(consumer, end, 0.05)]


def test_it_ends_with_the_last_record() -> None:
    """No further fetch: in a log that grows, one would bring records of later."""
    assert offsets(Record(7), Record(8), Record(9)) == [7, 8]


def test_it_ends_where_only_marks_of_transactions_are_left() -> None:
    assert offsets(Record(6), Record(error=KafkaError._PARTITION_EOF)) == [6]


def test_a_connection_that_is_lost_comes_back() -> None:
    """The broker restarts under a reader; the client connects again by itself."""
    lost = Record(error=KafkaError._ALL_BROKERS_DOWN)

    assert offsets(Record(7), lost, None, Record(8)) == [7, 8]


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (None, KafkaError._TIMED_OUT),
        (
            Record(error=KafkaError.TOPIC_AUTHORIZATION_FAILED),
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_silence_and_refusal_raise(last: object, code: int) -> None:
    """What was read so far must not be taken for all that there is."""
    with pytest.raises(KafkaException) as caught:
        offsets(Record(7), last)
    assert caught.value.args[0].code() == code


class Topic:
    """One partition on a real broker, with records of transactions."""

    def __init__(self, broker: Broker) -> None:
        self.client = {"bootstrap.servers": broker.bootstrap_servers}
        self.name = f"reading-{uuid4().hex[:8]}"
        create_topic(self.client, self.name, PARTITIONS)
        self.producer = Producer({**self.client, "transactional.id": self.name})
        self.producer.init_transactions(60)

    def write(self, *keys: str, is_kept: bool = True, partition: int = 0) -> None:
        self.producer.begin_transaction()
        for key in keys:
            value = f"{key} {is_kept}".encode()
            self.producer.produce(self.name, value, key.encode(), partition)
        self.producer.flush(60)
        if is_kept:
            self.producer.commit_transaction(60)
        else:
            self.producer.abort_transaction(60)

    def read(self, newest_max: int | None = None) -> tuple[list[str], int]:
        """Keys, and how many offsets were left out."""
        cut: list[int] = []
        with PartitionReader(self.client) as reader:
            found = reader.read(self.name, 0, newest_max=newest_max, on_cut=cut.append)
            return [_key(each) for each in found], sum(cut)


def _key(message: Message) -> str:
    key: Any = message.key() or b""
    return str(key.decode())


@pytest.mark.stack
def test_committed_records_of_a_real_partition(broker: Broker) -> None:
    topic = Topic(broker)
    assert topic.read() == ([], 0)
    topic.write("a", "b")
    topic.write("gone", is_kept=False)
    topic.write("a")

    assert topic.read() == (["a", "b", "a"], 0)
    assert topic.read(newest_max=2) == (["a"], 5), "of offsets: marks and aborted records count"
    live = newest_by_key(topic.client, topic.name, 0)
    assert list(live.items()) == [(b"b", b"b True"), (b"a", b"a True")]


@pytest.mark.stack
def test_one_client_reads_many_partitions(broker: Broker) -> None:
    """What it has fetched of one of them beyond that one's end is nothing of the next one."""
    topic = Topic(broker)
    expected: dict[int, dict[bytes, bytes]] = {}
    for partition in range(PARTITIONS):
        keys = [f"{partition}-{n}" for n in range(100 * partition)]  # the first one is empty
        if keys:
            topic.write(*keys, partition=partition)
            topic.write("gone", is_kept=False, partition=partition)
        expected[partition] = {key.encode(): f"{key} True".encode() for key in keys}

    assert newest_of_each(topic.client, topic.name, range(PARTITIONS)) == expected
    assert newest_of_each(topic.client, topic.name, [3, 1]) == {3: expected[3], 1: expected[1]}


@pytest.mark.stack
def test_a_topic_that_is_not_there(broker: Broker) -> None:
    client = {"bootstrap.servers": broker.bootstrap_servers}

    assert partitions_of(client, "nobodys", 10.0) == []
    with pytest.raises(CannotReach, match="nobodys cannot be read"):
        newest_by_key(client, "nobodys", 0, silence_s=1.0)

"""An EndTxn that reaches a real broker late: what it does to a plain producer, and not to ours.

The connection breaks behind the request, so the client sends it again. If these tests fail because
EndTxn has version 5, librdkafka has KIP-890, and the cure is needed no more.
"""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from coordlib.client import CoordinatedProducer
from coordlib.client.transactions.by_kafka import KafkaTransactions
from coordlib.core.engine.effects import Output
from coordlib.job import sink as sinks
from coordlib.job.batch import Batch
from coordlib.job.checkpoint import Identity
from coordlib.job.pipelines import groups
from coordlib.job.sink import TransactionalSink, open_producer
from coordlib.kafka import reading, topics
from coordlib.kafka.reading import read_to_end
from coordlib.kafka.transactions import DOUBTFUL_AFTER_MS
from coordlib.local.broker import Broker
from coordlib.local.jars import ensure_jars
from coordlib.local.processes import LOOPBACK, free_ports
from tests.stack.proxy import END_TXN, Proxy

pytestmark = [pytest.mark.stack, pytest.mark.fault]

#: The first version of EndTxn that has an epoch for each transaction.
KIP_890 = 5
#: Of the wire's listener that the proxy stands before; of a repeated key the later one holds.
LISTENERS = """
listeners=PLAINTEXT://{0}:{1},CONTROLLER://{0}:{2},PROXIED://{0}:{3}
advertised.listeners=PLAINTEXT://{0}:{1},PROXIED://{0}:{4}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT
"""


class ProxiedBroker(Broker):
    """A broker with one listener more, whose clients are sent to the proxy."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, ensure_jars().broker)
        self.behind, self.before = free_ports(2)

    def _render(self, ports: tuple[int, int]) -> None:
        super()._render(ports)
        with (self.home / "server.properties").open("a") as file:
            file.write(LISTENERS.format(LOOPBACK, *ports, self.behind, self.before))


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedBroker]:
    broker = ProxiedBroker(tmp_path_factory.mktemp("proxied"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def proxy(proxied: ProxiedBroker) -> Iterator[Proxy]:
    standing = Proxy(proxied.before, proxied.behind)
    yield standing
    standing.close()


@pytest.fixture
def through(proxied: ProxiedBroker, proxy: Proxy) -> dict[str, str]:
    """Options of a client that talks through the proxy."""
    return {"bootstrap.servers": f"{LOOPBACK}:{proxied.before}"}


@pytest.fixture
def prefix(proxied: ProxiedBroker) -> str:
    """Topics of a prefix that no other test uses."""
    made = f"p-{uuid4().hex[:8]}"
    topics.create({"bootstrap.servers": proxied.bootstrap_servers}, made, 1, 1, 1)
    return made


def committed(broker: Broker, topic: str) -> list[bytes]:
    """What a reader sees that reads committed."""
    options = {"bootstrap.servers": broker.bootstrap_servers}
    return [message.value() or b"" for message in read_to_end(options, topic, 0)]


@pytest.mark.chaos
def test_it_ends_the_next_transaction_of_a_plain_producer(
    proxied: ProxiedBroker, proxy: Proxy, through: dict[str, str], prefix: str
) -> None:
    """One half of what was aborted is visible for ever. With librdkafka's defaults nothing tells
    that the request was sent again: no error, and no long wait."""
    topic, told = f"{prefix}.responses", list[Any]()
    config: dict[str, Any] = {"transactional.id": prefix, "error_cb": told.append, "log_level": 2}
    producer = Producer({**through, **config})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"first", partition=0)
    proxy.hold_next(END_TXN)
    producer.commit_transaction(60)
    producer.poll(0)
    assert told == []
    first, again = proxy.times_of(END_TXN)
    assert again - first < 1

    producer.begin_transaction()
    producer.produce(topic, b"one half", partition=0)
    producer.flush(60)
    proxy.deliver()
    producer.produce(f"{prefix}.events", b"the other half", partition=0)
    producer.flush(60)
    producer.abort_transaction(60)

    assert committed(proxied, topic) == [b"first", b"one half"]
    assert committed(proxied, f"{prefix}.events") == []
    assert all(each.version < KIP_890 for each in proxy.seen if each.api == END_TXN)


@pytest.mark.parametrize(
    ("is_cured", "halves"), [(True, []), (False, [b"one half"])], ids=["cured", "not"]
)
def test_it_ends_nothing_of_a_coordinated_producer(
    proxied: ProxiedBroker,
    proxy: Proxy,
    through: dict[str, str],
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    is_cured: bool,
    halves: list[bytes],
) -> None:
    """INV-99: the same as above. The transaction before took so long that it is doubtful, so the
    next one has a producer, and an epoch, of its own."""
    if not is_cured:
        monkeypatch.setattr(KafkaTransactions, "needs_renewal", False)
    topic = f"{prefix}.responses"
    with CoordinatedProducer({**through, "transactional.id": prefix, "log_level": 2}) as producer:
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, b"first", partition=0)
        proxy.hold_next(END_TXN)
        producer.commit_transaction(60)
        first, again = proxy.times_of(END_TXN)
        assert (again - first) * 1000 >= DOUBTFUL_AFTER_MS

        producer.begin_transaction()
        producer.produce(topic, b"one half", partition=0)
        producer.flush(60)
        proxy.deliver()
        producer.produce(f"{prefix}.events", b"the other half", partition=0)
        producer.flush(60)
        producer.abort_transaction(60)

    assert committed(proxied, topic) == [b"first", *halves]
    assert committed(proxied, f"{prefix}.events") == []


class Died(Exception):
    """The driver's process is gone."""


class Dying:
    """The sink's producer, until its driver dies with one half of a batch written.

    Whatever was held up reaches the broker just before that.
    """

    def __init__(self, producer: Producer, proxy: Proxy, progress: str) -> None:
        self._producer, self._proxy, self._progress = producer, proxy, progress
        self.is_dying = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def produce(self, topic: str, *arguments: Any, **named: Any) -> None:
        if self.is_dying and topic == self._progress:
            self._producer.flush(60)
            self._proxy.deliver()
            raise Died
        self._producer.produce(topic, *arguments, **named)


class Driver:
    """A sink that has started. Of the same prefix there is one, and then the next."""

    def __init__(self, proxy: Proxy, through: dict[str, str], prefix: str) -> None:
        self.pipeline = groups(prefix)
        self.opened: list[Dying] = []
        self._proxy, self._through = proxy, through
        self._identity = Identity(checkpoint="c", prefix=prefix, shards=1, incarnation="i")
        newest_by_key = partial(reading.newest_by_key, through)
        self.sink = TransactionalSink(self.pipeline, self._open, newest_by_key)
        self.sink.open()

    def _open(self) -> Dying:
        made = open_producer(self.pipeline, self._through, 60_000)
        self.opened.append(Dying(made, self._proxy, self.pipeline.progress))
        return self.opened[-1]

    def write(self, number: int) -> None:
        outputs = [Output("responses", 0, b"k", b"answer %d" % number)]
        self.sink.write(Batch(number=number, outputs=outputs, reports=[]), self._identity)


@pytest.mark.parametrize(
    ("doubtful_after_ms", "times"), [(DOUBTFUL_AFTER_MS, 1), (math.inf, 2)], ids=["cured", "not"]
)
def test_the_batch_behind_it_is_written_once_if_the_sink_takes_another_producer(
    proxied: ProxiedBroker,
    proxy: Proxy,
    through: dict[str, str],
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    doubtful_after_ms: float,
    times: int,
) -> None:
    """INV-99: the driver dies in the middle of batch 2, and the next one writes that again. Without
    another producer, one half of it was committed already."""
    monkeypatch.setattr(sinks, "DOUBTFUL_AFTER_MS", doubtful_after_ms)
    driver = Driver(proxy, through, prefix)
    driver.write(0)
    opened = len(driver.opened)
    proxy.hold_next(END_TXN)
    driver.write(1)
    first, again = proxy.times_of(END_TXN)[-2:]
    assert (again - first) * 1000 >= DOUBTFUL_AFTER_MS
    assert (len(driver.opened) > opened) is (times == 1)

    driver.opened[-1].is_dying = True
    with pytest.raises(Died):
        driver.write(2)
    Driver(proxy, through, prefix).write(2)

    answers = [b"answer 0", b"answer 1", *[b"answer 2"] * times]
    assert committed(proxied, f"{prefix}.responses") == answers

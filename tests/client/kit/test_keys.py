"""Keys of a configuration: those of the other kind of client, wrong ones, and missing ones."""

import logging
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from coordlib.client import (
    AssignedMember,
    BrokerAgent,
    ClassicMember,
    CommittedReader,
    CoordinatedConsumer,
    CoordinatedProducer,
    Endpoint,
    IdempotentProducer,
)
from coordlib.client.admin import Admin
from coordlib.client.claims import ConsumerOptions, Marshaler
from coordlib.client.claims.options import data_consumer_of
from coordlib.client.kit import transport as shell_transport
from coordlib.client.kit.data import open_reader
from coordlib.client.kit.transport import KafkaTransport
from coordlib.client.transactions.data_cluster import open_idempotent, open_transactional
from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.kafka.clients import open_admin
from coordlib.kafka.layout import Place
from coordlib.kafka.options import CONSUMERS, PRODUCERS, for_producer, shared

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
#: Keys that librdkafka itself does not take: confluent-kafka's own, and one that has no warning.
NO_WARNING = {"on_commit", "on_delivery", "allow.auto.create.topics"}
VALUES: dict[str, Any] = {
    "check.crcs": "true",
    "queue.buffering.backpressure.threshold": 5,
    "group.protocol": "consumer",
    "group.protocol.type": "consumer",
    "offset.store.method": "broker",
    "partition.assignment.strategy": "range",
    "isolation.level": "read_uncommitted",
    "auto.offset.reset": "earliest",
    "compression.codec": "gzip",
    "compression.type": "gzip",
    "compression.level": 1,
    "queuing.strategy": "lifo",
    "partitioner": "random",
    "acks": 1,
    "request.required.acks": 1,
}
CLIENTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "consumer, classic": lambda keys: CoordinatedConsumer({"group.id": "g", **keys}),
    "consumer, assigned": lambda keys: CoordinatedConsumer(
        {"group.id": "g", "group.protocol": "assigned", **keys}
    ),
    "classic member": lambda keys: ClassicMember("g", keys),
    "assigned member": lambda keys: AssignedMember("g", keys),
    "broker": lambda keys: BrokerAgent(
        "c", {"client.dns.lookup": "use_all_dns_ips", **keys}, broker=1,
        endpoints=[Endpoint("a", "h", 1)],
    ),
    "admin": Admin,
    "claims": lambda keys: Marshaler({"group.id": "g", "client.id": "c", **keys}),
    "reader": CommittedReader,
    "producer, by the coordinator": lambda keys: CoordinatedProducer(
        {"transactional.id": "t", "coord.decided.by": "coordinator", **keys}
    ),
    "producer, by Kafka": lambda keys: CoordinatedProducer({"transactional.id": "t", **keys}),
    "idempotent producer": IdempotentProducer,
}  # fmt: skip
#: Clients that read, or ask; a transactional id promises what they do not do.
READING = [name for name in CLIENTS if "producer" not in name]


class Noting(logging.Handler):
    """What a client of librdkafka's logs."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def warned(kind: Any, options: dict[str, Any]) -> list[str]:
    """What librdkafka warns of when such a client is made."""
    noting, logger = Noting(), logging.Logger("rdkafka")
    logger.addHandler(noting)
    own = {"group.id": "g"} if kind is Consumer else {}
    client = kind({**own, **options}, logger=logger)
    client.poll(0)
    return [each for each in noting.said if "CONFWARN" in each]


@pytest.mark.parametrize(
    ("kind", "key"),
    [(Producer, key) for key in sorted(CONSUMERS)] + [(Consumer, key) for key in sorted(PRODUCERS)],
)
def test_each_key_is_of_the_kind_that_the_library_says(kind: Any, key: str) -> None:
    """A list that is written by hand grows old with the next library."""
    value: Any = VALUES.get(key, 1000 if key.endswith((".ms", "s", "bytes", "size")) else "true")
    if key.endswith((".id", ".path", ".assignor")):
        value = "x"
    if key not in NO_WARNING:
        assert any("will be ignored" in each for each in warned(kind, {**NOWHERE, key: value}))
    assert key not in shared({key: value})
    assert (key in for_producer({key: value})) == (key in PRODUCERS)


TUNED = {
    **NOWHERE,
    "fetch.min.bytes": 100_000_000,
    "isolation.level": "read_uncommitted",
    "queued.min.messages": 1,
    "acks": 0,
    "retries": 0,
    "compression.type": "gzip",
    "enable.auto.offset.store": True,
}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The configurations with which a transport opens its clients; no broker is asked."""
    made: list[dict[str, Any]] = []

    def note(options: Any, *_: Any, **__: Any) -> Any:
        made.append(dict(options))
        raise CannotReach("enough")

    place = Place("coord", 1, 1, "AbCdEfGh")
    monkeypatch.setattr(
        shell_transport, "find_place", lambda config, *_: made.append(config) or place
    )
    monkeypatch.setattr(shell_transport, "ResponseReader", note)
    return made


def test_the_clients_of_a_transport_get_no_keys_of_consumers_or_producers(
    opened: list[dict[str, Any]],
) -> None:
    """Each such key was warned of twice or more, on stderr, to people who had made no producer;
    `retries` 0 ended the constructor with an error about a key that they had not set."""
    with pytest.raises(CannotReach, match="enough"):
        KafkaTransport(TUNED)

    for options in opened:
        assert not (CONSUMERS | PRODUCERS) & options.keys()
        assert options["bootstrap.servers"] == NOWHERE["bootstrap.servers"]


def test_a_producer_is_not_warned_of_consumers_keys(capfd: pytest.CaptureFixture[str]) -> None:
    keys = {**NOWHERE, "group.id": "g", "fetch.min.bytes": 5, "auto.offset.reset": "earliest"}
    open_idempotent(keys)
    open_transactional({**keys, "transactional.id": "t"}, lambda _: None)
    time.sleep(0.1)

    assert "CONFWARN" not in capfd.readouterr().err


@pytest.mark.parametrize("name", READING)
def test_a_transactional_id_is_refused_where_there_are_no_transactions(name: str) -> None:
    """One dict for producer and consumer: the consumer never joined, never raised, and logged
    nothing."""
    with pytest.raises(SetupError, match=r"transactional\.id"):
        CLIENTS[name]({**NOWHERE, "transactional.id": "copier-1"})


@pytest.mark.parametrize("name", CLIENTS)
def test_brokers_that_are_not_named_are_missed_at_once(name: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(SetupError, match="name no brokers") as missed:
        CLIENTS[name]({})

    assert "localhost:9092" in missed.value.hint
    assert time.monotonic() - began_s < 20


@pytest.mark.parametrize("wrong", [{"no.such.key": 500}, {"stats_cb": 5}])
@pytest.mark.parametrize(
    "client",
    [
        open_reader,
        open_idempotent,
        lambda keys: open_transactional({**keys, "transactional.id": "t"}, lambda _: None),
        lambda keys: data_consumer_of(keys, "c", ConsumerOptions()),
        *(CLIENTS[name] for name in CLIENTS),
    ],
)
def test_a_wrong_key_is_a_setup_error(client: Any, wrong: dict[str, Any]) -> None:
    """confluent-kafka's own exception came out of constructors that promise another one."""
    with pytest.raises(CoordError) as refused:
        client({**NOWHERE, **wrong})

    assert isinstance(refused.value, SetupError)


@pytest.mark.parametrize("name", [each for each in CLIENTS if "by Kafka" not in each])
def test_nobody_who_listens_is_told_in_the_time_of_a_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong port: it took 30 s, and a command takes 5."""
    if name == "reader":
        pytest.skip("it asks nobody before it reads")
    monkeypatch.setattr("coordlib.kafka.layout.FIRST_LOOK_S", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began_s = time.monotonic()
    with pytest.raises(CannotReach) as told:
        CLIENTS[name]({"bootstrap.servers": f"127.0.0.1:{port}"})

    assert f"127.0.0.1:{port}" in str(told.value)
    assert time.monotonic() - began_s < 25


@pytest.mark.parametrize("number", [7, 7.5])
def test_a_name_that_is_a_number_is_taken_or_refused_and_never_a_bare_error(number: Any) -> None:
    """confluent-kafka takes numbers for any key; here `client.id` ended with AttributeError."""
    keys = {**NOWHERE, "client.id": number, "client.rack": number, "group.instance.id": number}
    with pytest.raises(CoordError) as told:
        CLIENTS["consumer, classic"]({**keys, "group.id": number, "no.such.key": 5})
    assert "no.such.key" in str(told.value)
    for field in ("client", "instance", "rack"):
        with pytest.raises(SetupError, match="needs 1 to"):
            ClassicMember("g", NOWHERE, **{field: number})
    with pytest.raises(SetupError, match="needs 1 to"):
        ClassicMember(number, NOWHERE)


@pytest.mark.parametrize("name", ["a\nb", "", "\x7f", "\udc80", "x" * 250])
def test_a_name_that_is_refused_is_refused_for_its_own_reason(name: str) -> None:
    """A newline was refused with the length of names."""
    for make in (ClassicMember, AssignedMember):
        with pytest.raises(SetupError, match="1 to 249 bytes of UTF-8 without control characters"):
            make(name, NOWHERE)


def test_an_admin_client_is_made_without_them(capfd: pytest.CaptureFixture[str]) -> None:
    open_admin({**TUNED, "transactional.id": "x"}, log_level=7)
    time.sleep(0.1)

    assert "CONFWARN" not in capfd.readouterr().err

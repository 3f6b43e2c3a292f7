"""The local broker: same ports and data after a stop or a crash, and nothing left running."""

import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from coordlib.core.wire.topics import OWN
from coordlib.errors import CannotReach, SetupError
from coordlib.kafka import topics
from coordlib.local.broker import Broker
from coordlib.local.processes import belonging_to

pytestmark = pytest.mark.stack


def produce(broker: Broker, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("coord.responses", value, partition=0)
    assert producer.flush(60) == 0


def read_first(broker: Broker) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition("coord.responses", 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    return message.value() if message else None


def test_ports_and_records_survive_a_stop_and_a_crash(broker: Broker) -> None:
    broker.start()
    address = broker.bootstrap_servers
    conf = {"bootstrap.servers": address}
    assert len(topics.create(conf, "coord", 2, 4, 1)) == len(OWN)
    assert topics.create(conf, "coord", 2, 4, 1) == []
    incarnation = topics.require(conf, "coord")[0].incarnation
    produce(broker, b"kept")

    broker.stop()
    assert belonging_to(broker.stack) == []
    assert not broker.left_stale
    with pytest.raises(CannotReach, match="No Kafka broker answers"):
        topics.check(conf, "coord")

    broker.start()
    assert broker.bootstrap_servers == address
    assert read_first(broker) == b"kept"

    broker.kill()
    assert broker.left_stale
    broker.start()
    assert broker.bootstrap_servers == address
    assert read_first(broker) == b"kept"
    assert topics.require(conf, "coord")[0].incarnation == incarnation


def test_another_object_finds_and_stops_the_running_broker(broker: Broker) -> None:
    """`coord down` runs in another shell than `coord up`."""
    broker.start()
    other = Broker(broker.home, broker.jars)
    assert other.program == broker.program
    other.start()  # as it is
    other.stop()
    assert belonging_to(broker.stack) == []


def test_folder_with_a_comma_is_refused(tmp_path: Path) -> None:
    """Kafka would keep its segments in two folders, one of them where the command was typed."""
    with pytest.raises(SetupError, match="comma"):
        Broker(tmp_path / "Doe, John" / "broker", ()).start()
    assert not any(tmp_path.iterdir())


def test_taken_port_is_named_with_its_holder(broker: Broker) -> None:
    """Another program took the port while the stack was down."""
    port, _ = broker._choose_ports()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port))
        holder.listen()
        with pytest.raises(SetupError, match=f"Port {port} is taken by pid") as error:
            broker.start()
        assert "--new-ports" in error.value.hint
        broker.start(new_ports=True)
        assert broker.bootstrap_servers != f"127.0.0.1:{port}"


def test_full_disk_is_told_before_the_start(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordlib.local.broker.FREE_SPACE_MIN", 1 << 60)
    with pytest.raises(SetupError, match="MB left"):
        broker.start()

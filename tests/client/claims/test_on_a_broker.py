"""Consumers of claims and a real broker: what they refuse to begin with, and how they begin."""

import threading
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from coordlib.client.claims import ClaimsAdmin, CoordinationTopicChanged, Marshaler, kafka
from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.world import World
from coordlib.errors import CannotReach, SetupError, StartRefused
from coordlib.kafka.cluster import create_topic
from tests.client.claims.place import Place, until

if TYPE_CHECKING:
    from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack


@pytest.fixture
def place(broker: "Broker") -> Iterator[Place]:
    made = Place(broker.bootstrap_servers)
    yield made
    for each in made.open:
        each.close(release=True)


def test_a_topic_whose_times_are_the_clients_is_refused_with_the_command(broker: "Broker") -> None:
    name = f"claims-{uuid.uuid4().hex[:8]}.6s"
    create_topic({"bootstrap.servers": broker.bootstrap_servers}, name, 1)
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "client.id": "c"}
    threads = threading.active_count()

    with pytest.raises(SetupError) as refused:
        Marshaler(config, coordination_topic=name)
    assert "message.timestamp.type=LogAppendTime" in refused.value.hint
    # B7: Marshal's constructor leaked its cluster, or dereferenced nothing.
    assert threading.active_count() <= threads + 1


@pytest.mark.parametrize("name", ["claims.5s", "claims.3601s", "there-is-none"])
def test_a_topic_that_cannot_be_used_is_refused(broker: "Broker", name: str) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "client.id": "c"}

    with pytest.raises(SetupError):
        Marshaler(config, coordination_topic=name)


def test_no_broker_is_said_in_one_error() -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "client.id": "c", "log_level": 0}

    with pytest.raises(CannotReach):
        Marshaler(config)


def test_a_restart_begins_with_the_snapshot(place: Place) -> None:
    """Exactly, and at once: the records before the snapshot are not read."""
    place.put(20)
    first = place.consumer()
    until(lambda: len(first.claims()) == 2, first)
    until(lambda: first.poll(0.1) is None, first)
    first.close(release=False)
    place.save(place.world(), place.topic_id())
    world = place.world()
    again = place.consumer()
    view = again._transport.view_of(place.topic)  # type: ignore[attr-defined]
    until(lambda: len(again.claims()) == 2, again)

    assert not view.world.is_late
    assert min(slot.epoch for slot in view.world.slots.values()) > world.offset


def test_a_snapshot_of_another_number_of_partitions_is_refused(place: Place) -> None:
    """N was changed: claims stand in other places than they are looked for."""
    world = World(place.coordination, 0, 4)
    place.save(world, place.topic_id(), partitions=4)

    with pytest.raises(StartRefused, match="has 1 partitions now, and had 4") as refused:
        place.consumer()
    assert "another coordination topic" in refused.value.hint  # nothing else would help: it stays


def test_a_snapshot_of_a_topic_of_before_is_left_alone(place: Place) -> None:
    world = World(place.coordination, 0, 4)
    place.save(world, "another-topics-id-0000", partitions=4)
    consumer = place.consumer()
    until(lambda: len(consumer.claims()) == 2, consumer)


def test_a_topic_that_grows_stops_every_client(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "LOOK_INTERVAL_MS", 300)
    from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

    consumer = place.consumer()
    until(lambda: len(consumer.claims()) == 2, consumer)
    admin = AdminClient(place.options)
    admin.create_partitions([NewPartitions(place.coordination, 3)])[place.coordination].result(60)

    with pytest.raises(CoordinationTopicChanged, match="had 1 partitions"):
        until(lambda: False, consumer)
    assert consumer.claims() == ()


def test_a_topic_that_is_made_anew_stops_every_client(place: Place) -> None:
    """Somebody has deleted it and created it again: tokens begin at 0 once more, so that no claim
    of before can be compared with those of now."""
    consumer = place.consumer()
    until(lambda: len(consumer.claims()) == 2, consumer)
    before = place.topic_id()
    place.make_anew()

    with pytest.raises(CoordinationTopicChanged) as changed:
        until(lambda: False, consumer)
    now = f"id {before}, and has 1 and {place.topic_id()} now"
    cut = "Unless somebody has just made the topic anew, delete it"  # by its end, without its id
    assert now in str(changed.value) or cut in str(changed.value)
    assert consumer.claims() == ()
    with pytest.raises(CoordinationTopicChanged):
        place.open[0].consumer([f"{place.topic}-2"]).poll(0.1)
    again = place.consumer("b")
    until(lambda: len(again.claims()) == 2, again)


@pytest.mark.chaos  # the window of a late reader is 24 s
def test_a_late_reader_knows_an_owner_that_has_never_stopped(
    place: Place, broker: "Broker"
) -> None:
    """Retention has cut the log: it waits, fills the silence, and takes what is free alone."""
    owner = place.consumer("owner", greedy_claims=False, maximum_claims=1)
    until(lambda: len(owner.claims()) == 1, owner)
    place.cut(0, place.world().offset + 1)
    late = place.consumer("late")
    began = time.monotonic()
    until(lambda: late.claims(), owner, late, patience_s=60)

    assert time.monotonic() - began > 10
    assert set(late.claims()) & set(owner.claims()) == set()
    assert len(owner.claims()) == 1


def test_positions_are_set_while_consumers_run(place: Place) -> None:
    place.put(20)
    consumer = place.consumer()
    read: list[tuple[int, int]] = []

    def step() -> None:
        message = consumer.poll(0.02)
        if message is not None:
            read.append((message.partition(), message.offset()))
            consumer.commit(message)

    until(lambda: (step(), len(read) == 20)[1])
    config = {**place.options, "client.id": "admin"}
    done: list[Any] = []

    def work() -> None:
        with ClaimsAdmin(config, coordination_topic=place.coordination) as admin:
            done.append(admin.set_positions("g", {(place.topic, 0): 4, (place.topic, 1): 10}))

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: (step(), len(read) >= 26)[1])
    thread.join()

    (outcomes,) = done
    assert [(each.place, each.prior, each.new) for each in outcomes] == [
        (TopicPartition(place.topic, 0), 10, 4),
        (TopicPartition(place.topic, 1), 10, 10),
    ]
    assert sorted(read[20:]) == [(0, offset) for offset in range(4, 10)]

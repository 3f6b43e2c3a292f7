"""What the real broker promises the transport: last stable offset, acknowledgements, topic ids."""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from coordlib.client.kit import events as sg
from coordlib.client.kit.process import boottime_ms
from coordlib.client.kit.reading import ResponseReader, ResponsesGone
from coordlib.client.kit.requests import Identity
from coordlib.client.kit.transport import KafkaTransport
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import WIRE_VERSION
from coordlib.core.wire.stored import Layout
from coordlib.errors import CannotReach, SetupError
from coordlib.kafka.layout import find_place
from tests.kit.logs import delete_records

if TYPE_CHECKING:
    from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack


class Scene:
    """Topics of their own on the shared broker, and a job's producer."""

    def __init__(self, bootstrap: str) -> None:
        self.prefix = f"client-{uuid4().hex[:8]}"
        self.config = {"bootstrap.servers": bootstrap}
        admin = AdminClient(dict(self.config))
        topics = [NewTopic(f"{self.prefix}.{name}", 2, 1) for name in ("requests", "responses")]
        for made in admin.create_topics(topics).values():
            made.result(60)
        self.job = Producer({**self.config, "transactional.id": self.prefix})
        self.job.init_transactions(60)

    def write(self, *values: bytes) -> None:
        for value in values:
            self.job.produce(f"{self.prefix}.responses", value, key=b"g", partition=1)
        self.job.flush(60)


@pytest.fixture
def scene(broker: "Broker") -> Scene:
    return Scene(broker.bootstrap_servers)


def until(is_so: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = monotonic() + timeout_s
    while not is_so():
        assert monotonic() < end, "it did not come about in time"


def placed(scene: Scene) -> None:
    def is_there() -> bool:
        try:
            find_place(scene.config, scene.prefix)
        except (CannotReach, KafkaException):
            return False
        return True

    until(is_there)


def test_an_open_transaction_neither_hides_the_end_nor_is_read(scene: Scene) -> None:
    """The job dies between its writes and its commit: members must not seem deaf for that."""
    placed(scene)
    reader = ResponseReader(scene.config, "c", TopicPartition(f"{scene.prefix}.responses", 1))
    reader.start(20.0)
    seen: list[bytes] = []

    def read_to_end_after(asked_ms: int) -> bool:
        reader.ask(boottime_ms(), lambda: 0)
        seen.extend(value for _, value in reader.read())
        reader.is_at_end()
        return reader.read_ms is not None and reader.read_ms >= asked_ms

    scene.job.begin_transaction()
    scene.write(b"1", b"2")
    now_ms = boottime_ms()
    until(lambda: read_to_end_after(now_ms))
    assert seen == []

    scene.job.commit_transaction(60)
    until(lambda: seen == [b"1", b"2"] or read_to_end_after(now_ms) is None)
    later_ms = boottime_ms()
    until(lambda: read_to_end_after(later_ms))

    scene.job.begin_transaction()
    scene.write(b"3")
    scene.job.abort_transaction(60)
    last_ms = boottime_ms()
    until(lambda: read_to_end_after(last_ms))  # past the marker, though no message tells so
    assert seen == [b"1", b"2"]
    reader.close()


class Listener:
    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.heard: list[sg.Input] = []

    def feed(self, event: sg.Input) -> None:
        if not isinstance(event, sg.ReadToEnd):
            self.heard.append(event)

    def fail(self, problem: Exception) -> None:
        raise AssertionError from problem

    def wake_ms(self) -> int | None:
        return None

    def reading_lasts_ms(self) -> int | None:
        return None


def test_a_request_is_acknowledged_with_its_offset_and_its_answer_delivered(scene: Scene) -> None:
    placed(scene)
    transport = KafkaTransport(scene.config, scene.prefix, "c", reply=1)
    one, other = (
        Listener(Identity("g", client, token, 1, 1, transport.place.incarnation))
        for client, token in (("c", "aa"), ("d", "bb"))
    )
    transport.attach(one)
    transport.attach(other)

    transport.send(one, api.FindCoordinator(v=1, id="aa-1", client="c", group="g", reply=1))
    until(lambda: bool(one.heard))
    (acknowledged,) = one.heard
    assert isinstance(acknowledged, sg.Acknowledged)
    assert (acknowledged.id, acknowledged.offset) == ("aa-1", 0)
    assert acknowledged.produced_ms <= acknowledged.now_ms

    answer = api.FindCoordinatorResponse(id="aa-1", client="c", group="g", cause="r1-0", shard=1)
    notice = api.RebalanceInProgress(group="g", cause="r1-0", generation=1)
    picture = api.AssignmentChanged(
        group="g",
        cause="r1-0",
        member=one.identity.member_at(0),
        generation=1,
        fence=-1,
        partitions=(),
        release=(),
    )
    scene.job.begin_transaction()
    told = [codec.encode(each) for each in (answer, picture, notice)]
    scene.write(told[0], b"no response at all", *told[1:])
    scene.job.commit_transaction(60)

    until(lambda: len(one.heard) == 4 and len(other.heard) == 1)
    messages = [
        [event.message for event in each.heard if isinstance(event, sg.Received)]
        for each in (one, other)
    ]
    assert messages == [[answer, picture, notice], [notice]]
    transport.close()


def test_topics_tell_the_layout_before_the_job_ever_ran(scene: Scene) -> None:
    placed(scene)

    place = find_place(scene.config, scene.prefix)

    assert (place.shards, place.reply_partitions, len(place.incarnation)) == (2, 2, 8)


def requests_of(scene: Scene, count: int) -> list[api.AnyRequest]:
    """The first records of partition 1 of the requests, once there are so many."""
    reader = Consumer({**scene.config, "group.id": uuid4().hex, "enable.auto.commit": False})
    reader.assign([TopicPartition(f"{scene.prefix}.requests", 1, 0)])
    found: list[api.AnyRequest] = []

    def are_there() -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found.append(codec.decode_request(message.value()))
        return len(found) >= count

    until(are_there)
    reader.close()
    return found


def test_a_client_refuses_to_write_to_an_older_job(scene: Scene) -> None:
    """INV-84: the job would refuse each of its requests."""
    placed(scene)
    progress = f"{scene.prefix}.progress"
    admin = AdminClient(dict(scene.config))
    admin.create_topics([NewTopic(progress, 1, 1)])[progress].result(60)
    ids = {f"{scene.prefix}.requests": find_place(scene.config, scene.prefix).incarnation}
    layout = Layout(shards=2, reply_partitions=2, topic_ids=ids)
    for older in (WIRE_VERSION - 1, WIRE_VERSION, WIRE_VERSION + 1):
        scene.job.begin_transaction()
        record = codec.encode(msgspec.structs.replace(layout, wire_version=older))
        scene.job.produce(progress, record, key=b"layout")
        scene.job.commit_transaction(60)
        if older < WIRE_VERSION:
            with pytest.raises(SetupError, match="Upgrade the job first"):
                KafkaTransport(scene.config, scene.prefix, "c")
        else:
            KafkaTransport(scene.config, scene.prefix, "c").close()


def test_a_prefix_without_topics_is_told(broker: "Broker") -> None:
    with pytest.raises(CannotReach, match="do not exist"):
        find_place({"bootstrap.servers": broker.bootstrap_servers}, "nowhere")


def test_a_reader_begins_anew_where_its_responses_were_removed(scene: Scene) -> None:
    """INV-156. It stands at an offset that the log has no more, as after a laptop's long sleep:
    until it is started again it says so, and then it reads what comes."""
    placed(scene)
    place = TopicPartition(f"{scene.prefix}.responses", 1)
    scene.job.begin_transaction()
    scene.write(b"1", b"2", b"3")
    scene.job.commit_transaction(60)
    end = TopicPartition(place.topic, 1, OFFSET_END)
    admin = AdminClient(dict(scene.config))
    delete_records(admin, end)
    reader = ResponseReader(scene.config, "c", place)
    reader.start(60)
    reader._consumer.assign([TopicPartition(place.topic, 1, 0)])  # it has not read the first one
    told: list[str] = []

    def is_told() -> bool:
        try:
            reader.read()
        except ResponsesGone as gone:
            told.append(gone.where)
        return len(told) == 2

    try:
        until(is_told)
        reader.start(60)
        scene.job.begin_transaction()
        scene.write(b"4")
        scene.job.commit_transaction(60)
        found: list[bytes] = []

        def has_read() -> bool:
            found.extend(value for _, value in reader.read())
            return bool(found)

        until(has_read)
        assert found == [b"4"]
        assert told == [f"{place.topic}, partition 1"] * 2
    finally:
        reader.close()

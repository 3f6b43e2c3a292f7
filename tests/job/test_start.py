"""What the job refuses at its start, and that each refusal names the hint."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from coordlib.core.wire import api, codec
from coordlib.core.wire.stored import JudgedRecord, Layout, Marker, decode_marker
from coordlib.errors import StartRefused
from coordlib.job.checkpoint import SECRET_FILE
from coordlib.job.main.coordinator import Coordinator, CoordinatorOptions
from coordlib.job.progress import MARKER_KEY, decode_layout
from coordlib.kafka import reading, topics
from coordlib.kafka.layout import LAYOUT_KEY
from coordlib.kafka.plans import read_plans
from coordlib.local.broker import Broker
from tests.kit.logs import delete_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack


@pytest.fixture
def prefix() -> str:
    return f"p{uuid4().hex[:8]}"


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def made(broker: Broker, prefix: str) -> str:
    """A prefix whose topics are as they must be."""
    topics.create({"bootstrap.servers": broker.bootstrap_servers}, prefix, 2, 2, 1)
    return prefix


@pytest.fixture
def start(spark: "SparkSession", broker: Broker, tmp_path: Path) -> Iterator[object]:
    """Start a coordinator and stop it after its first batch, or when something else is true."""

    def start(
        prefix: str,
        checkpoint: str = "checkpoint",
        *,
        is_rebuild: bool = False,
        accepts_loss: bool = False,
        until: Callable[[], bool] = lambda: True,
    ) -> None:
        options = CoordinatorOptions(
            bootstrap_servers=broker.bootstrap_servers,
            prefix=prefix,
            checkpoint=str(tmp_path / checkpoint),
            is_rebuild=is_rebuild,
            accepts_loss=accepts_loss,
        )
        coordinator = Coordinator(spark, options)
        try:
            query = coordinator.start()
            # The ticks at the start bring a batch.
            while not (query.lastProgress and until()):
                assert query.isActive, query.exception()
                time.sleep(0.1)
            query.stop()
        finally:
            coordinator.close()

    return start


def alter(admin: AdminClient, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)
    # Brokers hear of it a moment after the controller has acknowledged.
    while _config(admin, topic)[key].value != value:
        time.sleep(0.05)


def _config(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
    return next(iter(asked.values())).result(60)


def refusal(start, *arguments, **options) -> str:
    with pytest.raises(StartRefused) as refused:
        start(*arguments, **options)
    assert refused.value.hint
    return str(refused.value)


def test_missing_topics(start, prefix):
    assert "coord topics create" in refusal(start, prefix)


def test_create_time_instead_of_log_append_time(start, made, admin):
    """Clients' clocks would decide who lives."""
    alter(admin, f"{made}.requests", "message.timestamp.type", "CreateTime")

    assert "LogAppendTime" in refusal(start, made)


def test_output_topics_that_cannot_hold_a_large_answer(start, made, admin):
    alter(admin, f"{made}.responses", "max.message.bytes", "1000000")

    assert "8388608" in refusal(start, made)


def grow(admin: AdminClient, *names: str, to: int = 3) -> None:
    """Somebody adds partitions (kafka-topics --alter)."""
    for future in admin.create_partitions([NewPartitions(name, to) for name in names]).values():
        future.result(60)
    while any(len(admin.list_topics(n, timeout=60).topics[n].partitions) != to for n in names):
        time.sleep(0.05)


#: The shard of the group "g", of two.
SHARD = 1


def ask(broker: Broker, topic: str, partition: int = SHARD) -> None:
    """A client writes a request there."""
    request = api.OffsetFetch(v=1, id="1", client="c", reply=0, group="g")
    with closing(Producer({"bootstrap.servers": broker.bootstrap_servers})) as producer:
        producer.produce(topic, codec.encode(request), b"g", partition=partition)
        producer.flush(60)


@pytest.fixture
def answers(broker, made) -> Callable[[], int]:
    """How many OffsetFetch were answered."""

    def count() -> int:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        found = read_to_end(client, f"{made}.responses", 0)
        return sum(isinstance(each, api.OffsetFetchResponse) for each in found)

    return count


@pytest.mark.parametrize(
    "name",
    [
        plan.name
        if plan.name in ("requests", "events")
        else pytest.param(plan.name, marks=pytest.mark.chaos)
        for plan in read_plans()
    ],
)
def test_partitions_that_were_added_to_a_topic_are_not_read(
    start, made, admin, broker, answers, name
):
    """One slip of an operator, and Kafka cannot take partitions back.  # INV-115"""
    start(made)
    grow(admin, f"{made}.{name}")
    ask(broker, f"{made}.{name}", 2)
    ask(broker, f"{made}.requests")

    start(made, until=lambda: answers() == 1)

    checked = topics.check({"bootstrap.servers": broker.bootstrap_servers}, made)
    assert checked.layout is not None
    assert (checked.layout.shards, checked.layout.responses) == (2, 2)
    assert [(each.topic, each.what) for each in checked.warnings if "added" in each.hint] == [
        (f"{made}.{name}", "has 3 partitions")
    ]


@pytest.mark.parametrize("name", ["requests", "offsets"])
def test_partitions_that_are_added_under_a_job_are_not_read(
    start, made, admin, broker, answers, name
):
    """A job over all shards once subscribed to its topics: it ended at the first record there."""
    steps = iter(
        [
            lambda: grow(admin, f"{made}.{name}"),
            lambda: ask(broker, f"{made}.{name}", 2),
            lambda: ask(broker, f"{made}.requests"),
        ]
    )

    def until() -> bool:
        if step := next(steps, None):
            step()
        return answers() == 1

    start(made, until=until)


def test_the_rest_of_a_lost_checkpoint_is_named_so(start, made, tmp_path):
    """The folder was removed under the running job, and Spark has made it again for its batches."""
    start(made)
    (tmp_path / "checkpoint" / "coordinator.json").unlink()

    told = refusal(start, made)

    assert "rest of a checkpoint that was lost" in told
    assert "empty it and start with --rebuild" in told


def test_an_upgrade_that_brings_a_topic(start, made, broker, monkeypatch):
    """The prefix goes on; at its next start the topic must be the one that was recorded."""
    client = {"bootstrap.servers": broker.bootstrap_servers}

    def recorded() -> Layout:
        return decode_layout(reading.newest_by_key(client, f"{made}.progress", 0)[LAYOUT_KEY])

    start(made)
    before = recorded()
    (model,) = (plan for plan in read_plans() if plan.name == "groups")
    more = (*read_plans(), replace(model, name="novelties"))
    monkeypatch.setattr(topics, "read_plans", lambda: more)

    assert f"{made}.novelties: does not exist" in (told := refusal(start, made))
    assert f"coord topics create --prefix {made}" in told
    assert topics.create(client, made, None, None, 1) == [f"{made}.novelties"]
    start(made)

    assert recorded().topic_ids.keys() - before.topic_ids.keys() == {f"{made}.novelties"}
    monkeypatch.undo()
    assert f"{made}.novelties" in refusal(start, made)


def test_an_empty_checkpoint_on_topics_with_history(start, made):
    start(made)

    told = refusal(start, made, "lost")

    assert "--rebuild" in told


def test_a_rebuild_into_a_checkpoint_that_exists(start, made):
    start(made)

    assert "without --rebuild" in refusal(start, made, is_rebuild=True)


def test_a_rebuild_of_topics_without_history_is_a_plain_start(start, made):
    """`--rebuild` in a supervisor's command line must not keep a new prefix from starting."""
    start(made, is_rebuild=True)


@pytest.mark.parametrize("name", ["groups", pytest.param("metadata", marks=pytest.mark.chaos)])
def test_a_rebuild_from_a_topic_of_which_records_were_deleted(start, made, admin, broker, name):
    """It had another cleanup policy for a week. What is missing nobody would have been told."""
    start(made)
    topic = f"{made}.{name}"
    with closing(Producer({"bootstrap.servers": broker.bootstrap_servers})) as producer:
        for key in ("a", "b", "c"):
            producer.produce(topic, None, key, partition=1)
        producer.flush(60)
    alter(admin, topic, "cleanup.policy", "compact,delete")
    cut = TopicPartition(topic, 1, 2)
    delete_records(admin, cut)
    alter(admin, topic, "cleanup.policy", "compact")

    start(made)
    told = refusal(start, made, "lost", is_rebuild=True)
    assert f"{topic}, partition 1, begins at offset 2" in told
    assert "--accept-loss" in told
    start(made)
    start(made, "lost", is_rebuild=True, accepts_loss=True)


@pytest.mark.chaos
def test_a_compacted_topic_that_ends_before_what_was_written(start, made, broker):
    """A marker of a longer topic says what a topic says that has lost its end. With its checkpoint
    the job goes on; a rebuild would lack what stood there, and nobody would be told.  # INV-153"""
    client = {"bootstrap.servers": broker.bootstrap_servers}

    def marker() -> Marker:
        return decode_marker(reading.newest_by_key(client, f"{made}.progress", 0)[MARKER_KEY])

    start(made, until=lambda: len(marker().shards) == 2)
    beyond = {f"{made}.groups": {"0": 50}, f"{made}.outbox": {"1": 70}}
    with closing(Producer(client)) as producer:
        altered = codec.encode(msgspec.structs.replace(marker(), saved=beyond))
        producer.produce(f"{made}.progress", altered, MARKER_KEY, partition=0)
        producer.flush(60)

    for _ in range(2):
        start(made)
        told = refusal(start, made, "lost", is_rebuild=True)
        assert f"{made}.groups, partition 0, ends at offset 0, and 50 was written" in told
        assert f"{made}.outbox, partition 1, ends at offset 0, and 70 was written" in told
        assert "--accept-loss" in told
    start(made, "lost", is_rebuild=True, accepts_loss=True, until=lambda: not marker().saved)
    start(made, "again", is_rebuild=True)


@pytest.mark.chaos
def test_requests_that_were_removed_unread_are_skipped_on_demand(start, made, admin, broker):
    """The job was away for longer than the topics keep records, and the way out that it named ended
    in the same refusal.  # INV-104"""
    client = {"bootstrap.servers": broker.bootstrap_servers}
    start(made)
    with closing(Producer(client)) as producer:
        for number in range(20):
            producer.produce(f"{made}.requests", b"%d" % number, partition=0)
            producer.produce(f"{made}.offsets", b"%d" % number, partition=1)
        producer.flush(60)
    cut = [remove_unread(admin, client, f"{made}.requests", 0, 5)]
    cut.append(remove_unread(admin, client, f"{made}.offsets", 1, 0))

    for told in (refusal(start, made), refusal(start, made, "lost", is_rebuild=True)):
        assert f"{made}.requests, partition 0, offsets " in told
        assert f"to {cut[0] - 1}: removed before they were processed" in told
        assert f"{made}.offsets, partition 1, offsets 0 to 19: removed before" in told
        assert "--rebuild --accept-loss" in told
    start(made, "lost", is_rebuild=True, accepts_loss=True)
    start(made, "lost")

    lost = [event for shard in (0, 1) for event in events_of(client, made, shard, "RequestsLost")]
    assert [(each["detail"]["topic"], each["detail"]["to_offset"]) for each in lost] == [
        *((f"{made}.requests", cut[0]), (f"{made}.offsets", cut[1]))
    ]


def remove_unread(
    admin: AdminClient, client: dict[str, str], topic: str, partition: int, left: int
) -> int:
    """All but so many records; returns where the log begins then."""
    with closing(Consumer({**client, "group.id": "t"})) as consumer:
        end = consumer.get_watermark_offsets(TopicPartition(topic, partition))[1]
    cut = TopicPartition(topic, partition, end - left)
    delete_records(admin, cut)
    return end - left


def events_of(client: dict[str, str], prefix: str, shard: int, type_: str) -> list[dict[str, Any]]:
    found = [msgspec.json.decode(v) for v in values_of(client, f"{prefix}.events", shard) if v]
    return [event for event in found if event["type"] == type_]


@pytest.mark.parametrize("is_regrown", [pytest.param(False, marks=pytest.mark.chaos), True])
def test_a_log_that_is_not_the_one_that_was_judged(start, made, broker, is_regrown):
    """A marker of a longer log, or of another record at the judged place, says what a log that was
    cut says. No offset below the judged place is judged.  # INV-104"""
    client = {"bootstrap.servers": broker.bootstrap_servers}

    def marker() -> Marker:
        return decode_marker(reading.newest_by_key(client, f"{made}.progress", 0)[MARKER_KEY])

    topics_of_both, known = (f"{made}.requests", f"{made}.offsets"), {}
    start(made, until=lambda: len(marker().shards) == 2)
    judged = marker()
    if is_regrown:
        known = {topics_of_both[0]: {"1": JudgedRecord(time_ms=1, digest="another")}}
        altered = msgspec.structs.replace(judged, judged=known)
    else:
        beyond = {topic: {"0": 50, "1": 60} for topic in topics_of_both}
        altered = msgspec.structs.replace(judged, next_offsets=beyond)
    with closing(Producer(client)) as producer:
        producer.produce(f"{made}.progress", codec.encode(altered), MARKER_KEY, partition=0)
        producer.flush(60)

    told = refusal(start, made)
    assert told == refusal(start, made, "lost", is_rebuild=True)
    assert "--rebuild --accept-loss" in told
    start(made, "lost", is_rebuild=True, accepts_loss=True)
    if is_regrown:
        at = judged.next_offsets[topics_of_both[0]]["1"] - 1
        assert (
            f"{made}.requests, partition 1, at least offsets {at} to {at}: another record" in told
        )
        assert "partition 0" not in told
    else:
        assert told.count("the log is shorter") == 4
        assert marker().ranges[topics_of_both[0]]["0"][0] == 50
        filled = values_of(client, topics_of_both[1], 1)
        assert len(filled) == 60
        assert events_of(client, made, 1, "RequestRejected") == []
    start(made, "lost")


def test_a_checkpoint_of_other_topics(start, made, broker):
    start(made)
    other = f"{made}-other"
    topics.create({"bootstrap.servers": broker.bootstrap_servers}, other, 2, 2, 1)

    assert made in refusal(start, other)


def test_topics_that_another_checkpoint_continued(start, made):
    """Two jobs, one after the other, each with its own folder: the first must not come back."""
    start(made)
    start(made, "second", is_rebuild=True)

    assert "newest checkpoint" in refusal(start, made)


def test_a_rebuild_tells_everybody_who_waits_for_an_answer(start, made, broker):
    """Members of ten thousand groups have asked, and the state is being read back."""
    start(made)
    start(made, "second", is_rebuild=True)

    client = {"bootstrap.servers": broker.bootstrap_servers}
    told = [read_to_end(client, f"{made}.responses", partition) for partition in range(2)]
    assert [api.CoordinatorLoading() in each for each in told] == [True, True]


def read_to_end(client: dict[str, str], topic: str, partition: int) -> list[api.AnyResponse]:
    return [codec.decode_response(value) for value in values_of(client, topic, partition) if value]


def test_a_folder_of_another_query(start, made, tmp_path):
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "0").write_text("v1\n")

    assert "another query" in refusal(start, made)


def test_the_secret_is_its_owners_alone(start, made, tmp_path):
    """Whoever can read it can sign what every group believes."""
    start(made)
    secret = tmp_path / "checkpoint" / SECRET_FILE

    assert secret.stat().st_mode & 0o777 == 0o600
    assert len(secret.read_bytes()) == 32
    assert [path.name for path in secret.parent.glob(f"{SECRET_FILE}*")] == [SECRET_FILE]


def values_of(client: dict[str, str], topic: str, partition: int) -> list[bytes | None]:
    """Everything that can be read of a partition."""
    consumer = Consumer({**client, "group.id": "t", "isolation.level": "read_committed"})
    try:
        place = TopicPartition(topic, partition, 0)
        consumer.assign([place])
        end = consumer.get_watermark_offsets(place)[1]
        found = []
        while end and consumer.position([place])[0].offset < end:  # none yet: -1001
            message = consumer.poll(1.0)
            if message is not None and not message.error():
                found.append(message.value())
        return found
    finally:
        consumer.close()

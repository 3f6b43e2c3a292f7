"""What the check finds: each difference with what must be and the hint."""

import time
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from coordlib.errors import SetupError
from coordlib.kafka import plans as findings
from coordlib.kafka import topics
from coordlib.kafka.plans import read_plans
from coordlib.limits import OUTPUT_BYTES_MAX, REQUEST_BYTES_MAX
from coordlib.local.broker import Broker

PLANS = {plan.name: plan for plan in read_plans()}
GOOD = findings.Seen(
    partitions=4,
    replication=3,
    topic_id="id",
    config=dict(PLANS["requests"].config),
)


NEW = findings.Counts(4, 16, "the requests topic")
RECORDED = replace(NEW, source=findings.RECORDED)


def found(
    seen: findings.Seen, name: str = "requests", counts: findings.Counts = NEW
) -> list[findings.Finding]:
    full = f"coord.{name}"
    return [*findings.differences({full: PLANS[name]}, {full: seen}, counts)]


def test_plan_covers_the_wire_format() -> None:
    assert list(PLANS) == [
        *("requests", "offsets", "responses", "assignments"),
        *("groups", "committed", "clusters", "metadata"),
        *("transactions", "outbox", "events", "lag", "progress"),
    ]
    compact = {name for name, plan in PLANS.items() if plan.config["cleanup.policy"] == "compact"}
    assert compact == {
        *("assignments", "groups", "committed", "clusters", "metadata"),
        *("transactions", "outbox", "progress"),
    }
    for name, plan in PLANS.items():
        size = int(plan.config["max.message.bytes"])
        is_input = name in ("requests", "offsets")
        assert size > REQUEST_BYTES_MAX if is_input else size == OUTPUT_BYTES_MAX
        assert (plan.config.get("message.timestamp.type") == "LogAppendTime") == is_input


def test_good_topic_has_no_finding() -> None:
    assert found(GOOD) == []


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("cleanup.policy", "compact", "cleanup.policy is compact"),
        ("message.timestamp.type", "CreateTime", "message.timestamp.type is CreateTime"),
        ("max.message.bytes", "1048588", "max.message.bytes is 1048588"),
        ("unclean.leader.election.enable", "true", "unclean.leader.election.enable is true"),
        ("min.insync.replicas", "4", "min.insync.replicas is 4 with 3 replicas"),
    ],
)
def test_dangerous_setting_is_fatal_and_fixable(key: str, value: str, what: str) -> None:
    """With CreateTime a client's wrong clock would drive every session timeout of its shard."""
    (finding,) = found(replace(GOOD, config=GOOD.config | {key: value}))
    assert (finding.what, finding.is_fatal) == (what, True)
    assert f"--add-config {key}=" in finding.hint


@pytest.mark.parametrize("name", PLANS)
def test_partitions_that_are_added_to_a_recorded_prefix_are_told_and_refuse_nothing(
    name: str,
) -> None:
    """Kafka cannot take them back: a refusal would be the end of the prefix.  # INV-115"""
    must = PLANS[name].count(RECORDED.shards, RECORDED.responses)
    grown = replace(GOOD, partitions=must + 1, config=dict(PLANS[name].config))

    (finding,) = found(grown, name, RECORDED)

    assert (finding.what, finding.is_fatal) == (f"has {must + 1} partitions", False)
    assert finding.must == f"{must}, as the prefix was made"
    assert "is not read" in finding.hint
    assert found(replace(grown, partitions=must), name, RECORDED) == []


def test_fewer_partitions_than_recorded_are_fatal() -> None:
    """The topic was deleted and made again."""
    (finding,) = found(replace(GOOD, partitions=3), counts=RECORDED)
    assert finding.is_fatal


def test_other_partition_count_than_the_requests_topic_is_fatal_before_a_first_start() -> None:
    """Somebody added partitions to one topic by hand; nothing is lost yet."""
    (finding,) = found(replace(GOOD, partitions=6))
    assert str(finding).startswith(
        "coord.requests: has 6 partitions; must be 4, as the requests topic has."
    )


def test_a_missing_topic_is_made_by_the_command_that_the_finding_names() -> None:
    """An upgrade brings a topic, and the job must say how to get it."""
    plans = {"p.requests": PLANS["requests"], "p.lag": PLANS["lag"]}
    (finding,) = findings.missing(plans, {"p.requests": GOOD}, "coord topics create --prefix p")
    assert (finding.topic, finding.is_fatal) == ("p.lag", True)
    assert finding.hint == "Run: coord topics create --prefix p"


@pytest.mark.parametrize(
    ("asked", "present", "partitions"),
    [(None, None, 2), (5, None, 5), (None, 3, 3), (3, 3, 3)],
)
def test_a_new_topic_has_the_partitions_of_its_prefix(
    asked: int | None, present: int | None, partitions: int
) -> None:
    """The default of 2 shards, on a prefix of 8, gave a topic that nothing could fix."""
    there = {} if present is None else {"p.requests": present}
    assert topics._agreed(asked, "p.requests", there, topics.SHARDS) == partitions


@pytest.mark.parametrize(
    ("shards", "responses"), [(1, 32), (4, 32), (5, 40), (32, 256), (100, 256)]
)
def test_a_new_prefix_has_eight_response_partitions_for_each_shard(
    shards: int, responses: int
) -> None:
    """Each client reads the answers of a whole partition: with four of them and 10,000 members,
    those to 2,500 others."""
    assert topics.responses_for(shards) == responses


@pytest.mark.parametrize(("shards", "responses"), [(1, 16), (2, 16), (5, 20)])
def test_a_local_stack_has_half_as_many(shards: int, responses: int) -> None:
    """Its broker shares two cores with the job, and nobody has ten thousand clients there."""
    assert topics.local_responses_for(shards) == responses


def test_few_replicas_are_a_warning_said_once() -> None:
    one = replace(GOOD, replication=1, config=GOOD.config | {"min.insync.replicas": "1"})
    weak = replace(GOOD, config=GOOD.config | {"min.insync.replicas": "1"})
    (few,), (loose,) = found(one), found(weak)
    assert not few.is_fatal
    assert not loose.is_fatal
    (merged,) = findings.merged([few, replace(few, topic="coord.events")])
    assert merged.topic == "coord.requests, coord.events"


@pytest.mark.stack
def test_check_of_a_real_broker(broker: Broker) -> None:
    conf = {"bootstrap.servers": broker.bootstrap_servers}
    missing = topics.check(conf, "nobody")
    assert missing.layout is None
    assert [finding.what for finding in missing.findings] == ["does not exist"]

    topics.create(conf, "real", shards=3, responses=5, replication=1)
    checked = topics.check(conf, "real")
    assert checked.layout is not None
    assert (checked.layout.shards, checked.layout.responses) == (3, 5)
    assert len(checked.layout.incarnation) == 8
    assert len(checked.warnings) == 1

    admin = AdminClient(conf)
    policy = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    wrong = ConfigResource(ResourceType.TOPIC, "real.groups", incremental_configs=[policy])
    for future in admin.incremental_alter_configs([wrong]).values():
        future.result(60)
    # Brokers hear of it a moment after the controller has acknowledged.
    asked = [ConfigResource(ResourceType.TOPIC, "real.groups")]
    while admin.describe_configs(asked)[asked[0]].result(60)["cleanup.policy"].value != "delete":
        time.sleep(0.05)
    (finding,) = topics.check(conf, "real").fatal
    assert finding.topic == "real.groups"


@pytest.mark.stack
def test_an_older_prefix_gets_the_lag_topic_and_keeps_its_layout(broker: Broker) -> None:
    """What a job has recorded of its topics names none that decides nothing: else the upgrade that
    brought the topic, or whoever made it anew, would end the prefix."""
    conf = {"bootstrap.servers": broker.bootstrap_servers}
    topics.create(conf, "older", shards=3, responses=1, replication=1)
    before = topics.check(conf, "older").layout
    assert before is not None
    admin = AdminClient(conf)
    admin.delete_topics(["older.lag"])["older.lag"].result(60)
    while "older.lag" in admin.list_topics(timeout=60).topics:
        time.sleep(0.05)
    checked = topics.check(conf, "older")
    assert checked.layout is None
    (missing,) = checked.fatal
    assert (missing.topic, missing.what) == ("older.lag", "does not exist")
    assert missing.hint == "Run: coord topics create --prefix older --replication 1"

    # Partitions of a topic cannot be taken away: a topic with others would end the prefix.
    with pytest.raises(SetupError, match="has 3 partitions here, not 2"):
        topics.create(conf, "older", shards=2, responses=None, replication=1)
    assert topics.create(conf, "older", None, None, replication=1) == ["older.lag"]

    assert topics.check(conf, "older").layout == before
    assert not any(name.endswith(".lag") for name in before.topic_ids)


@pytest.mark.stack
def test_outputs_of_the_limit_are_accepted_and_requests_of_theirs(broker: Broker) -> None:
    """A leader's answer of nearly 8 MiB must not replay its batch for ever."""
    conf = {"bootstrap.servers": broker.bootstrap_servers}
    topics.create(conf, "large", 2, 4, 1)
    producer = Producer(conf | {"message.max.bytes": 16_000_000})
    outcomes: list[object] = []
    for topic, size in [("responses", 8 * 2**20 - 1_024), ("requests", 2**20)]:
        producer.produce(
            f"large.{topic}", b"x" * size, b"group", on_delivery=lambda e, _: outcomes.append(e)
        )
    producer.flush(60)
    assert outcomes == [None, None]

"""The coordination topic and the claims pipeline's own: what is found, and the hint of it."""

import uuid
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from coordlib.errors import NotAllowed, SetupError, StartRefused
from coordlib.kafka import coordination, topics
from coordlib.kafka.plans import Seen
from coordlib.local.broker import Broker

GOOD = Seen(
    partitions=4,
    replication=3,
    topic_id="id",
    config={
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "delete",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
    },
)


def found(seen: Seen | None) -> list[tuple[str, bool, str]]:
    findings = coordination.coordination_findings("__marshal", seen)
    return [(each.what, each.is_fatal, each.hint) for each in findings]


def test_a_good_topic_has_no_finding() -> None:
    assert found(GOOD) == []


@pytest.mark.parametrize(
    ("key", "value", "must"),
    [
        ("message.timestamp.type", "CreateTime", "LogAppendTime"),
        ("cleanup.policy", "compact", "delete"),
        ("cleanup.policy", "compact,delete", "delete"),
        ("unclean.leader.election.enable", "true", "false"),
    ],
)
def test_what_readers_cannot_use_is_fixed_by_one_command(key: str, value: str, must: str) -> None:
    """Marshal's topic has CreateTime: its clients never read a timestamp, ours read no other. And
    after an unclean election readers would disagree about who owns what."""
    ((what, is_fatal, hint),) = found(replace(GOOD, config=dict(GOOD.config) | {key: value}))

    assert (what, is_fatal) == (f"{key} is {value}", True)
    assert f"--entity-name __marshal --add-config {key}={must}" in hint


def test_a_missing_topic_is_named_with_the_command_that_makes_it() -> None:
    ((what, is_fatal, hint),) = found(None)

    assert (what, is_fatal) == ("does not exist", True)
    assert "coord claims create __marshal" in hint


def test_a_topic_that_is_hidden_is_not_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody created it a second time under another name, as it "did not exist"."""
    monkeypatch.setattr(coordination, "present_topics", lambda *_: {})
    monkeypatch.setattr(topics, "hidden", lambda _, names, __: names)

    with pytest.raises(NotAllowed, match="Read on the topic __marshal"):
        coordination.create({"bootstrap.servers": "127.0.0.1:1"}, "coord", "__marshal", 1)


@pytest.mark.parametrize("partitions", [4, 5, None])
def test_a_topic_that_grew_under_the_query_ends_it_by_name(
    partitions: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clients place messages by the new number: claims would look released that are held."""
    seen = {} if partitions is None else {"t": SimpleNamespace(partitions=range(partitions))}
    monkeypatch.setattr(coordination, "look_up", lambda *_: seen)
    asks = partial(coordination.require_count, {"bootstrap.servers": "127.0.0.1:1"}, "p", "t", 4)
    if partitions != 5:
        asks()
        return

    with pytest.raises(StartRefused, match="t has 5 partitions; must be 4") as refused:
        asks()
    assert "coord topics create --prefix p --claims t" in refused.value.hint


@pytest.mark.stack
def test_topics_of_claims_on_a_real_broker(broker: Broker) -> None:
    """Somebody else's topic of three partitions: ours follow it, and it stays as it is."""
    conf, prefix = {"bootstrap.servers": broker.bootstrap_servers}, f"p{uuid.uuid4().hex[:8]}"
    topic = f"{prefix}.marshal"
    with pytest.raises(SetupError, match=topic):
        coordination.create(conf, prefix, topic, 1)
    admin = AdminClient(conf)  # a name for it: the answer dies with the client
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
    with pytest.raises(StartRefused, match="LogAppendTime") as refused:
        coordination.require(conf, prefix, topic)
    assert f"coord topics create --prefix {prefix} --claims {topic}" in str(refused.value)

    created = coordination.create(conf, prefix, topic, 1)
    good = f"{prefix}.marshal.6s"
    assert coordination.create_coordination(conf, good, 3, 1)
    assert not coordination.create_coordination(conf, good, 5, 1), "it is there"

    assert len(created) == 6
    assert coordination.create(conf, prefix, topic, 1) == []
    layout, warnings = coordination.require(conf, prefix, good)
    assert (layout.prefix, layout.shards, layout.input) == (f"{prefix}.claims", 3, good)
    assert layout.incarnation == layout.topic_ids[good][:8]
    assert len(warnings) == 1
    assert [each.what for each in coordination.check_coordination(conf, topic)] == [
        "message.timestamp.type is CreateTime",
        "has 1 replica(s)",
    ]
    other = f"{prefix}.marshal.7s"
    coordination.create_coordination(conf, other, 4, 1)
    with pytest.raises(StartRefused, match="must be 4, as the coordination topic has"):
        coordination.require(conf, prefix, other)
    assert coordination.followed(conf, prefix) is None, "no job has recorded one"

"""An operator's requests about a cluster, over the real core."""

import threading
import time
from collections.abc import Iterator

import pytest

from coordlib.client import Endpoint
from coordlib.client.admin import CLUSTER_TIMEOUT_S, Admin, _Question
from coordlib.client.kit.events import TopicPartition
from coordlib.core.wire import api
from coordlib.errors import GroupError
from coordlib.testing.fake_log import FakeLog
from tests.client.test_admin import log

__all__ = ["log"]

T0 = TopicPartition("t", 0)


@pytest.fixture
def admin(log: FakeLog) -> Iterator[Admin]:
    """An operator of a cluster with the brokers 1 and 2, both Active."""
    with Admin(transport=log.transport()) as admin:
        for broker in (1, 2):
            come(admin, broker)
        yield admin


def come(admin: Admin, broker: int) -> None:
    """Register a broker, and say that it is Active."""
    endpoints = (Endpoint("in", f"host-{broker}", 9092),)
    timeouts = {"session_timeout_ms": 10_000, "release_timeout_ms": 20_000}
    question = _Question(admin._identity("shop"), "cluster")
    register = api.RegisterBroker(
        **question.envelope(), broker=broker, endpoints=endpoints, **timeouts
    )
    (answer,) = admin._ask(question, register, 10)
    question = _Question(admin._identity("shop"), "cluster")
    named = {"incarnation": answer.incarnation, "since": answer.since}  # type: ignore[attr-defined]
    beat = api.BrokerHeartbeat(**question.envelope(), broker=broker, target_state="Active", **named)
    admin._ask(question, beat, 10)


def errors(rows: tuple[object, ...]) -> list[str]:
    return [row.error for row in rows]  # type: ignore[attr-defined]


def test_topics_are_made_extended_and_deleted(admin: Admin) -> None:
    """One row each, in the order of the request."""
    made = admin.create_topics(
        "shop",
        [
            api.NewTopic(topic="t", assignment={"0": (1, 2)}),
            api.NewTopic(topic="", partitions=1, replication_factor=1),
            api.NewTopic(topic="u", partitions=3, replication_factor=5),
        ],
    )
    assert [row.topic for row in made] == ["t", "", "u"]
    assert errors(made) == ["NONE", "INVALID_TOPIC_EXCEPTION", "INVALID_REPLICATION_FACTOR"]

    extended = admin.create_partitions("shop", "t", 2, assignment={1: [2, 1]})
    assert (extended.topic, extended.error) == ("t", "NONE")
    assert admin.create_partitions("shop", "t", 2).error == "INVALID_PARTITIONS"
    shown = admin.metadata("shop")
    assert sorted(shown.brokers) == [1, 2]
    assert {place: row.leader for place, row in shown.partitions.items()} == {
        T0: 1,
        TopicPartition("t", 1): 2,
    }

    deleted = admin.delete_topics("shop", ["t", "v"])
    assert errors(deleted) == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert admin.metadata("shop", ["t"]).topics["t"].is_deleting
    described = admin.describe_group("shop", space="cluster")
    assert described.kind == "brokers"
    assert len(described.waits_for) == 2  # type: ignore[arg-type]  # both are to delete


def test_what_is_only_validated_is_not_made(admin: Admin) -> None:
    topic = api.NewTopic(topic="t", partitions=1, replication_factor=1)

    assert errors(admin.create_topics("shop", [topic], validate_only=True)) == ["NONE"]
    assert not admin.metadata("shop").topics


def test_leaders_are_elected_and_replicas_moved(admin: Admin) -> None:
    admin.create_topics("shop", [api.NewTopic(topic="t", assignment={"0": (1,)})])

    assert errors(admin.elect_leaders("shop", "preferred", [T0])) == ["ELECTION_NOT_NEEDED"]
    nowhere = TopicPartition("v", 0)
    moved = admin.alter_partition_reassignments("shop", {T0: [2], nowhere: [1]})
    assert errors(moved) == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert admin.metadata("shop").partitions[T0].adding == (2,)
    assert errors(admin.alter_partition_reassignments("shop", {T0: None})) == ["NONE"]
    again = admin.alter_partition_reassignments("shop", {T0: None})
    assert errors(again) == ["NO_REASSIGNMENT_IN_PROGRESS"]


def test_a_broker_with_a_session_is_not_forgotten(admin: Admin) -> None:
    with pytest.raises(GroupError, match="NON_EMPTY_GROUP"):
        admin.unregister_broker("shop", 1)
    with pytest.raises(GroupError, match="BROKER_ID_NOT_REGISTERED"):
        admin.unregister_broker("shop", 9)


def test_a_request_that_names_a_topic_twice_is_refused_as_a_whole(admin: Admin) -> None:
    with pytest.raises(GroupError, match="INVALID_REQUEST"):
        admin.delete_topics("shop", ["t", "t"])


def test_a_large_picture_comes_in_parts_of_one_place(admin: Admin, log: FakeLog) -> None:
    """A part has 512 KiB at most."""
    names = [f"{'t' * 200}-{number}" for number in range(4)]
    for name in names:
        rows = {str(number): (1, 2) for number in range(600)}
        assert errors(admin.create_topics("shop", [api.NewTopic(topic=name, assignment=rows)])) == [
            "NONE"
        ]

    shown = admin.metadata("shop")

    assert len(shown.partitions) == 2_400
    parts = {each.value for each in log.responses if b'"parts":2' in (each.value or b"")}
    assert len(parts) == 2


def test_nobody_answers_while_the_job_is_down(log: FakeLog) -> None:
    log.job_is_up = False
    threads = threading.active_count()  # other tests of this process may have left some
    with Admin(transport=log.transport()) as admin:
        begun_s = time.monotonic()
        with pytest.raises(Exception, match="did not answer"):
            admin.metadata("shop", timeout_s=0.3)
    assert time.monotonic() - begun_s < CLUSTER_TIMEOUT_S  # and not for the usual time
    assert threading.active_count() <= threads + 10

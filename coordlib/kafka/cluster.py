"""Which topics and brokers a cluster has."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in its stubs

from coordlib.kafka.clients import open_admin, reaching, reader_config
from coordlib.kafka.contact import unreachable


def topics_of(
    options: Mapping[str, Any],
    timeout_s: float,
    mend: str = "Check --bootstrap-servers and the security options.",
) -> dict[str, Any]:
    """All topics of a cluster by name, with confluent-kafka's metadata.

    Raises:
        CannotReach: no broker answers.
        SetupError: an option is wrong, or the brokers refuse who asks.
    """
    try:
        return dict(open_admin(options).list_topics(timeout=timeout_s).topics)
    except KafkaException as problem:
        raise unreachable(options, "No Kafka broker answers.", problem, mend) from problem


def partitions_of(options: Mapping[str, Any], topic: str, timeout_s: float) -> list[int]:
    """The partitions of one topic; none where there is no such topic. Raises KafkaException.

    A consumer asks for one topic alone, where an admin client asks for all of them.
    """
    consumer = Consumer(reader_config(options))
    try:
        found = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    finally:
        consumer.close()
    return [] if found.error is not None else sorted(found.partitions)


def has_brokers(options: Mapping[str, Any], timeout_s: float) -> bool:
    """Whether a broker answers, and names at least one."""
    try:
        return len(open_admin(options).list_topics(timeout=timeout_s).brokers) > 0
    except KafkaException:
        return False


def create_topic(
    options: Mapping[str, Any], topic: str, partitions: int, timeout_s: float = 30.0
) -> None:
    """Create a topic with one replica. Raises CannotReach."""
    admin = open_admin(options)
    with reaching(f"The topic {topic} was not created.", "Look into the broker's log."):
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(timeout_s)

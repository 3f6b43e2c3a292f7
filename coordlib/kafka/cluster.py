"""Which topics and brokers a cluster has."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in its stubs

from coordlib.kafka.clients import open_admin, reaching, reader_config
from coordlib.kafka.contact import unreachable
from coordlib.kafka.denied import denial, hidden, missing, reading


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


def require_visible(options: Mapping[str, Any], topic: str, timeout_s: float) -> None:
    """Check of a topic that is not listed that it is not hidden for want of a right.

    Raises:
        NotAllowed: it may be there, and may not be seen.
        CannotReach: no broker answers.
    """
    admin = open_admin(options)
    with reaching(f"It is not known whether {topic} exists.", "Look into the broker's log."):
        if hidden(admin, [topic], timeout_s):
            raise missing(reading(topic), options)


def partitions_of(options: Mapping[str, Any], topic: str, timeout_s: float) -> list[int]:
    """The partitions of one topic; none where there is no such topic.

    A consumer asks for one topic alone, where an admin client asks for all of them.

    Raises:
        KafkaException: no broker answers.
        NotAllowed: the topic may not be seen.
    """
    consumer = Consumer(reader_config(options))
    try:
        found = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    finally:
        consumer.close()
    if denied := denial(found.error, reading(topic), options):
        raise denied
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

"""Which topics and brokers a cluster has, and the topics' ids, which no two topics share."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    AdminClient,
    NewTopic,
)

from coordlib.kafka.admin import Admin
from coordlib.kafka.clients import (
    denial,
    hidden,
    missing,
    open_admin,
    reaching,
    reader_config,
    reading,
    unreachable,
)

#: Commits wait for the answer.
TIMEOUT_S: Final = 3.0
#: In one question.
TOPICS_MAX: Final = 1_000
#: Of brokers that give topics no ids.
NO_ID: Final = "A" * 22


class TopicIdReader:
    """Asks a cluster for ids.

    Args:
        admin: by which it asks; None: it connects with the first question.
    """

    def __init__(self, options: Mapping[str, Any], admin: Admin | None = None) -> None:
        self._options, self._admin = options, admin

    def read(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of those of the topics that are there, as the brokers have them at this moment.

        Brokers that give no ids, or hide a topic, name none. Raises CannotReach.
        """
        if self._admin is None:
            self._admin = open_admin(self._options)
        with reaching("The ids of topics are not known", "Are Kafka's brokers up?"):
            return read_topic_ids(self._admin, topics, TIMEOUT_S)

    def replaced(self, positions: Iterable[tuple[str, str | None]]) -> tuple[str, ...]:
        """The topics that have another id now than one of these, by name and id; sorted.

        Raises CannotReach.
        """
        of = {(topic, id_) for topic, id_ in positions if id_}
        ids = self.read({topic for topic, _ in of}) if of else {}
        return tuple(sorted({topic for topic, id_ in of if ids.get(topic, id_) != id_}))


def read_topic_ids(admin: AdminClient, topics: Collection[str], timeout_s: float) -> dict[str, str]:
    """The ids of those of the topics that are there, and may be seen.

    Raises:
        KafkaException, TimeoutError: no broker answers.
    """
    found: dict[str, str] = {}
    names = sorted(topics)
    for first in range(0, len(names), TOPICS_MAX):
        some = names[first : first + TOPICS_MAX]
        answers = admin.describe_topics(TopicCollection(some), request_timeout=timeout_s)
        ids = {name: _id_of(answers[name], timeout_s) for name in some}
        found |= {name: id_ for name, id_ in ids.items() if id_ not in ("", NO_ID)}
    return found


def topic_id_of(description: Any) -> str:
    """Kafka's own tools print the URL-safe form of a topic's id, librdkafka the other."""
    return str(description.topic_id).replace("+", "-").replace("/", "_")


def _id_of(answer: Any, timeout_s: float) -> str:
    try:
        return topic_id_of(answer.result(timeout_s))
    except KafkaException as problem:
        if problem.args[0].code() < 0:  # librdkafka's own: no broker has answered
            raise
        return ""


def topics_of(
    options: Mapping[str, Any],
    timeout_s: float,
    hint: str = "Check --bootstrap-servers and the security options.",
) -> dict[str, Any]:
    """All topics of a cluster by name, with confluent-kafka's metadata.

    Raises:
        CannotReach: no broker answers.
        SetupError: an option is wrong, or the brokers refuse who asks.
    """
    try:
        return dict(open_admin(options).list_topics(timeout=timeout_s).topics)
    except KafkaException as problem:
        raise unreachable(options, "No Kafka broker answers.", problem, hint) from problem


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

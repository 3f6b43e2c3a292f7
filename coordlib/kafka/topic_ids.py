"""Which topic has a name now: Kafka's ids, which no two topics ever share.

A topic that is deleted and made anew keeps its name alone. Records and Spark's rows name no id, and
a fetch cannot be tied to one; only the description of a topic has it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from coordlib.kafka.admin import Admin
from coordlib.kafka.clients import open_admin, reaching

#: Commits wait for the answer.
TIMEOUT_S: Final = 3.0
#: In one question.
TOPICS_MAX: Final = 1_000
#: Of brokers that give topics no ids.
NO_ID: Final = "A" * 22


class TopicIdReader:
    """Asks a cluster for ids; connects with the first question."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._admin: Admin | None = None

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
        told = {name: _id_of(answers[name], timeout_s) for name in some}
        found |= {name: id_ for name, id_ in told.items() if id_ not in ("", NO_ID)}
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

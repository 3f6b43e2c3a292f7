"""What tests do to the logs of a real broker."""

from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.kit.waiting import wait_until

_TIMEOUT_S: Final = 60.0


def delete_records(admin: Any, before: TopicPartition) -> None:
    """Delete a partition's records below an offset, as retention does.

    librdkafka takes the leader from what it knows already, and fails at once where that is nothing:
    a client that has just been made, on a busy machine.
    """

    def is_deleted() -> bool:
        try:
            admin.delete_records([before])[before].result(_TIMEOUT_S)
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError._NOENT:
                raise
            admin.list_topics(before.topic, timeout=_TIMEOUT_S)
            return False
        return True

    wait_until("the records are deleted", is_deleted)

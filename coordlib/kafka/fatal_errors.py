"""Which of a Kafka client's errors end it.

An idempotent producer reports a fatal failure once, by an exception of the call that serves its
events or by a record's acknowledgement. It refuses every later record. A new producer works.
"""

from typing import Final

from confluent_kafka import KafkaError, KafkaException

#: A newer producer has the transactional id.
FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
)


def is_fatal(problem: BaseException | KafkaError | None) -> bool:
    """Whether the client that raised or reported this error can no longer be used."""
    error = problem.args[0] if isinstance(problem, KafkaException) else problem
    return isinstance(error, KafkaError) and (error.fatal() or error.code() == KafkaError._FATAL)

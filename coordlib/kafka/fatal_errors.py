"""Which of a Kafka client's errors end it.

An idempotent producer that fails fatally says so once, by an exception of whatever call serves its
events or by a record's acknowledgement; whatever it is given later it refuses. Another one works.
"""

from confluent_kafka import KafkaError, KafkaException


def is_fatal(problem: KafkaException | KafkaError | None) -> bool:
    """Whether the client that has raised or told this is of no more use."""
    error = problem.args[0] if isinstance(problem, KafkaException) else problem
    return isinstance(error, KafkaError) and (error.fatal() or error.code() == KafkaError._FATAL)

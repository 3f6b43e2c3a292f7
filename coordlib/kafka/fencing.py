"""Take a transactional id of Kafka's away from whoever has it: its open transaction is aborted."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from coordlib.errors import CannotReach
from coordlib.kafka.clients import reason_of
from coordlib.kafka.denied import denial
from coordlib.kafka.roles import Kind, Operation, Right

TIMEOUT_S: Final = 30.0
_SILENT: Final = "Kafka has not fenced it in time; what was asked may still be done."


def fence(options: Mapping[str, Any], transactional_id: str, timeout_s: float = TIMEOUT_S) -> None:
    """Raise the epoch of this id, as a new process under it does.

    The brokers abort the transaction that is open under it, if there is one, and refuse everything
    that its former producer still sends. An id that was never used is made.

    Args:
        options: librdkafka's, with `bootstrap.servers`.

    Raises:
        CannotReach: the brokers do not answer, or not in time.
        NotAllowed: this client may not write under the id.
    """
    where = f"transactional id {transactional_id}"
    producer = Producer({**options, "transactional.id": transactional_id, "log_level": 0})
    try:
        producer.init_transactions(timeout_s)
    except KafkaException as problem:
        right = Right(Kind.TRANSACTIONAL_ID, transactional_id, Operation.WRITE)
        if denied := denial(problem, right, options):
            raise denied from problem
        is_late = problem.args[0].code() == KafkaError._TIMED_OUT
        what = _SILENT if is_late else f"Kafka has not fenced it: {reason_of(problem)}"
        raise CannotReach(what, where, "Look whether the brokers run, then try again.") from problem
    finally:
        with suppress(KafkaException):  # one that has failed for ever says so once more
            producer.close()

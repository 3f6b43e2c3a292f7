"""What brokers refuse for want of a right, in a sentence that names the right.

A broker names neither the operation nor the row that is missing: it answers that a topic, a group
or an id is not for this principal. The place that asked tells what it needed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    AclOperation,
    AdminClient,
)

from coordlib.errors import NotAllowed
from coordlib.kafka.clients import open_admin
from coordlib.kafka.roles import UNUSED_GROUPS, Kind, Operation, Right

_CODES: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
#: Of consumers that join no group of Kafka's.
UNUSED: Final = Right(Kind.GROUP, UNUSED_GROUPS, Operation.DESCRIBE, is_prefix=True)


def reading(topic: str) -> Right:
    return Right(Kind.TOPIC, topic, Operation.READ)


def writing(topic: str) -> Right:
    return Right(Kind.TOPIC, topic, Operation.WRITE)


def describing(topic: str) -> Right:
    return Right(Kind.TOPIC, topic, Operation.DESCRIBE)


def error_of(problem: BaseException | KafkaError | None) -> KafkaError | None:
    """Kafka's error in an exception; None for others."""
    if isinstance(problem, KafkaException):
        problem = problem.args[0] if problem.args else None
    return problem if isinstance(problem, KafkaError) else None


def is_denied(problem: BaseException | KafkaError | None) -> bool:
    """Whether a right is missing.

    An idempotent producer without any right to write fails for ever, and then tells so in words.
    """
    error = error_of(problem)
    if error is None:
        return False
    is_words = error.code() == KafkaError._FATAL and "authorization failed" in error.str().lower()
    return error.code() in _CODES or is_words


def missing(right: Right, options: Mapping[str, Any]) -> NotAllowed:
    """The error for a right that this client lacks.

    Args:
        options: librdkafka's; only who logs in, and where, is shown of them.
    """
    user = options.get("sasl.username")
    principal = f"User:{user}" if user else "this principal"
    return NotAllowed(
        f"A right is missing: {right}.",
        f"{principal} at {options.get('bootstrap.servers', 'these brokers')}",
        "Let an operator of the brokers grant it: coord acl apply --role ROLE --principal "
        f"{'User:NAME' if not user else principal} (coord acl print: what each role needs)",
    )


def refusing(
    options: Mapping[str, Any], right_to: Callable[[str], Right] = describing
) -> Callable[[str], None]:
    """Raises the error for a topic that this client may not see; for `log_bounds`."""

    def refuse(topic: str) -> None:
        raise missing(right_to(topic), options)

    return refuse


def denial(
    problem: BaseException | KafkaError | None, right: Right, options: Mapping[str, Any]
) -> NotAllowed | None:
    """The error to raise where this was needed; None: it failed for another reason."""
    if not is_denied(problem):
        return None
    error = error_of(problem)
    is_of_group = error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    return missing(UNUSED if is_of_group and right.kind is Kind.TOPIC else right, options)


def hidden(admin: AdminClient, topics: Iterable[str], timeout_s: float) -> list[str]:
    """Those of the topics that the brokers hide: there or not, this principal may not know.

    A list of all topics simply leaves them out.

    Raises:
        KafkaException, TimeoutError: no broker answers.
    """
    names = sorted(topics)
    if not names:
        return []
    answers = admin.describe_topics(TopicCollection(names), request_timeout=timeout_s)
    return [name for name in names if _is_hidden(answers[name], timeout_s)]


def unwritable(options: Mapping[str, Any], topics: Sequence[str], timeout_s: float) -> list[str]:
    """Those of the topics that this client may not write.

    A transaction that could not begin for want of the right purges its records without a reason.

    Raises:
        KafkaException, TimeoutError: no broker answers.
    """
    admin = open_admin(options)
    answers = admin.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=timeout_s
    )
    return [name for name in topics if not _is_writable(answers[name], timeout_s)]


def _is_writable(answer: Any, timeout_s: float) -> bool:
    try:
        allowed = answer.result(timeout_s).authorized_operations
    except KafkaException as problem:
        return not is_denied(problem)
    return allowed is None or AclOperation.WRITE in allowed  # None: brokers without an authorizer


def _is_hidden(answer: Any, timeout_s: float) -> bool:
    try:
        answer.result(timeout_s)
    except KafkaException as problem:
        if problem.args[0].code() < 0:  # librdkafka's own: no broker has answered
            raise
        return is_denied(problem)
    return False

"""What brokers refuse, in words: which errors mean a missing right, and how it is said."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.errors import NotAllowed
from coordlib.exit_codes import USAGE, of_command, of_job
from coordlib.kafka.clients import denial, is_denied, missing, reading, writing
from coordlib.kafka.roles import Kind, Operation, Right

OPTIONS = {
    "bootstrap.servers": "b:1",
    "sasl.username": "alice",
    "sasl.password": "hunter2hunter2",
}


@pytest.mark.parametrize(
    ("problem", "is_so"),
    [
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), True),
        (KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)), True),
        (KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED), True),
        (KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), True),
        (KafkaError(KafkaError._FATAL, "x: Broker: Cluster authorization failed"), True),
        (KafkaError(KafkaError._FATAL, "out of order"), False),
        (KafkaError(KafkaError._AUTHENTICATION), False),
        (TimeoutError(), False),
        (KafkaException(), False),
        (None, False),
    ],
)
def test_only_refusals_of_authorization_are_missing_rights(
    problem: KafkaError | Exception | None, is_so: bool
) -> None:
    """A broker that is away must not look like a right that somebody has to grant."""
    assert is_denied(problem) is is_so
    assert (denial(problem, reading("t"), OPTIONS) is not None) is is_so


def test_the_sentence_names_the_right_and_who_lacks_it_and_no_password() -> None:
    told = missing(writing("coord.requests"), OPTIONS)

    assert told.what == "A right is missing: Write on the topic coord.requests."
    assert told.where == "User:alice at b:1"
    assert "--principal User:alice" in told.hint
    assert "hunter2" not in str(told)


def test_a_reader_that_joins_no_group_lacks_the_right_on_such_groups() -> None:
    refused = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    of_mirror = Right(Kind.GROUP, "billing", Operation.READ)

    assert "Describe on groups that begin with coordlib-" in str(denial(refused, reading("t"), {}))
    assert "Read on the group billing" in str(denial(refused, of_mirror, {}))


def test_a_missing_right_is_not_fixed_by_a_restart() -> None:
    assert of_job(NotAllowed("x.")) == of_command(NotAllowed("x.")) == USAGE

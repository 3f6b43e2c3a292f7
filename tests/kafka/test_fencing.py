"""A transactional id of Kafka's is fenced, or the reason is told."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.errors import CannotReach, CoordError, NotAllowed
from coordlib.kafka import transactions

#: Fatal: each later call of the producer raises, too.
DENIED = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no", True, False, False)
LATE = KafkaError(KafkaError._TIMED_OUT, "late", False, True, False)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (DENIED, NotAllowed, "A right is missing: Write on the transactional-id copier."),
        (LATE, CannotReach, "Kafka has not fenced it in time"),
    ],
)
def test_what_failed_is_told_though_the_producer_fails_at_its_end_too(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError, kind: type[CoordError], said: str
) -> None:
    """librdkafka raises what has failed for ever once more when it is closed."""

    class Failing:
        def __init__(self, config: dict[str, Any]) -> None:
            assert config["transactional.id"] == "copier"

        def init_transactions(self, _timeout: float) -> None:
            raise KafkaException(error)

        def close(self) -> None:
            raise KafkaException(error)

    monkeypatch.setattr(transactions, "Producer", Failing)

    with pytest.raises(kind, match=said):
        transactions.fence({}, "copier")

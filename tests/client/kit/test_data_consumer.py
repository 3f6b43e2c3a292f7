"""What reads for a group tells of topics that are not there."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from coordlib.client.kit import data
from coordlib.client.kit.data import DataConsumer, open_reader
from coordlib.client.transactions.committed_reader import CommittedReader
from coordlib.errors import CannotReach, NotAllowed

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The topics of the cluster; under "problem", why nobody knows them."""
    found: dict[str, Any] = {"orders": 3}

    def read(_client: Any, _options: Any, topics: Sequence[str], own: Any) -> dict[str, int]:
        assert own is None, "all of them are its own"
        if "problem" in found:
            raise found["problem"]
        return {name: found[name] for name in topics if name in found}

    monkeypatch.setattr(data, "read_counts", read)
    return found


def told(reader: Any, timeout_s: float = 20.0) -> list[tuple[str, int]]:
    """The errors that come first."""
    until, found = time.monotonic() + timeout_s, []
    while time.monotonic() < until and not found:
        while (message := reader.poll(0.05)) is not None:
            found.append((message.topic(), message.error().code()))
    return found


def test_a_misspelt_topic_is_told_once(there: dict[str, Any]) -> None:
    """As confluent-kafka's own consumer does: it looked like an empty topic for ever."""
    reader = open_reader(NOWHERE)
    assert isinstance(reader, DataConsumer)
    reader.look_for(["orders", "ordres"])

    assert told(reader) == [("ordres", KafkaError.UNKNOWN_TOPIC_OR_PART)]
    assert told(reader, 0.2) == []
    reader.close()


@pytest.mark.parametrize("problem", [CannotReach("no answer"), NotAllowed("a right is missing")])
def test_where_nobody_knows_nothing_is_told(there: dict[str, Any], problem: Exception) -> None:
    there["problem"] = problem
    reader = open_reader(NOWHERE)
    reader.look_for(["ordres"])

    assert told(reader, 0.5) == []
    reader.close()


def test_a_reader_of_committed_records_tells_it_too(there: dict[str, Any]) -> None:
    """Under a CoordinatedConsumer with coord.decided.by."""
    assert there
    reader = CommittedReader(NOWHERE)
    reader.look_for(["ordres"])

    assert told(reader) == [("ordres", KafkaError.UNKNOWN_TOPIC_OR_PART)]
    reader.close()

"""Leaders of the claimed topics: asked for before anything is read, and not at each claim."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.client.claims import options as shell_data
from coordlib.client.claims.options import KNOWN_FOR_S, Data
from coordlib.client.kit.events import TopicPartition

AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT))


class Reader:
    """A consumer of confluent-kafka that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.problem: KafkaException | None = None

    def list_topics(self, topic: str, timeout: float) -> None:
        assert 0 <= timeout <= shell_data.KNOW_TIMEOUT_S
        self.asked.append(topic)
        if self.problem is not None:
            raise self.problem

    def incremental_assign(self, _: Any) -> None:
        self.asked.append("reads")


@pytest.fixture
def reader() -> Reader:
    return Reader()


def test_all_topics_are_known_before_the_first_partition_is_read(reader: Reader) -> None:
    """A claim of the next topic waited for the fetch of the first one that the broker held open:
    half a second for each topic, in the user's poll."""
    data = Data(reader, {}, ("a", "b"))
    data.begin({TopicPartition("b", 0): 5})
    data.begin({TopicPartition("a", 0): 5, TopicPartition("b", 1): 5})

    assert reader.asked == ["b", "a", "reads", "reads"]


def test_a_topic_is_asked_for_again_before_the_library_forgets_it(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer claims nothing for an hour, and then a partition whose leader it does not know."""
    now_s = 100.0
    monkeypatch.setattr(shell_data, "monotonic", lambda: now_s)
    data = Data(reader, {}, ("a",))
    data.begin({TopicPartition("a", 0): 5})
    now_s += KNOWN_FOR_S
    data.begin({TopicPartition("a", 1): 5})

    assert reader.asked == ["a", "reads", "a", "reads"]


def test_a_broker_that_is_away_is_asked_for_one_topic_and_at_the_next_claim_again(
    reader: Reader,
) -> None:
    """A second of waiting for each of a hundred topics would be a minute without poll."""
    data = Data(reader, {}, ("a", "b"))
    reader.problem = AWAY
    data.begin({TopicPartition("a", 0): 5})
    reader.problem = None
    data.begin({TopicPartition("a", 1): 5})

    assert reader.asked == ["a", "reads", "a", "b", "reads"]

"""Which topics the archive reads, and what it says when they are not there."""

from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.core.wire.stored import Layout
from coordlib.core.wire.topics import ARCHIVED
from coordlib.errors import NotAllowed, StartRefused
from coordlib.history import topics_read
from coordlib.kafka import cluster
from coordlib.kafka.clients import missing, reading


class EmptyCluster:
    """A broker that answers, and knows none of the topics."""

    def __init__(self, _: Any) -> None:
        self.is_closed = False

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={}, error=None)})

    def close(self) -> None:
        self.is_closed = True


def test_topics_that_are_not_there_refuse_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong prefix. The coordinator refuses it too: no restart makes topics, a person does."""
    monkeypatch.setattr(cluster, "Consumer", EmptyCluster)

    with pytest.raises(StartRefused, match="not there") as caught:
        topics_read.places_of({}, "cord")

    assert "cord" in caught.value.where
    assert "coord topics create" in caught.value.hint


@pytest.mark.parametrize(
    ("refused", "is_told"),
    [
        ((), False),
        (("coord.claims.events", "coord.claims.lag"), False),
        (("coord.claims.lag",), True),
        (("coord.claims.events",), True),
    ],
)
def test_half_of_the_rights_for_claims_is_a_mistake(
    refused: tuple[str, ...], is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without both, claims may not be followed at all: hidden topics look like those. An archive
    with one of them would leave out the other for ever, and nobody would know."""

    def partitions_of(client: object, topic: str, timeout_s: float) -> list[int]:
        if topic in refused:
            raise missing(reading(topic), {})
        return [0]

    monkeypatch.setattr(topics_read, "partitions_of", partitions_of)
    monkeypatch.setattr(topics_read, "recorded_layout", lambda *_: None)
    if is_told:
        with pytest.raises(NotAllowed, match=f"Read on the topic {refused[0]}"):
            topics_read.places_of({}, "coord")
    else:
        found = {place.topic for place in topics_read.places_of({}, "coord")}
        assert found == {f"coord.{name}" for name in ARCHIVED} - set(refused)


def test_partitions_that_were_added_are_not_archived(monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody writes there is no history of this prefix.  # INV-115"""
    of_claims = Layout(shards=1, reply_partitions=0, topic_ids={}, input="c.6s")
    recorded = {
        "coord": Layout(shards=2, reply_partitions=4, topic_ids={}),
        "coord.claims": of_claims,
    }
    monkeypatch.setattr(topics_read, "partitions_of", lambda *_: [0, 1, 2])
    monkeypatch.setattr(topics_read, "recorded_layout", lambda _, pipeline: recorded[pipeline])

    found = topics_read.places_of({}, "coord")

    assert {place.partition for place in found if place.topic == "coord.events"} == {0, 1}
    assert {place.partition for place in found if place.topic == "coord.claims.lag"} == {0}

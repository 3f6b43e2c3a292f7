"""Which topics the archive reads, and what it says when they are not there."""

from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.errors import StartRefused
from coordlib.history import topics_read
from coordlib.kafka import cluster


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
    assert "coord topics create" in caught.value.mend

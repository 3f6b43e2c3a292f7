"""Every producer of a client keeps the order of its records, and writes none twice: rule 12."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.client.claims import kafka as claims
from coordlib.client.kit import transport
from coordlib.client.transactions import data_cluster
from coordlib.errors import SetupError
from coordlib.kafka import producer


class Opened(Exception):
    """A producer was opened with these options."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.options = options


def open_one(options: dict[str, Any]) -> None:
    """Stands for confluent_kafka.Producer."""
    raise Opened(options)


#: What a user may have set for other clients of his.
WEAKER = {"bootstrap.servers": "nowhere:1", "enable.idempotence": False, "acks": "1"}
PLACE = SimpleNamespace(
    reply_partitions=1, requests="coord.requests", responses="coord.responses", interval_ms=6_000
)


def members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "find_place", lambda *_: PLACE)
    transport.KafkaTransport(WEAKER, "coord")


def consumers_of_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "LogReader", lambda *_: SimpleNamespace(admin=None))
    monkeypatch.setattr(claims, "find_coordination", lambda *_: PLACE)
    monkeypatch.setattr(claims, "Beginnings", lambda *_: None)
    claims.KafkaClaims(WEAKER, "__marshal.6s")


def writers_of_data(_: pytest.MonkeyPatch) -> None:
    data_cluster.open_idempotent({"bootstrap.servers": "nowhere:1"})


@pytest.mark.parametrize(
    ("module", "opening"),
    [(producer, members), (claims, consumers_of_claims), (data_cluster, writers_of_data)],
)
def test_a_producer_is_idempotent_whatever_the_user_has_set(
    monkeypatch: pytest.MonkeyPatch, module: Any, opening: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Seed 003 asks for the right options, and seed 004 for what makes a repeat harmless."""
    monkeypatch.setattr(module, "Producer", open_one)

    with pytest.raises(Opened) as opened:
        opening(monkeypatch)

    options = opened.value.options
    assert (options["enable.idempotence"], options["acks"]) == (True, "all")


@pytest.mark.parametrize("key", ["enable.idempotence", "acks"])
def test_data_is_written_by_no_weaker_producer(key: str) -> None:
    """Markers stand behind all records of their transaction."""
    with pytest.raises(SetupError, match=key):
        data_cluster.open_idempotent({"bootstrap.servers": "nowhere:1", key: WEAKER[key]})

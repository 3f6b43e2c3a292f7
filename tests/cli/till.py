"""Producers of transactional ids over the real core, for commands that speak to it or read it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coordlib.client.admin import Admin
from coordlib.core.wire import api
from coordlib.core.wire.stored import GROUP_SPACE
from coordlib.core.wire.transactions import TRANSACTION
from coordlib.testing.fake_log import FakeLog
from tests.cli.shop import open_log

TIMEOUT_MS = 60_000


class Till:
    """A client that asks one thing after the other; nothing writes markers."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.client = Admin(transport=log.transport(), client="copier-b")

    def ask(self, name: str, kind: type[api.Request], **fields: Any) -> Any:
        """The answer about a transactional id."""
        (answer,) = self.client._ask_in_space(name, TRANSACTION, kind, 30.0, **fields)
        return answer

    def begin(self, name: str, *partitions: int, timeout_ms: int = TIMEOUT_MS) -> tuple[int, int]:
        """A producer with a transaction that writes to partitions of `out`."""
        given = self.ask(name, api.InitProducerId, timeout_ms=timeout_ms)
        producer = {"producer_id": given.producer_id, "epoch": given.epoch}
        if partitions:
            rows = (api.TopicsOfCluster(cluster="c", topic="out", partitions=partitions),)
            self.ask(name, api.AddPartitionsToTxn, **producer, partitions=rows)
        return given.producer_id, given.epoch

    def add_group(self, name: str, producer_id: int, epoch: int, group: str) -> None:
        """The transaction is going to commit offsets of this group."""
        fields = {"producer_id": producer_id, "epoch": epoch, "of_group": group}
        self.ask(name, api.AddOffsetsToTxn, **fields)

    def end(self, name: str, producer_id: int, epoch: int, result: str = "commit") -> None:
        fields = {"producer_id": producer_id, "epoch": epoch, "result": result}
        self.ask(name, api.EndTxn, **fields)

    def pend(self, group: str, *offsets: int, **fields: Any) -> str:
        """Offsets of `orders`, from partition 0 on, that Kafka decides; their key."""
        rows = tuple(api.CommittedOffset("orders", at, each) for at, each in enumerate(offsets))
        named = {"decided_by": "kafka", "offsets": rows, **fields}
        (answer,) = self.client._ask_in_space(group, GROUP_SPACE, api.PendingCommit, 30.0, **named)
        return str(getattr(answer, "pending", ""))


@contextmanager
def open_till(monkeypatch: pytest.MonkeyPatch) -> Iterator[Till]:
    """A till whose log is judged in the background."""
    with open_log(monkeypatch) as log:
        yield Till(log)

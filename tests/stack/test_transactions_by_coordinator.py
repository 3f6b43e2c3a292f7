"""A transaction over groups of both shards, by hand, whatever happens to the driver between."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from coordlib.core.wire.envelope import shard_of
from coordlib.job import crash
from coordlib.kafka.reading import newest_by_key
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.wire import Wire

#: In `make test` a client dies behind a decision: test_transactions_across_clusters.py.
pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]

SHARDS = 2
#: Groups, and the offset that the transaction commits in each: two in each shard.
OFFSETS = {
    name: number
    for shard in range(SHARDS)
    for number, name in enumerate(
        [n for n in (f"copied-{i}" for i in range(20)) if shard_of(n, SHARDS) == shard][:2], 1
    )
}


class Producer:
    """A transactional producer that says one thing after the other."""

    def __init__(self, wire: Wire, name: str) -> None:
        self._wire, self._name = wire, name
        self.producer_id = self.epoch = -1

    def ask(self, type_: str, **fields: Any) -> str:
        """Write a request; returns its id."""
        request_id = uuid4().hex
        request = {"v": 1, "type": type_, "id": request_id, "client": "copier", **fields}
        request["transactional_id"] = self._name
        if self.epoch >= 0:
            request |= {"producer_id": self.producer_id, "epoch": self.epoch}
        self._wire.send_raw(json.dumps(request).encode(), self._name)
        return request_id

    def answer(self, request_id: str) -> Any:
        """Whoever answered it: of TxnOffsetCommit the shard of the group."""
        return self._wire.wait(
            f"answer to {request_id}", lambda: next(self._answers(request_id), None)
        )

    def _answers(self, request_id: str) -> Iterator[Any]:
        return (each for each in self._wire.values("responses") if each.get("id") == request_id)

    def said(self, type_: str, **fields: Any) -> Any:
        """Ask, wait, and be the producer that the answer names."""
        told = self.answer(self.ask(type_, **fields))
        assert told["error"] == "NONE", told
        self.producer_id = told.get("producer_id", self.producer_id)
        self.epoch = told.get("epoch", self.epoch)
        return told

    def completed(self) -> list[Any]:
        responses = self._wire.values("responses")
        return [each for each in responses if each["type"] == "TransactionCompleted"]


def committed(wire: Wire) -> dict[str, int]:
    """The newest committed offset of each group."""
    found: dict[str, int] = {}
    for message, value in wire.seen["committed"]:
        group, _, _ = json.loads(message.key() or b"")
        if value is not None:
            found[group] = value["offset"]
    return found


def test_a_driver_killed_behind_a_message_leaves_no_transaction_in_parts(
    own_stack: Stack, start_job: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is durable, one of four groups has been told, and the driver is gone. The next
    one feeds what waits in the outbox, that message once more.  # INV-91, INV-95"""
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        copier = Producer(wire, "copier")
        copier.said("InitProducerId", timeout_ms=600_000)
        for number, (group, offset) in enumerate(OFFSETS.items()):
            row = {"topic": "t", "partition": 0, "offset": offset}
            copier.said("TxnOffsetCommit", group=group, number=number, offsets=[row])
        assert committed(wire) == {}

        own_stack.kill_job()
        monkeypatch.setenv(crash.VARIABLE, "fed:0")
        start_job()
        copier.said("EndTxn", result="commit", accepted=len(OFFSETS))
        wait_until("the driver dies", lambda: own_stack.status().job_state != "running")
        assert copier.completed() == []
        monkeypatch.delenv(crash.VARIABLE)
        own_stack.kill_job()
        start_job()

        wire.wait("the transaction is complete", copier.completed)
        assert committed(wire) == OFFSETS
        lines = [
            event
            for group in OFFSETS
            for event in wire.events(group, "OffsetsCommitted")
            if event["detail"]["transaction"]
        ]
        assert len(lines) == len(OFFSETS)
        copier.said("AddOffsetsToTxn", group=next(iter(OFFSETS)))
        client = {"bootstrap.servers": own_stack.bootstrap_servers}
        wait_until("nothing waits", lambda: not any(waits(client)))


def waits(client: dict[str, str]) -> Iterator[bytes]:
    """Messages that no shard is known to have judged."""
    for shard in range(SHARDS):
        for key in newest_by_key(client, "coord.outbox", shard):
            if not key.startswith(b'["'):
                yield key

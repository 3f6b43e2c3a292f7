"""Feeder, ticks and shards together: a transaction over two shards, and drivers that die.

The job without Spark and Kafka: batches are folded, their outputs kept as compaction keeps them,
and what the driver writes is appended to the logs of the shards.  # INV-91, INV-95
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from coordlib.core.engine.effects import COMMITTED, OUTBOX, REQUESTS, RESPONSES, Output
from coordlib.core.engine.fold import fold
from coordlib.core.engine.state import InputRecord, ShardSettings, Status
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from coordlib.job.background.feeder import Feeder, waiting_in
from coordlib.job.background.ticks import TickWriter
from tests.tools import producers as p

SHARDS = 2
#: Groups in both shards, and the offset that each is to have.
OFFSETS = {
    next(n for n in (f"g{i}" for i in range(9)) if shard_of(n, SHARDS) == shard): 7 + shard
    for shard in range(SHARDS)
}
HOME = shard_of(p.ID, SHARDS)


class Job:
    """The logs, the states, and all that was written; drivers come and go."""

    def __init__(self) -> None:
        self.log: list[list[bytes]] = [[] for _ in range(SHARDS)]
        self.judged = [0] * SHARDS
        self.blobs: list[bytes | None] = [None] * SHARDS
        self.outputs: list[Output] = []
        self.visible = 0
        self.restart()

    def restart(self) -> None:
        """A new driver: what it knows, it reads in the outbox."""
        kept: dict[int, dict[bytes, bytes]] = {shard: {} for shard in range(SHARDS)}
        for each in self.outputs:
            if each.topic == OUTBOX:
                kept[each.partition].pop(each.key, None)
                if each.value is not None:
                    kept[each.partition][each.key] = each.value
        found = waiting_in(kept)
        self.feeder = Feeder(self._append, self.serve, found)
        positions = {shard: count - 1 for shard, count in enumerate(self.judged)}
        self.ticks = TickWriter(self, positions, [], lambda: 0.0, found.heard, found.acknowledged)

    def _append(self, shard: int, record: api.Control, told: Callable[[str], None]) -> None:
        self.log[shard].append(codec.encode(record))
        told("")

    def write(self, shard: int, tick: api.Tick, told: Callable[[bool], None]) -> None:
        self._append(shard, tick, lambda problem: told(not problem))

    def ends(self, places: Any, visible: bool) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, self.visible)

    def serve(self) -> None:
        pass

    def batch(self) -> None:
        """Judge what is new, and commit it."""
        outputs: list[Output] = []
        statuses: list[Status] = []
        for shard, log in enumerate(self.log):
            new = [
                InputRecord(REQUESTS, offset, 1_000 + offset, log[offset])
                for offset in range(self.judged[shard], len(log))
            ]
            if new:
                how = ShardSettings(
                    shard=shard,
                    shards=SHARDS,
                    reply_partitions=1,
                    incarnation="t",
                    checks_invariants=True,
                )
                done = fold(self.blobs[shard], new, how, REGISTRY)
                self.blobs[shard], self.judged[shard] = done.blob, len(log)
                outputs += done.outputs
                statuses.append(msgspec.json.decode(msgspec.json.encode(done.status), type=Status))
        self.outputs += outputs
        self.feeder.batch_committed(outputs)
        self.ticks.batch_committed(statuses, {})

    def run(self, rounds: int = 6) -> None:
        """The driver's threads have their turns, and batches follow."""
        for _ in range(rounds):
            self.feeder.turn()
            self.ticks.turn()
            self.batch()

    def ask(self, *requests: api.Request) -> None:
        for request in requests:
            self.log[HOME].append(codec.encode(request))
        self.batch()

    def told(self, type_: str) -> list[dict[str, Any]]:
        values = [json.loads(o.value or b"{}") for o in self.outputs if o.topic == RESPONSES]
        return [each for each in values if each["type"] == type_]

    def committed(self) -> dict[str, list[int]]:
        """The offsets that were committed, one after the other, by group."""
        found: dict[str, list[int]] = {}
        for each in self.outputs:
            if each.topic == COMMITTED and each.value is not None:
                offset = json.loads(each.value)["offset"]
                found.setdefault(json.loads(each.key)[0], []).append(offset)
        return found


def begun(job: Job) -> int:
    """A transaction with offsets of both groups, accepted; the producer id."""
    job.ask(p.init())
    producer_id: int = job.told("InitProducerId")[-1]["producer_id"]
    for number, (group, offset) in enumerate(OFFSETS.items()):
        rows = (api.CommittedOffset("t", 0, offset),)
        job.ask(p.offsets(producer_id, 0, number, of_group=group, offsets=rows))
    job.run()
    assert [each["error"] for each in job.told("TxnOffsetCommit")] == ["NONE", "NONE"]
    return producer_id


def test_a_transaction_reaches_both_shards() -> None:
    """Nobody but feeder and ticks moves it, and then nothing is left to be written."""
    job = Job()
    producer_id = begun(job)
    job.ask(p.end(producer_id, 0, accepted=2))
    assert job.committed() == {}
    job.run()

    assert job.committed() == {group: [offset] for group, offset in OFFSETS.items()}
    assert len(job.told("TransactionCompleted")) == 1
    written = job.feeder.written, job.ticks.written, [len(log) for log in job.log]
    job.run()
    assert (job.feeder.written, job.ticks.written, [len(log) for log in job.log]) == written
    job.restart()
    job.run()
    since = [
        value for log, before in zip(job.log, written[2], strict=True) for value in log[before:]
    ]
    assert all(b'"type":"Tick"' in value and b"heard" not in value for value in since)


@pytest.mark.parametrize("place", ["committed", "fed", "fed twice", "judged", "told"])
def test_a_driver_that_dies_leaves_no_part(place: str) -> None:
    """Behind its commit; behind its writing, before or after it was judged; behind the tick."""
    job = Job()
    producer_id = begun(job)
    job.ask(p.end(producer_id, 0, accepted=2))
    if place != "committed":
        job.feeder.turn()
    if place == "fed twice":
        job.restart()
        job.feeder.turn()
    if place in ("judged", "told"):
        job.batch()
    if place == "told":
        job.ticks.turn()
    job.restart()
    job.run()

    assert job.committed() == {group: [offset] for group, offset in OFFSETS.items()}
    assert len(job.told("TransactionCompleted")) == 1
    job.ask(p.add(producer_id, 1))
    assert job.told("AddPartitionsToTxn")[-1]["error"] == "NONE"

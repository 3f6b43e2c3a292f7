"""Transactions that the pure core judges per second, from bytes to effects: one core, no Kafka.

Each has one commit of four offsets, of a group of its own. By Kafka, that is a PendingCommit in one
batch, and the driver's word about all of them in the next. By the coordinator, it is
TxnOffsetCommit and EndTxn, two messages to the group's shard, here the same one, and the word that
they were judged. What the driver writes is signed; to verify it belongs to the time.
"""

import json
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from coordlib.core.engine.effects import COMMITTED, OUTBOX, REQUESTS, Output
from coordlib.core.transactions.protocol import TransactionsSettings
from coordlib.core.wire import api, codec
from coordlib.core.wire.offsets import KAFKA
from coordlib.core.wire.stored import ControlKey
from coordlib.core.wire.transactions import TRANSACTION
from coordlib.job.control import ED25519, Signer
from tests.tools.bench.figures import percentile
from tests.tools.core import InputRecord, ShardSettings, fold, of_groups

PARTITIONS: Final = 4
START_MS: Final = 1_700_000_000_000
_SECRET: Final = bytes(range(32))
_KEY: Final = ControlKey(key="bench", public=ED25519.public_of(_SECRET), since={"0": 0})
SETTINGS: Final = ShardSettings(
    shard=0,
    shards=1,
    reply_partitions=4,
    incarnation="bench000",
    # All groups and ids are made at one moment of the log.
    families={
        **of_groups(new_groups_per_second_max=1_000_000),
        TRANSACTION: TransactionsSettings(new_per_second_max=1_000_000),
    },
    keys=(_KEY,),
    verify=ED25519.verify,
)


class _Life:
    """A shard, its log and its driver; the time of the processor that batches have taken."""

    def __init__(self) -> None:
        self.blob: bytes | None = None
        self.next_offset, self.now_ms = 0, START_MS
        self.spent_s = 0.0
        self._signer = Signer(
            1, _KEY.key, SETTINGS.incarnation, lambda said: ED25519.sign(_SECRET, said)
        )
        self._records: list[InputRecord] = []

    def write(self, record: api.AnyRequest) -> int:
        """Append to the log what the next batch judges; its offset."""
        if isinstance(record, api.Control):
            value = self._signer.value(0, record)
        else:
            value = codec.encode(record)
        self._records.append(InputRecord(REQUESTS, self.next_offset, self.now_ms, value))
        self.next_offset += 1
        return self.next_offset - 1

    def batch(self) -> list[Output]:
        """Judge it, from the blob to the next one."""
        records, self._records = self._records, []
        began = time.process_time()
        outcome = fold(self.blob, records, SETTINGS)
        self.spent_s += time.process_time() - began
        self.blob = outcome.blob
        self.now_ms += 300
        return outcome.outputs


def by_kafka(groups: int, repeats: int) -> dict[str, float]:
    """Transactions per second that Kafka decides: one open in each group at a time."""
    life, rates = _Life(), []
    for turn in range(repeats + 1):
        life.spent_s = 0.0
        asked = [life.write(_pending_commit(number, turn)) for number in range(groups)]
        life.batch()
        life.write(api.TxnDecided(v=1, committed=tuple(asked), aborted=()))
        _check(life.batch(), groups)
        if turn:  # the first one makes the groups
            rates.append(groups / life.spent_s)
    return _figures(rates, life)


def by_coordinator(ids: int, repeats: int) -> dict[str, float]:
    """Transactions per second that EndTxn decides: one of each transactional id at a time."""
    life, rates = _Life(), []
    producers = [
        life.write(
            api.InitProducerId(
                v=1, id="i", client="c", group=_id(number), timeout_ms=60_000, reply=0
            )
        )
        for number in range(ids)
    ]
    life.batch()
    for turn in range(repeats + 1):
        life.spent_s = 0.0
        for number, producer_id in enumerate(producers):
            _transact(life, number, producer_id, turn)
        outputs = life.batch()
        heard = _feed(life, outputs)
        _check(life.batch(), ids)
        life.write(api.Tick(v=1, published=life.next_offset - 1, heard={0: heard}))
        life.batch()
        if turn:
            rates.append(ids / life.spent_s)
    return _figures(rates, life)


def _transact(life: _Life, number: int, producer_id: int, epoch: int) -> None:
    """TxnOffsetCommit, which begins it, and EndTxn. A producer id is an offset of this log."""
    said: dict[str, Any] = {
        "v": 1,
        "client": "c",
        "group": _id(number),
        "producer_id": producer_id,
        "epoch": epoch,
    }
    life.write(
        api.TxnOffsetCommit(
            **said, id="o", reply=0, of_group=f"g-{number}", number=0, offsets=_offsets(epoch)
        )
    )
    life.write(api.EndTxn(**said, id="e", reply=0, result="commit", accepted=1))


def _feed(life: _Life, outputs: Sequence[Output]) -> int:
    """The driver writes all messages of a batch into the shard's log; the number of the last."""
    number = 0
    for each in outputs:
        if each.topic == OUTBOX and each.value is not None and len(json.loads(each.key)) == 3:
            number = json.loads(each.key)[2]
            life.write(api.FromShard(v=1, source=0, seq=number, body=msgspec.Raw(each.value)))
    return number


def _check(outputs: Sequence[Output], transactions: int) -> None:
    written = sum(each.topic == COMMITTED for each in outputs)
    assert written == transactions * PARTITIONS, (
        f"{written} offsets of {transactions} were committed"
    )


def _figures(rates: Sequence[float], life: _Life) -> dict[str, float]:
    return {
        "transactions_per_s": round(percentile(rates, 0.5)),
        "best_per_s": round(max(rates)),
        "blob_bytes": len(life.blob or b""),
    }


def _pending_commit(number: int, turn: int) -> api.PendingCommit:
    return api.PendingCommit(
        v=1,
        id=f"0123456789abcdef-{turn}",
        client="c",
        group=f"g-{number}",
        reply=0,
        decided_by=KAFKA,
        offsets=_offsets(turn),
    )


def _offsets(turn: int) -> tuple[api.CommittedOffset, ...]:
    return tuple(api.CommittedOffset("t", partition, turn) for partition in range(PARTITIONS))


def _id(number: int) -> str:
    return f"copier-{number}"


WAYS: Final = {"kafka": by_kafka, "coordinator": by_coordinator}

"""How a transaction ends: it is decided, its groups and partitions are told, it is complete.

A decision stands in the id's head, and messages to the shards of its groups in the outbox, in one
transaction: nobody can act on it before it is durable.  # INV-92
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from coordlib import limits
from coordlib.core.engine import effect as fx
from coordlib.core.transactions.states import DECIDED, State
from coordlib.core.transactions.step import TransactionStep
from coordlib.core.transactions.transaction import Transaction, count_of
from coordlib.core.wire import responses as rs
from coordlib.core.wire import stored
from coordlib.core.wire.partitioner import shard_of
from coordlib.core.wire.producers import ABORT, COMMIT, EndedTransaction, Result, TxnMarker

PREPARE: Final = {COMMIT: State.PREPARE_COMMIT, ABORT: State.PREPARE_ABORT}
COMPLETE: Final = {COMMIT: State.COMPLETE_COMMIT, ABORT: State.COMPLETE_ABORT}


def decide(
    step: TransactionStep,
    result: Result,
    reason: str,
    told: Mapping[str, str] = MappingProxyType({}),
    **fields: Any,
) -> None:
    """Decide the open transaction; what else changes is given as fields.

    `told`: what its line of history has besides.
    """
    value = step.live
    ended = EndedTransaction(
        producer_id=value.producer_id, epoch=value.epoch, result=result, reason=reason
    )
    waits: dict[int, int] = {}
    for group in sorted(value.groups):
        home = shard_of(group, step.at.shards)
        waits[home] = step.send(home, _marker(value, group, result))
    step.alter(
        PREPARE[result],
        **{
            "epoch": value.epoch + 1,
            "last_epoch": value.epoch,
            "ended": ended,
            "unwritten": value.partitions,
            "partitions": {},
            "waits": dict(sorted(waits.items())),
            **fields,
        },
    )
    step.record(
        stored.EVENT_TRANSACTION_PREPARED,
        reason=reason,
        detail={
            **_named(ended),
            "client": value.client,
            "groups": sorted(value.groups),
            "partitions": count_of(value.partitions),
            **told,
        },
    )
    complete(step)


def decide_nothing(step: TransactionStep) -> None:
    """An abort of a producer that has begun nothing: its epoch is used, as by any end."""
    value = step.live
    ended = EndedTransaction(
        producer_id=value.producer_id, epoch=value.epoch, result=ABORT, reason="client"
    )
    producer = next_after(step, value)
    step.alter(State.COMPLETE_ABORT, ended=ended, last_epoch=value.epoch, **producer)


def next_after(step: TransactionStep, value: Transaction) -> dict[str, int]:
    """The fields of the producer after one that has no transaction open any more."""
    if value.epoch < limits.EPOCH_MAX:
        return {"epoch": value.epoch + 1}
    return {
        "producer_id": step.own_producer_id,
        "epoch": 0,
        "previous_producer_id": value.producer_id,
    }


def complete(step: TransactionStep) -> None:
    """The transaction is over if all of its groups and partitions have been told."""
    value = step.live
    if value.state not in DECIDED or value.ended is None or value.unwritten:
        return
    if any(step.channels.heard_by(shard) < number for shard, number in value.waits.items()):
        return
    producer_id, epoch = value.next_producer
    is_new = producer_id != value.producer_id
    step.alter(
        COMPLETE[value.ended.result],
        producer_id=producer_id,
        epoch=epoch,
        next_producer_id=-1,
        previous_producer_id=value.producer_id if is_new else value.previous_producer_id,
        started_clock_ms=-1,
        started_ms=-1,
        groups={},
        waits={},
        waiting=(),
    )
    step.record(
        stored.EVENT_TRANSACTION_COMPLETED,
        detail={
            **_named(value.ended),
            "duration_ms": step.at.clock_ms - value.started_clock_ms,
            "groups": len(value.groups),
        },
    )
    _tell(step, value, value.ended)


def _tell(step: TransactionStep, before: Transaction, ended: EndedTransaction) -> None:
    """The producer, and all who wait to be it. The next epoch is not told: whoever was fenced reads
    it, too, and who may have it gets it in an answer.  # INV-94"""
    told = rs.TransactionCompleted(
        group=step.name,
        cause=step.at.coordinate,
        producer_id=ended.producer_id,
        epoch=ended.epoch,
        result=ended.result,
    )
    for reply in sorted({before.reply, *before.waiting}):
        step.emit(fx.Notify(reply, told))


def strike_off(step: TransactionStep, unwritten: Any) -> None:
    """Partitions have the marker; these are left."""
    if unwritten != step.live.unwritten:
        step.change(unwritten=unwritten)
    complete(step)


def _marker(value: Transaction, group: str, result: Result) -> TxnMarker:
    return TxnMarker(
        group=group,
        transactional_id=value.group,
        producer_id=value.producer_id,
        epoch=value.epoch,
        result=result,
    )


def _named(ended: EndedTransaction) -> dict[str, Any]:
    return {"producer_id": ended.producer_id, "epoch": ended.epoch, "result": ended.result}

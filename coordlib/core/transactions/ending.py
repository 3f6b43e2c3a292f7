"""How a transaction ends: it is decided, its groups and partitions get markers, it is complete.

EndTxn decides by its producer, AbortTransaction by an operator, a timeout by the clock: once and
for ever. A decision stands in the id's head, and messages to the shards of its groups in the
outbox, in one transaction: nobody can act on it before it is durable.  # INV-92

TxnMarkersWritten names partitions that have the marker. Anybody may write the markers that the
producer has not written, and report them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from coordlib import limits
from coordlib.core.engine import effects as fx
from coordlib.core.transactions.tables import ABORTS, TABLE, Ask, Then, sender_of
from coordlib.core.transactions.transaction import (
    AT_REST,
    CLIENT,
    DECIDED,
    OPERATOR,
    State,
    Transaction,
    TransactionStep,
    count_of,
    without_rows,
)
from coordlib.core.wire import api, stored
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.transactions import ABORT, COMMIT, EndedTransaction, Result, TxnMarker
from coordlib.errors import ErrorCode

PREPARE: Final = {COMMIT: State.PREPARE_COMMIT, ABORT: State.PREPARE_ABORT}
COMPLETE: Final = {COMMIT: State.COMPLETE_COMMIT, ABORT: State.COMPLETE_ABORT}


def decide(
    step: TransactionStep,
    result: Result,
    reason: str,
    more: Mapping[str, str] = MappingProxyType({}),
    **fields: Any,
) -> None:
    """Decide the open transaction; what else changes is given as fields.

    `more`: further details for history.
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
            **more,
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
    """Complete the transaction if all of its groups and partitions have its marker."""
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
    """Notify the producer, and those that wait to become it. Without the next epoch: a fenced
    producer reads the notice, too, and the next one gets its epoch in an answer.  # INV-94"""
    completed = api.TransactionCompleted(
        group=step.name,
        cause=step.at.coordinate,
        producer_id=ended.producer_id,
        epoch=ended.epoch,
        result=ended.result,
    )
    for reply in sorted({before.reply, *before.waiting}):
        step.emit(fx.Notify(reply, completed))


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


#: For a producer that would commit a part.
NOT_ALL_ACCEPTED: Final = "Abort: not all offsets of this transaction were accepted."


def end_txn(step: TransactionStep, request: api.EndTxn) -> None:
    """Judge one EndTxn."""
    value, ask = step.value, Ask.COMMIT if request.result == COMMIT else Ask.ABORT
    sender = sender_of(value, request.producer_id, request.epoch)
    then = TABLE[ask][sender][State.DEAD if value is None else value.state]
    if isinstance(then, ErrorCode):
        return step.refuse(request, then)
    if then is Then.PREPARE:
        if ask is Ask.COMMIT and request.accepted != step.live.commits:
            return step.refuse(request, ErrorCode.TRANSACTION_ABORTABLE, NOT_ALL_ACCEPTED)
        is_last = step.live.epoch >= limits.EPOCH_MAX
        more: dict[str, Any] = {"next_producer_id": step.own_producer_id} if is_last else {}
        decide(step, request.result, CLIENT, **more)
    elif then is Then.END_NOTHING:
        decide_nothing(step)
    elif step.live.next_producer[1] > limits.EPOCH_MAX:
        _give_new_id(step)
    producer_id, epoch = step.live.next_producer
    return step.answer(request, producer_id=producer_id, epoch=epoch)


def _give_new_id(step: TransactionStep) -> None:
    """A timeout or an operator used up the epochs: no record of this id's gave it another one."""
    if step.live.state in AT_REST:
        before = step.live
        step.change(
            producer_id=step.own_producer_id, epoch=0, previous_producer_id=before.producer_id
        )
    else:
        step.change(next_producer_id=step.own_producer_id)


def abort_transaction(step: TransactionStep, request: api.AbortTransaction) -> None:
    """Judge one AbortTransaction. A decision that stands is not changed by it."""
    if step.value is None:
        return step.refuse(request, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    then = ABORTS[step.value.state]
    if isinstance(then, ErrorCode):
        return step.refuse(request, then)
    if then is Then.FENCE:
        more = {"by": request.client} | ({"comment": request.reason} if request.reason else {})
        decide(step, ABORT, OPERATOR, more)
    ended = step.live.ended
    assert ended is not None, "a transaction is ending, or has just ended"
    return step.answer(request, result=ended.result)


def txn_markers_written(step: TransactionStep, request: api.TxnMarkersWritten) -> None:
    """Judge one TxnMarkersWritten."""
    value = step.value
    sender = sender_of(value, request.producer_id, request.epoch)
    then = TABLE[Ask.MARKERS][sender][State.DEAD if value is None else value.state]
    if isinstance(then, ErrorCode):
        step.refuse(request, then)
        return
    step.answer(request)
    if then is Then.STRIKE:
        strike_off(step, without_rows(step.live.unwritten, request.partitions))

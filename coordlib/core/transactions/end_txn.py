"""EndTxn: the producer decides its transaction, once and for ever."""

from typing import Any, Final

from coordlib import limits
from coordlib.core.transactions import ending
from coordlib.core.transactions.states import AT_REST, State
from coordlib.core.transactions.step import TransactionStep
from coordlib.core.transactions.tables import TABLE, Ask, Then, sender_of
from coordlib.core.transactions.transaction import CLIENT
from coordlib.core.wire import requests as rq
from coordlib.core.wire.producers import COMMIT
from coordlib.errors import ErrorCode

#: For a producer that would commit a part.
NOT_ALL_ACCEPTED: Final = "Abort: not all offsets of this transaction were accepted."


def end_txn(step: TransactionStep, request: rq.EndTxn) -> None:
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
        ending.decide(step, request.result, CLIENT, **more)
    elif then is Then.END_NOTHING:
        ending.decide_nothing(step)
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

"""What all requests share that add something to a transaction: it begins with the first of them."""

from typing import Any

from coordlib.core.engine.step import SHARD_IS_TOO_LARGE
from coordlib.core.transactions.states import State
from coordlib.core.transactions.step import TransactionStep
from coordlib.core.transactions.tables import TABLE, Ask, Then, sender_of
from coordlib.core.wire import requests as rq
from coordlib.core.wire import stored
from coordlib.errors import ErrorCode


def may_add(step: TransactionStep, request: rq.TransactionRequest) -> bool:
    """Whether its sender has, or begins, the open transaction; refused if not."""
    value = step.value
    sender = sender_of(value, request.producer_id, request.epoch)
    then = TABLE[Ask.ADD][sender][State.DEAD if value is None else value.state]
    if isinstance(then, ErrorCode):
        step.refuse(request, then)
    return isinstance(then, Then)


def add(step: TransactionStep, request: rq.TransactionRequest, **fields: Any) -> bool:
    """Change the open transaction, or begin it; refused if there is no room."""
    before = step.live
    if before.state is not State.ONGOING:
        at = step.at
        step.alter(State.ONGOING, started_clock_ms=at.clock_ms, started_ms=at.time_ms, **fields)
    elif any(getattr(before, name) != after for name, after in fields.items()):
        step.alter(State.ONGOING, **fields)
    more = step.live.size_bytes() - before.size_bytes()
    if more > 0 and more > step.room_for(is_known=True):
        step.hold(before)
        step.refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, SHARD_IS_TOO_LARGE)
        return False
    if before.state is not State.ONGOING:
        step.record(
            stored.EVENT_TRANSACTION_STARTED,
            detail={
                "producer_id": before.producer_id,
                "epoch": before.epoch,
                "client": request.client,
            },
        )
    return True

"""InitProducerId: a producer id and an epoch, which fence all older producers of the id.

Source: TransactionCoordinator.handleInitProducerId. The cases stand in `tables.py`.
"""

from typing import Any, Final

from msgspec import UNSET

from coordlib import limits
from coordlib.core.engine.step import SHARD_IS_FULL, SHARD_IS_TOO_LARGE, reply_of
from coordlib.core.transactions import ending
from coordlib.core.transactions.tables import Init, init_of
from coordlib.core.transactions.transaction import (
    FENCED,
    HEAD_BYTES,
    State,
    Transaction,
    TransactionStep,
    as_rows,
)
from coordlib.core.wire import api, stored
from coordlib.core.wire.transactions import ABORT
from coordlib.errors import ErrorCode

#: For the sender of a request that comes when too many ids are being made.
SHARD_IS_THROTTLED: Final = (
    "Try again, or raise new_groups_per_second_max: this shard makes no more ids just now."
)
_TOO_MANY_SHARDS: Final = (
    "Transactions that the coordinator decides need a prefix of at most "
    f"{limits.TXN_SHARDS_MAX} shards: let Kafka or a table decide."
)
_WAIT: Final = "Wait until the transaction before has ended everywhere, then ask again."


def init_producer_id(step: TransactionStep, request: api.InitProducerId) -> None:
    """Judge one InitProducerId."""
    if request.group is None:  # an idempotent producer: nothing is kept of it
        step.answer(request, producer_id=step.own_producer_id, epoch=0)
        return None
    bounds = step.family.config
    if not bounds.timeout_min_ms <= request.timeout_ms <= bounds.timeout_max_ms:
        return step.refuse(request, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    then = init_of(step.value, request)
    if then is ErrorCode.CONCURRENT_TRANSACTIONS:
        return _let_wait(step, request)
    if isinstance(then, ErrorCode):
        return step.refuse(request, then)
    if then is Init.FENCE:
        return _fence(step, request)
    if then is Init.CREATE:
        return _create(step, request)
    return _renew(step, request, then)


def _create(step: TransactionStep, request: api.InitProducerId) -> None:
    if step.at.shards > limits.TXN_SHARDS_MAX:
        return step.refuse(request, ErrorCode.INVALID_REQUEST, _TOO_MANY_SHARDS)
    if not step.may_create:
        return step.refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, SHARD_IS_FULL)
    if step.family.throttle_ms:
        return step.refuse(
            request,
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            SHARD_IS_THROTTLED,
            throttle_time_ms=step.family.throttle_ms,
        )
    if step.room_bytes < HEAD_BYTES:
        return step.refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, SHARD_IS_TOO_LARGE)
    value = Transaction(
        group=step.name,
        producer_id=step.own_producer_id,
        updated_clock_ms=step.at.clock_ms,
        **_asked_by(step, request),
    )
    step.make(value, "first producer")
    return _answer(step, request)


def _renew(step: TransactionStep, request: api.InitProducerId, then: Init) -> None:
    """Answer with the producer of an id without an open transaction."""
    before = step.live
    fields: dict[str, Any] = {}
    if then is not Init.AGAIN:
        is_named = request.epoch is not UNSET
        if then is Init.NEW_ID:
            fields = {
                "producer_id": step.own_producer_id,
                "epoch": 0,
                "previous_producer_id": before.producer_id,
            }
        else:
            fields = {"epoch": before.epoch + 1}
        fields["last_epoch"] = request.epoch if is_named else -1
        if not is_named and _was_given(before):
            _record_fenced(step, before, request.client)
    if then is not Init.AGAIN or before.state is not State.EMPTY:
        step.alter(State.EMPTY, **fields, **_asked_by(step, request))
    return _answer(step, request)


def _fence(step: TransactionStep, request: api.InitProducerId) -> None:
    """The open transaction is aborted first; its producer finds that it is fenced."""
    last_epoch = -1 if request.epoch is UNSET else step.live.epoch
    _record_fenced(step, step.live, request.client)
    step.change(waiting=_waiting(step, request))
    ending.decide(step, ABORT, FENCED, last_epoch=last_epoch)
    _refuse_for_now(step, request)


def _let_wait(step: TransactionStep, request: api.InitProducerId) -> None:
    """Notify the sender when the transaction has ended."""
    waiting = _waiting(step, request)
    if waiting != step.live.waiting:
        step.change(waiting=waiting)
    _refuse_for_now(step, request)


def _waiting(step: TransactionStep, request: api.InitProducerId) -> tuple[int, ...]:
    return tuple(sorted({*step.live.waiting, reply_of(request, step.at)}))


def _refuse_for_now(step: TransactionStep, request: api.InitProducerId) -> None:
    value = step.live
    step.refuse(
        request,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        _WAIT,
        unwritten=as_rows(value.unwritten),
        ended=value.ended,
    )


def _asked_by(step: TransactionStep, request: api.InitProducerId) -> dict[str, Any]:
    return {
        "timeout_ms": request.timeout_ms,
        "client": request.client,
        "init_id": request.id,
        "reply": reply_of(request, step.at),
    }


def _was_given(value: Transaction) -> bool:
    """Whether a producer has the present epoch; that of a fence has none."""
    ended = value.ended
    return ended is None or ended.reason != FENCED or ended.epoch + 1 != value.epoch


def _record_fenced(step: TransactionStep, before: Transaction, by: str) -> None:
    step.record(
        stored.EVENT_PRODUCER_FENCED,
        reason=f"fenced by {by}",
        detail={
            "producer_id": before.producer_id,
            "epoch": before.epoch,
            "client": before.client,
            "by": by,
        },
    )


def _answer(step: TransactionStep, request: api.InitProducerId) -> None:
    step.answer(request, producer_id=step.live.producer_id, epoch=step.live.epoch)

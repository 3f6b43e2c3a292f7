"""Requests that add to a transaction, and DescribeTransaction. The first addition begins it.

TxnOffsetCommit has offsets for the shard of their group, which judges and answers them. It comes to
the id's shard, and not to the group's as in Kafka: there one that comes behind the end of its
transaction would wait for ever, unless the broker asked the coordinator (KIP-890). Here it is
refused, or it stands before the marker in the same channel.  # INV-99
"""

from typing import Any, Final

from msgspec import UNSET

from coordlib import limits
from coordlib.core.engine.step import SHARD_IS_TOO_LARGE
from coordlib.core.transactions.tables import TABLE, Ask, Then, sender_of
from coordlib.core.transactions.transaction import (
    State,
    TransactionStep,
    as_rows,
    count_of,
    with_rows,
)
from coordlib.core.wire import api, codec, stored
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.transactions import TxnOffsets
from coordlib.errors import ErrorCode


def may_add(step: TransactionStep, request: api.TransactionRequest) -> bool:
    """Whether its sender has, or begins, the open transaction; refused if not."""
    value = step.value
    sender = sender_of(value, request.producer_id, request.epoch)
    then = TABLE[Ask.ADD][sender][State.DEAD if value is None else value.state]
    if isinstance(then, ErrorCode):
        step.refuse(request, then)
    return isinstance(then, Then)


def add(step: TransactionStep, request: api.TransactionRequest, **fields: Any) -> bool:
    """Change the open transaction, or begin it; refused if there is no room."""
    before = step.live
    if before.state is not State.ONGOING:
        at = step.at
        step.alter(State.ONGOING, started_clock_ms=at.clock_ms, started_ms=at.time_ms, **fields)
    elif any(getattr(before, name) != after for name, after in fields.items()):
        step.alter(State.ONGOING, **fields)
    more = step.live.size_bytes() - before.size_bytes()
    if more > 0 and more > step.members_room_bytes:
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


def add_partitions_to_txn(step: TransactionStep, request: api.AddPartitionsToTxn) -> None:
    """Judge one AddPartitionsToTxn."""
    if not may_add(step, request):
        return
    most = step.family.config.partitions_max
    partitions = with_rows(step.live.partitions, request.partitions)
    if count_of(partitions) > most:
        why = f"A transaction has at most {most} partitions: end this one first."
        step.refuse(request, ErrorCode.INVALID_REQUEST, why)
    elif add(step, request, partitions=partitions):
        step.answer(request)


#: For the sender of a request that comes when another shard is far behind.
TOO_MANY_UNHEARD: Final = (
    "Try again: the shard of this group has too many messages to judge before."
)
#: When it has caught up is unknown; a batch takes less.
THROTTLE_MS: Final = 1_000


def add_offsets_to_txn(step: TransactionStep, request: api.AddOffsetsToTxn) -> None:
    """Judge one AddOffsetsToTxn."""
    if not may_add(step, request) or not may_name(step, request, request.of_group):
        return
    groups = {**step.live.groups}
    groups.setdefault(request.of_group, 0)
    if add(step, request, groups=dict(sorted(groups.items()))):
        step.answer(request)


def may_name(step: TransactionStep, request: api.TransactionRequest, group: str) -> bool:
    """Whether a group may be part of the transaction; refused if not."""
    groups, most = step.live.groups, step.family.config.groups_max
    if group not in groups and len(groups) >= most:
        why = f"A transaction has at most {most} groups: end this one first."
        step.refuse(request, ErrorCode.INVALID_REQUEST, why)
        return False
    home = shard_of(group, step.at.shards)
    if step.channels.unheard_by(home) >= limits.UNHEARD_MAX:
        step.refuse(
            request,
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            TOO_MANY_UNHEARD,
            throttle_time_ms=THROTTLE_MS,
        )
        return False
    return True


def txn_offset_commit(step: TransactionStep, request: api.TxnOffsetCommit) -> None:
    """Judge one TxnOffsetCommit; what is sent on is answered by the group."""
    group = request.of_group
    if not may_add(step, request) or not may_name(step, request, group):
        return
    message = TxnOffsets(group=group, request=request)
    if why := _number_fault(step, request, message):
        step.refuse(request, ErrorCode.INVALID_REQUEST, why)
        return
    groups, is_new = step.live.groups, request.number == step.live.commits
    groups = {**groups, group: groups.get(group, 0) + is_new}
    if add(step, request, groups=dict(sorted(groups.items()))):
        step.send(shard_of(group, step.at.shards), message)


def _number_fault(
    step: TransactionStep, request: api.TxnOffsetCommit, message: TxnOffsets
) -> str | None:
    """Why it cannot be sent on; the newest commit may come again, since its answer may be lost.

    An older one may not: its offsets would take the place of later ones.
    """
    if len(codec.encode(message)) > limits.TXN_OFFSETS_BYTES_MAX:
        return f"Send at most {limits.TXN_OFFSETS_BYTES_MAX} bytes of offsets at once."
    commits = step.live.commits if step.live.state is State.ONGOING else 0
    if commits - 1 <= request.number <= commits:
        return None
    return f"number must be {commits}: each commit of a transaction has the next one."


def describe_transaction(step: TransactionStep, request: api.DescribeTransaction) -> None:
    """Judge one DescribeTransaction."""
    value = step.value
    if value is None:
        return step.refuse(request, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return step.answer(
        request,
        state=value.state.value,
        producer_id=value.producer_id,
        epoch=value.epoch,
        started_ms=value.started_ms,
        timeout_ms=value.timeout_ms,
        owner=value.client,
        groups=tuple(value.groups),
        partitions=as_rows(value.partitions),
        unwritten=as_rows(value.unwritten),
        ended=UNSET if value.ended is None else value.ended,
    )

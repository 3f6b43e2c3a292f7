"""AddOffsetsToTxn: a group that must be told how the transaction ended."""

from typing import Final

from coordlib import limits
from coordlib.core.transactions.begin import add, may_add
from coordlib.core.transactions.step import TransactionStep
from coordlib.core.wire import requests as rq
from coordlib.core.wire.partitioner import shard_of
from coordlib.errors import ErrorCode

#: For the sender of a request that comes when another shard is far behind.
TOO_MANY_UNHEARD: Final = (
    "Try again: the shard of this group has too many messages to judge before."
)
#: Nobody knows when it has caught up; a batch takes less.
THROTTLE_MS: Final = 1_000


def add_offsets_to_txn(step: TransactionStep, request: rq.AddOffsetsToTxn) -> None:
    """Judge one AddOffsetsToTxn."""
    if not may_add(step, request) or not may_name(step, request, request.of_group):
        return
    groups = {**step.live.groups}
    groups.setdefault(request.of_group, 0)
    if add(step, request, groups=dict(sorted(groups.items()))):
        step.answer(request)


def may_name(step: TransactionStep, request: rq.TransactionRequest, group: str) -> bool:
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

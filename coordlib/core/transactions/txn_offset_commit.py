"""TxnOffsetCommit: offsets for the shard of their group, which judges and answers them.

It comes to the id's shard, and not to the group's as in Kafka: there one that comes behind the end
of its transaction would wait for ever, unless the broker asked the coordinator (KIP-890). Here it
is refused, or it stands before the marker in the same channel.  # INV-99
"""

from coordlib import limits
from coordlib.core.transactions.add_offsets_to_txn import may_name
from coordlib.core.transactions.begin import add, may_add
from coordlib.core.transactions.states import State
from coordlib.core.transactions.step import TransactionStep
from coordlib.core.wire import codec
from coordlib.core.wire import requests as rq
from coordlib.core.wire.partitioner import shard_of
from coordlib.core.wire.producers import TxnOffsets
from coordlib.errors import ErrorCode


def txn_offset_commit(step: TransactionStep, request: rq.TxnOffsetCommit) -> None:
    """Judge one TxnOffsetCommit; what is sent on is answered by the group."""
    group = request.of_group
    if not may_add(step, request) or not may_name(step, request, group):
        return
    message = TxnOffsets(group=group, request=request)
    if why := _fault(step, request, message):
        step.refuse(request, ErrorCode.INVALID_REQUEST, why)
        return
    groups, is_new = step.live.groups, request.number == step.live.commits
    groups = {**groups, group: groups.get(group, 0) + is_new}
    if add(step, request, groups=dict(sorted(groups.items()))):
        step.send(shard_of(group, step.at.shards), message)


def _fault(step: TransactionStep, request: rq.TxnOffsetCommit, message: TxnOffsets) -> str | None:
    """Why it cannot be sent on; the newest commit may come again, since its answer may be lost.

    An older one may not: its offsets would take the place of later ones.
    """
    if len(codec.encode(message)) > limits.TXN_OFFSETS_BYTES_MAX:
        return f"Send at most {limits.TXN_OFFSETS_BYTES_MAX} bytes of offsets at once."
    commits = step.live.commits if step.live.state is State.ONGOING else 0
    if commits - 1 <= request.number <= commits:
        return None
    return f"number must be {commits}: each commit of a transaction has the next one."

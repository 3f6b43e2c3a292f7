"""TxnMarkersWritten: partitions that have the marker of a transaction which ended.

Anybody may write the markers that its producer has not written, and say so.
"""

from coordlib.core.transactions import ending
from coordlib.core.transactions.states import State
from coordlib.core.transactions.step import TransactionStep
from coordlib.core.transactions.tables import TABLE, Ask, Then, sender_of
from coordlib.core.transactions.transaction import without_rows
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode


def txn_markers_written(step: TransactionStep, request: rq.TxnMarkersWritten) -> None:
    """Judge one TxnMarkersWritten."""
    value = step.value
    sender = sender_of(value, request.producer_id, request.epoch)
    then = TABLE[Ask.MARKERS][sender][State.DEAD if value is None else value.state]
    if isinstance(then, ErrorCode):
        step.refuse(request, then)
        return
    step.answer(request)
    if then is Then.STRIKE:
        ending.strike_off(step, without_rows(step.live.unwritten, request.partitions))

"""AddPartitionsToTxn: partitions that must have a marker when the transaction has ended."""

from coordlib.core.transactions.begin import add, may_add
from coordlib.core.transactions.step import TransactionStep
from coordlib.core.transactions.transaction import count_of, with_rows
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode


def add_partitions_to_txn(step: TransactionStep, request: rq.AddPartitionsToTxn) -> None:
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

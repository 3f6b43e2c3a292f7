"""DescribeTransaction: all that is kept of a transactional id."""

from msgspec import UNSET

from coordlib.core.transactions.step import TransactionStep
from coordlib.core.transactions.transaction import as_rows
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode


def describe_transaction(step: TransactionStep, request: rq.DescribeTransaction) -> None:
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

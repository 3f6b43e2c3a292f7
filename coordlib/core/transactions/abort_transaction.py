"""AbortTransaction: an operator ends what its producer does not end."""

from coordlib.core.transactions import ending
from coordlib.core.transactions.step import TransactionStep
from coordlib.core.transactions.tables import ABORTS, Then
from coordlib.core.transactions.transaction import OPERATOR
from coordlib.core.wire import requests as rq
from coordlib.core.wire.producers import ABORT
from coordlib.errors import ErrorCode


def abort_transaction(step: TransactionStep, request: rq.AbortTransaction) -> None:
    """Judge one AbortTransaction. A decision that stands is not changed by it."""
    if step.value is None:
        return step.refuse(request, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    then = ABORTS[step.value.state]
    if isinstance(then, ErrorCode):
        return step.refuse(request, then)
    if then is Then.FENCE:
        told = {"by": request.client} | ({"comment": request.reason} if request.reason else {})
        ending.decide(step, ABORT, OPERATOR, told)
    ended = step.live.ended
    assert ended is not None, "a transaction is ending, or has just ended"
    return step.answer(request, result=ended.result)

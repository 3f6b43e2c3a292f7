"""DecidePending: somebody who knows says how pending offsets are decided.

A commit of a Delta table decides, and the coordinator reads no tables. So it believes those who
have looked:

    the sender of the entry         it has made the commit, or has not
    a live member of the group      it has shut the sender out of the table, and looked then
    an operator, with a reason      nobody else can look; history names who and why

What Kafka decides the driver finds by itself. Only if retention has removed the record before it
looked, nobody will ever know, and an operator decides. What the transaction coordinator decides
nobody else does: its markers come.

A decision is believed once: later ones find no entry.  # INV-91
"""

from typing import Any, Final

from coordlib.core.groups.offsets.pending import Word, decide
from coordlib.core.groups.offsets.pending_table import COMMIT, PENDING, KeptPending, place_of
from coordlib.core.groups.step import GroupStep
from coordlib.core.wire import requests as rq
from coordlib.core.wire.transactions import COORDINATOR, DELTA
from coordlib.errors import ErrorCode

_NONE_WAITS: Final = "Begin from the committed offsets: nothing waits under this key any more."
_BY_COORDINATOR: Final = "Abort its transactional id instead: the transaction coordinator decides."
_NOT_BELIEVED: Final = (
    "Decide as the member that has sent these offsets, as a live member in the group's generation "
    "if a Delta table decides, or as an operator: without a member, and with a reason."
)


def decide_pending(step: GroupStep[Any], request: rq.DecidePending) -> None:
    """Judge one DecidePending."""
    place = place_of(request.pending)
    entry: KeptPending | None = None if step.value is None else step.entry(PENDING, *place)
    if entry is None or entry.decision:
        step.refuse(request, ErrorCode.INVALID_TXN_STATE, _NONE_WAITS)
    elif entry.decided_by == COORDINATOR:
        step.refuse(request, ErrorCode.INVALID_REQUEST, _BY_COORDINATOR)
    elif not _is_believed(step, entry, request):
        step.refuse(request, ErrorCode.INVALID_REQUEST, _NOT_BELIEVED)
    else:
        word = Word(request.client, request.member, request.reason)
        is_own = _is_own(entry, request)
        decide(step, request.pending, request.result == COMMIT, None if is_own else word)
        step.answer(request)


def _is_believed(step: GroupStep[Any], entry: KeptPending, request: rq.DecidePending) -> bool:
    if entry.decided_by == DELTA and (_is_own(entry, request) or _is_live(step, request)):
        return True
    return not request.member and bool(request.reason)


def _is_own(entry: KeptPending, request: rq.DecidePending) -> bool:
    """Also if it is no member any more: it knows what it has written."""
    return entry.decided_by == DELTA and (entry.client, entry.member) == (
        request.client,
        request.member,
    )


def _is_live(step: GroupStep[Any], request: rq.DecidePending) -> bool:
    if not request.member:
        return False
    fault = step.kind.fault_of_member(step, request.member, None, request.generation)
    return fault is ErrorCode.NONE

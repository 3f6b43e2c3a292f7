"""Messages of transactional ids to a group: offsets that wait, and how their transaction ended.

A transaction's messages come in the order in which its id sent them, each once, so the marker
stands behind all of its offsets. A quarantined group is told, too: it makes no entry then, and
notes what was decided.
"""

from typing import Any, Final

from msgspec import UNSET

from coordlib.core.engine import transition
from coordlib.core.engine.kind import Handler
from coordlib.core.groups.offsets.pending import decide
from coordlib.core.groups.offsets.pending_commit import Offered, Refused, admit, record_refused
from coordlib.core.groups.step import GroupStep
from coordlib.core.wire.envelope import Message
from coordlib.core.wire.producers import COMMIT, TxnMarker, TxnOffsets
from coordlib.core.wire.transactions import COORDINATOR


def key_of(producer_id: int, epoch: int) -> str:
    """Names the pending offsets of a transaction in each of its groups."""
    return f"{producer_id}-{epoch}"


def txn_offsets(step: GroupStep[Any], message: TxnOffsets) -> None:
    """Offsets of a transaction that is open; their sender hears from here whether they wait."""
    request = message.request
    offered = Offered.by(request, key_of(request.producer_id, request.epoch), COORDINATOR)
    done = admit(step, offered)
    if isinstance(done, Refused):
        failed = done.failed or UNSET
        step.emit(transition.refuse(request, step.at, done.code, done.message, failed=failed))
        record_refused(step, offered, done)
    else:
        step.answer(request)


def txn_marker(step: GroupStep[Any], message: TxnMarker) -> None:
    """How a transaction ended. It may have no offsets here: they were refused, or never came."""
    if step.value is not None:
        decide(step, key_of(message.producer_id, message.epoch), message.result == COMMIT)


#: What all kinds of groups judge.
MESSAGES: Final[dict[type[Message], Handler]] = {TxnOffsets: txn_offsets, TxnMarker: txn_marker}

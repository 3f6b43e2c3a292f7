"""DeleteGroup: delete an empty group and its offsets (KIP-229).

A group with pending offsets stays, other than in Kafka, which drops them: half of a transaction
would be undone by an operator's hand.
"""

from typing import Any, Final

from coordlib.core.engine import common
from coordlib.core.groups.offsets import pending
from coordlib.core.groups.offsets.removal import remove_offsets
from coordlib.core.groups.step import GroupStep
from coordlib.core.wire import requests as rq
from coordlib.core.wire import stored
from coordlib.errors import ErrorCode

_PENDING: Final = (
    "Wait for the transaction {}, which {} decides: offsets of this group are pending."
)


def delete_group(step: GroupStep[Any], request: rq.DeleteGroup) -> None:
    """Judge one DeleteGroup as for all kinds; history also names the offsets that go."""
    if step.value is not None and (waiting := pending.described(step)):
        message = _PENDING.format(waiting[0].key, waiting[0].decided_by)
        step.refuse(request, ErrorCode.NON_EMPTY_GROUP, message)
        return
    if step.value is not None and step.kind.is_empty(step.value):
        places = [(topic, partition) for topic, partition, _ in step.offsets]
        detail = {"client": request.client}
        remove_offsets(step, places, stored.EVENT_OFFSETS_DELETED, "group deleted", detail)
    common.delete(step, request)

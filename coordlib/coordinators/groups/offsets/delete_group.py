"""DeleteGroup: delete an empty group and its offsets (KIP-229)."""

from typing import Any

from coordlib.coordinators.groups.offsets.removal import remove_group, remove_offsets
from coordlib.coordinators.groups.step import GroupStep
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import stored


def delete_group(step: GroupStep[Any], request: rq.DeleteGroup) -> None:
    """Judge one DeleteGroup."""
    if step.value is None:
        step.refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
    elif not step.value.is_empty:
        step.refuse(request, ErrorCode.NON_EMPTY_GROUP)
    else:
        detail = {"client": request.client}
        places = [(topic, partition) for topic, partition, _ in step.offsets]
        remove_offsets(step, places, stored.EVENT_OFFSETS_DELETED, "group deleted", detail)
        remove_group(step, "deleted", detail)
        step.answer(request)

"""DeleteGroup: an empty group goes, with its offsets (KIP-229)."""

from typing import Any

from coordlib.coordinators.groups.offsets.removal import remove_group, remove_offsets
from coordlib.coordinators.shard.step import Draft
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import stored


def delete_group(draft: Draft[Any], request: rq.DeleteGroup) -> None:
    """Judge one DeleteGroup."""
    if draft.group is None:
        draft.refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
    elif not draft.group.is_empty:
        draft.refuse(request, ErrorCode.NON_EMPTY_GROUP)
    else:
        detail = {"client": request.client}
        places = [(topic, partition) for topic, partition, _ in draft.offsets]
        remove_offsets(draft, places, stored.EVENT_OFFSETS_DELETED, "group deleted", detail)
        remove_group(draft, "deleted", detail)
        draft.answer(request)

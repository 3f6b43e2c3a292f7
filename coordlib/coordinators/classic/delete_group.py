"""DeleteGroup: an empty group goes, with its offsets (KIP-229)."""

from coordlib.coordinators.classic.draft import Draft
from coordlib.coordinators.classic.group import State
from coordlib.coordinators.classic.removal import remove_group, remove_offsets
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import responses as rs
from coordlib.records import stored


def delete_group(draft: Draft, request: rq.DeleteGroup) -> None:
    """Judge one DeleteGroup."""
    if draft.group is None:
        draft.refuse(request, rs.DeleteGroupResponse, ErrorCode.GROUP_ID_NOT_FOUND)
    elif draft.group.state is not State.EMPTY:
        draft.refuse(request, rs.DeleteGroupResponse, ErrorCode.NON_EMPTY_GROUP)
    else:
        detail = {"client": request.client}
        places = [(topic, partition) for topic, partition, _ in draft.offsets]
        remove_offsets(draft, places, stored.EVENT_OFFSETS_DELETED, "group deleted", detail)
        remove_group(draft, "deleted", detail)
        draft.answer(request, rs.DeleteGroupResponse)

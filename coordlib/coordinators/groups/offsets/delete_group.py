"""DeleteGroup: delete an empty group and its offsets (KIP-229)."""

from typing import Any

from coordlib.coordinators.groups.offsets.removal import remove_offsets
from coordlib.coordinators.groups.step import GroupStep
from coordlib.coordinators.shard import common
from coordlib.records import requests as rq
from coordlib.records import stored


def delete_group(step: GroupStep[Any], request: rq.DeleteGroup) -> None:
    """Judge one DeleteGroup as for all kinds; history also names the offsets that go."""
    if step.value is not None and step.kind.is_empty(step.value):
        places = [(topic, partition) for topic, partition, _ in step.offsets]
        detail = {"client": request.client}
        remove_offsets(step, places, stored.EVENT_OFFSETS_DELETED, "group deleted", detail)
    common.delete(step, request)

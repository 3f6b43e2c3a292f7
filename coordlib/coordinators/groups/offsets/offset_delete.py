"""OffsetDelete: delete offsets of topics that no member of the group reads (KIP-496)."""

from typing import Any

from coordlib.coordinators.groups.group import AnyGroup
from coordlib.coordinators.groups.offsets.removal import remove_offsets
from coordlib.coordinators.groups.step import GroupStep
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import responses as rs
from coordlib.records import stored


def offset_delete(step: GroupStep[Any], request: rq.OffsetDelete) -> None:
    """Judge one OffsetDelete."""
    group = step.value
    if group is None:
        step.refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
    elif not group.is_empty and not group.tells_subscriptions:
        # What its members read is written in bytes that only they can read.
        step.refuse(request, ErrorCode.NON_EMPTY_GROUP)
    else:
        _delete(step, request, group)


def _delete(step: GroupStep[Any], request: rq.OffsetDelete, group: AnyGroup) -> None:
    failed: list[rs.FailedPartition] = []
    kept: dict[str, list[int]] = {}
    known: dict[tuple[str, int], None] = {}  # a set that keeps its order
    for row in request.topics:
        for partition in row.partitions:
            if group.is_subscribed(row.topic):
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                failed.append(rs.FailedPartition(row.topic, partition, code.name))
                kept.setdefault(row.topic, []).append(partition)
            elif step.offsets.get(row.topic, partition) is not None:
                known[row.topic, partition] = None
    detail = {"client": request.client}
    remove_offsets(step, list(known), stored.EVENT_OFFSETS_DELETED, "deleted", detail)
    step.answer(request, failed=tuple(failed))
    if kept:
        step.record_refused(request, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, partitions=kept)

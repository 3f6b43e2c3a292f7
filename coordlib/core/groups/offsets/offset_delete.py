"""OffsetDelete: delete offsets of topics that no member of the group reads (KIP-496).

Offsets with pending ones beside them stay, other than in Kafka, which drops both.
"""

from collections.abc import Collection
from typing import Any

from coordlib.core.groups.group import AnyGroup
from coordlib.core.groups.offsets import pending
from coordlib.core.groups.offsets.removal import remove_offsets
from coordlib.core.groups.step import GroupStep
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.core.wire import stored
from coordlib.errors import ErrorCode


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
    waiting = pending.awaited(
        step, [(row.topic, each) for row in request.topics for each in row.partitions]
    )
    failed: list[rs.FailedPartition] = []
    kept: dict[str, list[int]] = {}
    known: dict[tuple[str, int], None] = {}  # a set that keeps its order
    for row in request.topics:
        for partition in row.partitions:
            code = _why_kept(group, (row.topic, partition), waiting)
            if code is not None:
                failed.append(rs.FailedPartition(row.topic, partition, code.name))
                kept.setdefault(row.topic, []).append(partition)
            elif step.offsets.get(row.topic, partition) is not None:
                known[row.topic, partition] = None
    detail = {"client": request.client}
    remove_offsets(step, list(known), stored.EVENT_OFFSETS_DELETED, "deleted", detail)
    step.answer(request, failed=tuple(failed))
    if failed:
        step.record_refused(request, ErrorCode[failed[0].error], partitions=kept)


def _why_kept(
    group: AnyGroup, place: tuple[str, int], waiting: Collection[tuple[str, int]]
) -> ErrorCode | None:
    """Why an offset is not deleted; None: it is, if it is there."""
    if group.is_subscribed(place[0]):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if place in waiting else None

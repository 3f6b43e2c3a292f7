"""OffsetFetch, OffsetDelete and DeleteGroup: the same for all kinds of groups.

OffsetFetch answers positions, in as many parts as fit into records. It never fails for unknown
groups. With `require_stable` a partition with pending offsets is answered UNSTABLE_OFFSET_COMMIT,
also one without a committed offset (KIP-447). Whoever began to read at the committed one would read
again what is about to be committed.  # INV-97
A pending offset itself is never answered.  # INV-93
An offset that was committed under an old id of its topic is answered as none, and goes.  # INV-130

OffsetDelete deletes offsets of topics that no member of the group reads (KIP-496), DeleteGroup an
empty group and its offsets (KIP-229). Both leave what is pending, other than in Kafka, which drops
it: half of a transaction would be undone by an operator's hand.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

from msgspec import UNSET

from coordlib import limits
from coordlib.core.engine.step import delete_entity
from coordlib.core.engine.tables import Entries
from coordlib.core.groups.group import AnyGroup, GroupStep
from coordlib.core.groups.offsets import pending
from coordlib.core.groups.offsets.pending import remove_offsets
from coordlib.core.groups.offsets.tables import NO_TIMESTAMP, OFFSETS, KeptOffset
from coordlib.core.wire import api, codec, stored
from coordlib.errors import ErrorCode

_TOO_LARGE: Final = (
    f"Ask in parts, for some partitions at a time: the answer would have more than "
    f"{limits.ANSWER_BYTES_MAX} bytes. All offsets stand in the topic of committed offsets, too."
)

Found = tuple[str, int, KeptOffset]


def offset_fetch(step: GroupStep[Any], request: api.OffsetFetch) -> None:
    """Answer with the named partitions' offsets, or with all of them, sorted."""
    void: list[Found] = []
    rows = _rows(step, request, void)
    if _are_too_large(rows):
        step.refuse(request, ErrorCode.INVALID_REQUEST, _TOO_LARGE)
        return
    parts = _parts(rows)
    for number, part in enumerate(parts):
        step.answer(
            request,
            offsets=tuple(part),
            part=number,
            parts=len(parts),
        )
    if void:
        pending.delete_void(step, void)


def _rows(
    step: GroupStep[Any], request: api.OffsetFetch, void: list[Found]
) -> list[api.FetchedOffset]:
    """The answer's rows; offsets that count as none are added to `void`."""
    offsets = step.entries(OFFSETS)
    asked = offsets if request.topics is None else _named(offsets, request.topics)
    rows = []
    for topic, partition, found in asked:
        kept = found
        if kept is not None and step.family.present_id(topic, kept.topic_id):
            void.append((topic, partition, kept))
            kept = None
        if kept is not None or request.topics is not None:
            rows.append(_row(topic, partition, kept))
    if not request.require_stable or not pending.has_any(step):
        return rows
    places = None if request.topics is None else [(row.topic, row.partition) for row in rows]
    waiting = pending.awaited(step, places)
    if request.topics is None:
        known = {(row.topic, row.partition): row for row in rows}
        return [
            _unstable(*place, waiting[place]) if place in waiting else known[place]
            for place in sorted(known.keys() | waiting.keys())
        ]
    return [
        _unstable(*place, waiting[place]) if place in waiting else row
        for row in rows
        for place in [(row.topic, row.partition)]
    ]


def _unstable(topic: str, partition: int, decision: api.AwaitedDecision) -> api.FetchedOffset:
    error = ErrorCode.UNSTABLE_OFFSET_COMMIT.name
    return api.FetchedOffset(topic, partition, -1, -1, "", error, pending=decision)


def _named(
    offsets: Entries, topics: tuple[api.TopicPartitions, ...]
) -> Iterator[tuple[str, int, KeptOffset | None]]:
    for row in topics:
        for partition in row.partitions:
            yield row.topic, partition, offsets.get(row.topic, partition)


def _row(topic: str, partition: int, value: KeptOffset | None) -> api.FetchedOffset:
    if value is None:
        return api.FetchedOffset(topic, partition, -1, -1, "")
    timestamp_ms = UNSET if value.timestamp_ms == NO_TIMESTAMP else value.timestamp_ms
    return api.FetchedOffset(
        topic,
        partition,
        value.offset,
        value.leader_epoch,
        value.metadata,
        timestamp_ms=timestamp_ms,
        topic_id=value.topic_id or UNSET,
    )


def _are_too_large(rows: list[api.FetchedOffset]) -> bool:
    """Whether the answer has more bytes than an answer may; encoded only if that is near."""
    if sum(map(_bytes_of, rows)) <= limits.ANSWER_BYTES_MAX:
        return False
    size_bytes = 0
    for row in rows:
        size_bytes += len(codec.encode(row)) + 1
        if size_bytes > limits.ANSWER_BYTES_MAX:
            return True
    return False


def _bytes_of(row: api.FetchedOffset) -> int:
    """An upper bound, escapes included."""
    size_bytes = 160 + 6 * (len(row.topic) + len(row.metadata))
    if row.pending is UNSET:
        return size_bytes
    decision = row.pending
    texts = decision.key, decision.table or "", decision.member or "", decision.metadata or ""
    return size_bytes + 190 + 6 * sum(map(len, texts))


def _parts(rows: list[api.FetchedOffset]) -> list[list[api.FetchedOffset]]:
    """Cut so that each part's encoding, escapes included, stays far below an output record."""
    parts: list[list[api.FetchedOffset]] = [[]]
    size_bytes = 0
    for row in rows:
        row_bytes = _bytes_of(row)
        if parts[-1] and size_bytes + row_bytes > limits.FETCH_PART_BYTES_MAX:
            parts.append([])
            size_bytes = 0
        parts[-1].append(row)
        size_bytes += row_bytes
    return parts


def offset_delete(step: GroupStep[Any], request: api.OffsetDelete) -> None:
    """Judge one OffsetDelete."""
    group = step.value
    if group is None:
        step.refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
    elif not group.is_empty and not group.tells_subscriptions:
        # What its members read is written in bytes that only they can read.
        step.refuse(request, ErrorCode.NON_EMPTY_GROUP)
    else:
        _delete(step, request, group)


def _delete(step: GroupStep[Any], request: api.OffsetDelete, group: AnyGroup) -> None:
    waiting = pending.awaited(
        step, [(row.topic, each) for row in request.topics for each in row.partitions]
    )
    failed: list[api.FailedPartition] = []
    kept: dict[str, list[int]] = {}
    known: dict[tuple[str, int], None] = {}  # a set that keeps its order
    offsets = step.entries(OFFSETS)
    for row in request.topics:
        for partition in row.partitions:
            code = _why_kept(group, (row.topic, partition), waiting)
            if code is not None:
                failed.append(api.FailedPartition(row.topic, partition, code.name))
                kept.setdefault(row.topic, []).append(partition)
            elif offsets.get(row.topic, partition) is not None:
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


_PENDING: Final = (
    "Wait for the transaction {}, which {} decides: offsets of this group are pending."
)


def delete_group(step: GroupStep[Any], request: api.DeleteGroup) -> None:
    """Judge one DeleteGroup as for all kinds; history also names the offsets that go."""
    if step.value is not None and (waiting := pending.described(step)):
        message = _PENDING.format(waiting[0].key, waiting[0].decided_by)
        step.refuse(request, ErrorCode.NON_EMPTY_GROUP, message)
        return
    if step.value is not None and step.value.is_empty:
        places = [(topic, partition) for topic, partition, _ in step.entries(OFFSETS)]
        detail = {"client": request.client}
        remove_offsets(step, places, stored.EVENT_OFFSETS_DELETED, "group deleted", detail)
    delete_entity(step, request)

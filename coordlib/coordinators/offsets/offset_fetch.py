"""OffsetFetch: positions, in as many parts as fit into records. Never fails for unknown groups.

There are no transactional commits here, so every offset is stable: `require_stable` is accepted
and changes nothing, as for a Kafka group that no transaction writes to.
"""

from collections.abc import Iterator
from typing import Any

from coordlib import limits
from coordlib.coordinators.draft import Draft
from coordlib.coordinators.offset_table import KeptOffset
from coordlib.records import requests as rq
from coordlib.records import responses as rs


def offset_fetch(draft: Draft[Any], request: rq.OffsetFetch) -> None:
    """Answer with the named partitions' offsets, or with all of them, sorted."""
    rows = _all(draft) if request.topics is None else _named(draft, request.topics)
    parts = _parts(rows)
    for number, part in enumerate(parts):
        draft.answer(
            request,
            rs.OffsetFetchResponse,
            offsets=tuple(part),
            part=number,
            parts=len(parts),
        )


def _all(draft: Draft[Any]) -> Iterator[rs.FetchedOffset]:
    for topic, partition, value in draft.offsets:
        yield _row(topic, partition, value)


def _named(draft: Draft[Any], topics: tuple[rq.TopicPartitions, ...]) -> Iterator[rs.FetchedOffset]:
    for row in topics:
        for partition in row.partitions:
            yield _row(row.topic, partition, draft.offsets.get(row.topic, partition))


def _row(topic: str, partition: int, value: KeptOffset | None) -> rs.FetchedOffset:
    if value is None:
        return rs.FetchedOffset(topic, partition, -1, -1, "")
    return rs.FetchedOffset(topic, partition, value.offset, value.leader_epoch, value.metadata)


def _parts(rows: Iterator[rs.FetchedOffset]) -> list[list[rs.FetchedOffset]]:
    """Cut so that each part's encoding, escapes included, stays far below an output record."""
    parts: list[list[rs.FetchedOffset]] = [[]]
    size = 0
    for row in rows:
        row_bytes = 160 + 6 * (len(row.topic) + len(row.metadata))
        if parts[-1] and size + row_bytes > limits.FETCH_PART_BYTES_MAX:
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += row_bytes
    return parts

"""Offsets of topics that were deleted and made anew: they count as none.  # INV-130

Kafka's coordinator deletes a topic's offsets with the topic. Here they go when a listing shows
another id than the one that they were committed under. An offset without an id stays: its client
named none, and it is taken for one of the topic of now.

A position of `coord.offsets` has no place among the listings, so it is stored under any id, and
judged when it is read. So are those that one listing leaves: it deletes a bounded number, since
the record that names a topic of ten thousand partitions is small. Offsets that wait for a decision
are judged when they are decided.
"""

from collections.abc import Iterable
from typing import Any, Final

from coordlib import limits
from coordlib.core.engine.transition import REQUESTS
from coordlib.core.groups.offsets.table import OFFSETS, KeptOffset
from coordlib.core.groups.step import GroupStep
from coordlib.core.wire import requests as rq
from coordlib.core.wire import stored
from coordlib.errors import ErrorCode

_REASON: Final = "topic made anew"
Void = dict[str, Any]


class Forgetting:
    """Deletes what one listing has made void, group by group."""

    def __init__(self) -> None:
        self._left = limits.OFFSETS_PER_EVENT_MAX

    def of(self, step: GroupStep[Any], topics: Iterable[str]) -> None:
        """Delete the group's offsets of these topics, as many as the listing may."""
        rows = ((topic, *each) for topic in topics for each in step.offsets.of_name(topic))
        self._left -= delete(step, rows, self._left)


def delete(
    step: GroupStep[Any],
    rows: Iterable[tuple[str, int, KeptOffset]],
    at_most: int = limits.OFFSETS_PER_EVENT_MAX,
) -> int:
    """Delete those of these offsets that were committed under an old id; how many it were."""
    gone: list[Void] = []
    for topic, partition, kept in rows:
        if len(gone) == at_most:
            break
        if void := void_row(step, topic, partition, kept.topic_id):
            step.put_entry(OFFSETS, (topic, partition), None)
            gone.append(void)
    record(step, gone)
    return len(gone)


def fault_of(step: GroupStep[Any], row: rq.CommittedOffset) -> ErrorCode:
    """Whether a row to be stored was read from a topic that is not there any more; NONE: no."""
    is_old = step.at.topic == REQUESTS and step.family.present_id(row.topic, row.topic_id)
    return ErrorCode.UNKNOWN_TOPIC_ID if is_old else ErrorCode.NONE


def void_row(step: GroupStep[Any], topic: str, partition: int, topic_id: str) -> Void | None:
    """An offset of an old id, for history, with both ids; None: it is not known as one."""
    present = step.family.present_id(topic, topic_id)
    ids = {"topic_id": topic_id, "present_id": present}
    return {"topic": topic, "partition": partition, **ids} if present else None


def record(step: GroupStep[Any], gone: list[Void], **named: str) -> None:
    """A line of history about offsets that were void, if there were any."""
    if gone:
        detail = {**named, "offsets": gone}
        step.record(stored.EVENT_OFFSETS_DELETED, reason=_REASON, detail=detail)

"""Deleting offsets: tombstones, and history split so that each line fits one record."""

from collections.abc import Sequence
from typing import Any

from coordlib import limits
from coordlib.core.groups.offsets.table import OFFSETS
from coordlib.core.groups.step import GroupStep


def remove_offsets(
    step: GroupStep[Any],
    places: Sequence[tuple[str, int]],
    event: str,
    reason: str,
    detail: dict[str, str] | None = None,
) -> None:
    """Delete the offsets of these partitions; each must have one."""
    for topic, partition in places:
        step.put_entry(OFFSETS, (topic, partition), None)
    for first in range(0, len(places), limits.OFFSETS_PER_EVENT_MAX):
        told = places[first : first + limits.OFFSETS_PER_EVENT_MAX]
        rows = [{"topic": topic, "partition": partition} for topic, partition in told]
        step.record(event, reason=reason, detail={**(detail or {}), "offsets": rows})

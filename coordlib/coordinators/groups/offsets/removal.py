"""Deleting offsets and groups: tombstones, and history split so that each line fits one record."""

from collections.abc import Sequence
from typing import Any

from coordlib import limits
from coordlib.coordinators.groups.offsets.table import OFFSETS
from coordlib.coordinators.groups.step import GroupStep
from coordlib.records import stored


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


def remove_group(step: GroupStep[Any], reason: str) -> None:
    """Retention deletes a group without members, with its entries in all tables of the family.

    History has told which offsets go; `common.delete` does the same for DeleteGroup.

    A group of this name may be created again. Its generations begin anew; a late request of an old
    generation names no member of the new group. Fencing tokens are offsets of the log and go on
    rising.
    # INV-27: so no late request brings back what was deleted. A position of a client that is no
    member may: it is judged after the requests of its batch, whenever it was written.
    """
    step.forget_entries()
    step.record(stored.EVENT_GROUP_DELETED, reason=reason)
    step.delete()

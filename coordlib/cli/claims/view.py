"""How slots of claims stand, as rows to be printed: pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from coordlib.client.claims.transport import LogView
from coordlib.core.claims.slots import NO_EPOCH, Slot
from coordlib.core.claims.world import World

STATES: Final = ("live", "aging", "stale", "free", "paused")


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One slot, as the log has it."""

    group: str
    topic: str
    partition: int
    #: live: fresh below one interval; aging below two; then stale; free: released, or never won.
    #: paused: neither live nor aging, in a group that is paused.
    state: str
    client: str | None
    instance: str | None
    epoch: int | None
    position: int | None
    #: Since the newest sign, on the log's clock.
    sign_age_ms: int | None
    #: Whether a reader that began late does not know yet whether this is so.
    is_tentative: bool
    #: Of the topic that the position is of; None: its message named none.
    topic_id: str | None = None


def rows_of(
    views: Mapping[int, LogView],
    group: str | None = None,
    topic: str | None = None,
    state: str | None = None,
) -> list[SlotRow]:
    """The slots that are asked for, by group, topic and partition."""
    rows = (row for view in views.values() for row in _rows(view.world, group, topic))
    found = [row for row in rows if state is None or row.state == state]
    return sorted(found, key=lambda row: (row.group, row.topic, row.partition))


def paused_groups(views: Iterable[LogView]) -> dict[str, str]:
    """Group -> the client that pauses it."""
    found = {}
    for view in views:
        for group in view.world.pauses:
            client = view.world.paused_by(group)
            if client is not None:
                found[group] = client
    return found


def _rows(world: World, group: str | None, topic: str | None) -> Iterator[SlotRow]:
    for (of_group, of_topic, partition), slot in world.slots.items():
        if group in (None, of_group) and topic in (None, of_topic):
            yield _row(world, of_group, of_topic, partition, slot)


def _row(world: World, group: str, topic: str, partition: int, slot: Slot) -> SlotRow:
    has_owner = slot.epoch != NO_EPOCH
    return SlotRow(
        group,
        topic,
        partition,
        state_of(world, group, slot),
        slot.client if has_owner else None,
        slot.instance if has_owner else None,
        slot.epoch if has_owner else None,
        slot.position,
        world.clock_ms - slot.heard_ms if has_owner else None,
        slot.is_tentative or not world.is_settled,
        slot.topic_id or None,
    )


def state_of(world: World, group: str, slot: Slot) -> str:
    """One of STATES."""
    age_ms = world.clock_ms - slot.heard_ms
    if world.is_live(slot):
        return "live" if age_ms < world.interval_ms else "aging"
    if world.paused_by(group) is not None:
        return "paused"
    return "free" if slot.is_released else "stale"

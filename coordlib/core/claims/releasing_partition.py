"""ReleasingPartition: the exact owner ends its claim at a position.  # INV-47"""

from typing import TYPE_CHECKING

from coordlib.core.claims.judging import refused, why_not
from coordlib.core.claims.slot import Judgement, Key, Refusal, Slot, Verdict
from coordlib.core.wire.marshal import ReleasingPartition, Sender

if TYPE_CHECKING:
    from coordlib.core.claims.slots import Slots


def judge(
    slots: "Slots", message: ReleasingPartition, key: Key, slot: Slot | None, sender: Sender | None
) -> Judgement:
    """By Marshal's rules the raw instance decides, by ours the epoch."""
    if sender is None:
        return _by_marshal(slots, message, key, slot)
    if not slots.is_of_owner(slot, message.client, sender) or (slot and slot.is_released):
        if not slots.learns_from(slot, sender):
            return refused(slots, message, key, slot, why_not(slot, sender))
        if not slots.has_room(key):
            return refused(slots, message, key, slot, Refusal.FULL)
    return _released(slots, message, key, slot, sender.epoch, sender.topic_id)


def _by_marshal(
    slots: "Slots", message: ReleasingPartition, key: Key, slot: Slot | None
) -> Judgement:
    """Also of a slot that is stale or released: whoever had it last may correct its position."""
    if slot is None:
        return refused(slots, message, key, slot, Refusal.NOT_CLAIMED)
    if (slot.client, slot.instance) != (message.client, message.instance):
        return refused(slots, message, key, slot, Refusal.OTHER_OWNER)
    return _released(slots, message, key, slot, slot.epoch)


def _released(
    slots: "Slots",
    message: ReleasingPartition,
    key: Key,
    slot: Slot | None,
    epoch: int,
    topic_id: str = "",
) -> Judgement:
    # Client and instance stay: they say who was last, and Marshal's readers compare them.
    released = Slot(
        message.client,
        message.instance,
        epoch,
        slots.clock_ms,
        message.offset,
        is_released=True,
        topic_id=topic_id,
    )
    dropped = slots.put(key, released)
    return Judgement(slots.offset, Verdict.RELEASED, message, key, slot, released, dropped=dropped)

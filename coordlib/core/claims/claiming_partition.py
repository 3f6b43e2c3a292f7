"""ClaimingPartition: the first attempt on a slot that is not live wins it."""

from typing import TYPE_CHECKING

from coordlib.core.claims.judging import refused
from coordlib.core.claims.slot import Judgement, Key, Refusal, Slot, Verdict
from coordlib.core.wire.marshal import ClaimingPartition, Sender

if TYPE_CHECKING:
    from coordlib.core.claims.slots import Slots


def judge(
    slots: "Slots", message: ClaimingPartition, key: Key, slot: Slot | None, sender: Sender | None
) -> Judgement:
    """A live slot keeps its owner, and is not renewed, whoever asks.  # INV-46"""
    is_news = slots.is_news(slot)
    if slots.is_live(slot) and not is_news:
        return Judgement(slots.offset, Verdict.IGNORED, message, key, slot, slot)
    if sender is not None and slots.paused_by(message.group) not in (None, message.client):
        return refused(slots, message, key, slot, Refusal.GROUP_PAUSED)  # INV-64
    if not slots.has_room(key):
        return refused(slots, message, key, slot, Refusal.FULL)
    won = Slot(
        message.client,
        message.instance,
        slots.offset,
        slots.clock_ms,
        # The position is kept: a claim that wiped it began again at the log's start (PR #95).
        None if slot is None else slot.position,
        is_tentative=is_news,
        topic_id="" if slot is None else slot.topic_id,
    )
    dropped = slots.put(key, won)
    return Judgement(slots.offset, Verdict.WON, message, key, slot, won, dropped=dropped)

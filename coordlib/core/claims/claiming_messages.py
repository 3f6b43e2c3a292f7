"""ClaimingMessages: the owner is about to process up to a position. It is no sign of life."""

from typing import TYPE_CHECKING

import msgspec

from coordlib.core.claims.judging import refused, why_not
from coordlib.core.claims.slot import Judgement, Key, Refusal, Slot, Verdict
from coordlib.core.wire.marshal import BARE, ClaimingMessages, Sender

if TYPE_CHECKING:
    from coordlib.core.claims.slots import Slots


def judge(
    slots: "Slots", message: ClaimingMessages, key: Key, slot: Slot | None, sender: Sender | None
) -> Judgement:
    """Marshal parses such a message and does nothing; of ours the owner's is kept.

    A bare one is none of an owner. Consumers that wait and may not claim write it into silence, so
    that time passes: nobody did anything that history should tell.
    """
    if sender is None or sender.epoch == BARE:
        return Judgement(slots.offset, Verdict.IGNORED, message, key, slot, slot)
    if slot is None or not slots.is_of_owner(slot, message.client, sender):
        return refused(slots, message, key, slot, why_not(slot, sender))
    if not slots.is_live(slot):
        why = Refusal.RELEASED if slot.is_released else Refusal.NOT_LIVE
        return refused(slots, message, key, slot, why)
    proposing = msgspec.structs.replace(slot, proposed=message.offset)
    slots.put(key, proposing)
    return Judgement(slots.offset, Verdict.PROPOSED, message, key, slot, proposing)

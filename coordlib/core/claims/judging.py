"""What the messages' files share: a refusal, and why a message with an epoch is refused."""

from typing import TYPE_CHECKING

from coordlib.core.claims.slot import Judgement, Key, Refusal, Slot, Verdict
from coordlib.core.wire.marshal import AnyMessage, Sender

if TYPE_CHECKING:
    from coordlib.core.claims.slots import Slots


def refused(
    slots: "Slots", message: AnyMessage, key: Key | None, slot: Slot | None, why: Refusal
) -> Judgement:
    """The message changes nothing."""
    return Judgement(slots.offset, Verdict.REFUSED, message, key, slot, slot, why.value)


def why_not(slot: Slot | None, sender: Sender) -> Refusal:
    """Why a sign with this epoch is none of the slot's owner."""
    if slot is None:
        return Refusal.NOT_CLAIMED
    if slot.epoch != sender.epoch:
        return Refusal.OTHER_EPOCH
    return Refusal.RELEASED if slot.is_released else Refusal.OTHER_OWNER

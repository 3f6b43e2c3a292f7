"""Heartbeat: a sign of the owner. Three kinds, by their sender.

With an epoch: the winner of that epoch lives, at this position. Bare: a process that was started
again asks for what its client id holds (a reclaim). Marshal's: its sender owns the slot from now
on, since Marshal's own readers believe every heartbeat.
"""

from typing import TYPE_CHECKING, Final

from coordlib.core.claims.judging import refused, why_not
from coordlib.core.claims.slot import Judgement, Key, Refusal, Slot, Verdict
from coordlib.core.wire.marshal import BARE, Heartbeat, Sender

if TYPE_CHECKING:
    from coordlib.core.claims.slots import Slots

#: To look up a member of an Enum takes longer than to make a slot.
_SIGN: Final = Verdict.SIGN


def judge(
    slots: "Slots", message: Heartbeat, key: Key, slot: Slot | None, sender: Sender | None
) -> Judgement:
    """By whose rules, then by those."""
    if sender is None:
        return _take_over(slots, message, key, slot)
    if sender.epoch == BARE:
        return _reclaim(slots, message, key, slot)
    # Also of a stale slot: nobody else had it in between.
    if slots.is_of_owner(slot, message.client, sender) and not (slot and slot.is_released):
        return _heard(slots, _SIGN, message, key, slot, sender.epoch, sender.topic_id)
    return _learn(slots, message, key, slot, sender)


def _learn(
    slots: "Slots", message: Heartbeat, key: Key, slot: Slot | None, sender: Sender
) -> Judgement:
    if not slots.learns_from(slot, sender):
        return refused(slots, message, key, slot, why_not(slot, sender))  # INV-50
    if not slots.has_room(key):
        return refused(slots, message, key, slot, Refusal.FULL)
    learnt = Verdict.LEARNT
    return _heard(slots, learnt, message, key, slot, sender.epoch, sender.topic_id)


def _reclaim(slots: "Slots", message: Heartbeat, key: Key, slot: Slot | None) -> Judgement:
    is_news = slots.is_news(slot)
    if not is_news:
        if slot is None or not slots.is_live(slot):
            why = Refusal.NOT_CLAIMED if slot is None else Refusal.NOT_LIVE
            return refused(slots, message, key, slot, why)
        if slot.client != message.client:
            return refused(slots, message, key, slot, Refusal.OTHER_OWNER)
    elif not slots.has_room(key):
        return refused(slots, message, key, slot, Refusal.FULL)
    # The position stays that of the process before: this one cannot know better.
    taken = Slot(
        message.client,
        message.instance,
        slots.offset,
        slots.clock_ms,
        None if slot is None else slot.position,
        is_tentative=is_news or (slot is not None and slot.is_tentative),
        topic_id="" if slot is None else slot.topic_id,
    )
    dropped = slots.put(key, taken)
    return Judgement(slots.offset, Verdict.RECLAIMED, message, key, slot, taken, dropped=dropped)


def _take_over(slots: "Slots", message: Heartbeat, key: Key, slot: Slot | None) -> Judgement:
    if not slots.has_room(key):
        return refused(slots, message, key, slot, Refusal.FULL)
    is_same = (
        slot is not None
        and (slot.client, slot.instance) == (message.client, message.instance)
        and slots.is_live(slot)
    )
    verdict = Verdict.SIGN if is_same else Verdict.TAKEN_OVER
    epoch = slot.epoch if slot is not None and is_same else slots.offset
    return _heard(slots, verdict, message, key, slot, epoch)


def _heard(
    slots: "Slots",
    verdict: Verdict,
    message: Heartbeat,
    key: Key,
    slot: Slot | None,
    epoch: int,
    topic_id: str = "",
) -> Judgement:
    heard = Slot(
        message.client,
        message.instance,
        epoch,
        slots.clock_ms,
        message.offset,
        topic_id=topic_id,
    )
    if slot is not None:
        slots.slots[key] = heard  # what `put` comes to; it runs for every heartbeat
        return Judgement(slots.offset, verdict, message, key, slot, heard)
    dropped = slots.put(key, heard)
    return Judgement(slots.offset, verdict, message, key, slot, heard, dropped=dropped)

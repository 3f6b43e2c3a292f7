"""What must hold of a world after every record, in tests and wherever invariants are checked."""

from coordlib import limits
from coordlib.core.claims.slot import NO_EPOCH, Judgement, Verdict
from coordlib.core.claims.slots import Slots
from coordlib.core.claims.state import TRANSITIONS, state_of


class Unsound(AssertionError):
    """The rules have led to what they must never lead to."""


def check_invariants(slots: Slots, judgement: Judgement | None = None) -> None:
    """Raises Unsound, with the number of the promise."""
    _check_bounds(slots)
    for key, slot in slots.slots.items():
        if not slots.is_mine(key[1]):
            raise Unsound(f"INV-45: {key} is of another coordination partition")
        if not NO_EPOCH <= slot.epoch <= slots.offset:
            raise Unsound(f"INV-50: {key} has the epoch {slot.epoch} at {slots.offset}")
        if not 0 <= slot.heard_ms <= slots.clock_ms:
            raise Unsound(f"INV-48: {key} was heard at {slot.heard_ms}, it is {slots.clock_ms}")
        if slot.is_tentative and not slots.is_late:
            raise Unsound(f"INV-62: {key} is tentative, and the log was read from its beginning")
    if judgement is not None:
        _check_step(slots, judgement)


def _check_bounds(slots: Slots) -> None:
    if len(slots.slots) > limits.SLOTS_MAX or len(slots.pauses) > limits.PAUSES_MAX:
        raise Unsound("INV-43: more slots or pauses than there may be")
    if slots.clock_ms < 0:
        raise Unsound("INV-06: the clock is before its beginning")


def _check_step(slots: Slots, judgement: Judgement) -> None:
    before, after = judgement.before, judgement.after
    if after is before or after is None:
        return
    step = state_of(slots, before), state_of(slots, after)
    if judgement.verdict not in TRANSITIONS.get(step, {}):
        raise Unsound(f"INV-46: {judgement.key} is {judgement.verdict.value}, {step}")
    if before is None:
        return
    if after.epoch < before.epoch and slots.is_settled and not before.is_tentative:
        raise Unsound(f"INV-50: the epoch of {judgement.key} fell to {after.epoch}")
    if judgement.verdict == Verdict.WON and after.position != before.position:
        raise Unsound(f"INV-49: a claim moved the position of {judgement.key}")
    if judgement.verdict == Verdict.WON and after.topic_id != before.topic_id:
        raise Unsound(f"INV-146: a claim took {judgement.key} for a position of another topic")
    if judgement.verdict == Verdict.WON and slots.is_live(before) and not before.is_tentative:
        raise Unsound(f"INV-46: {judgement.key} was won while it had an owner")

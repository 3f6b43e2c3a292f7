"""The states of a slot, which verdict may lead from one to another, and what must hold of a world.

The checks run after every record, in tests and wherever invariants are checked.
"""

from enum import StrEnum
from typing import Final

from coordlib import limits
from coordlib.core.claims.slots import NO_EPOCH, Judgement, Slot, Slots, Verdict


class State(StrEnum):
    """Only Live decides anything; the others differ in what history and people see."""

    UNCLAIMED = "Unclaimed"
    """No message of it is known, or only a position that a late reader was given.

    action: an attempt wins; a late reader believes whoever sends a sign with an epoch
    transition: Live with a win, Released when a late reader reads a release
    """
    LIVE = "Live"
    """It has an owner, whose newest sign is younger than two heartbeat intervals.

    action: attempts are ignored; signs of the owner's epoch renew it and move its position
    transition: Stale by time alone, Released by its owner
    """
    STALE = "Stale"
    """Its owner has been silent for two heartbeat intervals or longer.

    action: the first attempt wins; a late sign of the owner's epoch is accepted, since nobody had
    the slot in between
    transition: Live with a win or a sign, Released by its last owner
    """
    RELEASED = "Released"
    """Its owner has ended the claim, at a position.

    action: the first attempt wins; signs of the epoch that has ended are refused
    transition: Live with a win
    """


#: Which verdicts lead from a state to the next; beside them time makes Live Stale, and a full
#: partition forgets what has been Stale or Released the longest.
TRANSITIONS: Final[dict[tuple[State, State], dict[Verdict, str]]] = {
    (State.UNCLAIMED, State.LIVE): {
        Verdict.WON: "the first attempt",
        Verdict.TAKEN_OVER: "a heartbeat by Marshal's rules",
        Verdict.LEARNT: "a late reader reads a sign with an epoch",
        Verdict.RECLAIMED: "a late reader reads a reclaim, which it cannot judge yet",
    },
    (State.UNCLAIMED, State.RELEASED): {
        Verdict.RELEASED: "a late reader reads a release with an epoch",
    },
    (State.LIVE, State.LIVE): {
        Verdict.SIGN: "a heartbeat of the owner",
        Verdict.RECLAIMED: "a bare heartbeat of the owner's client id (a process that restarted); "
        "or a late reader reads one of a tentative slot",
        Verdict.WON: "a late reader reads one more attempt on a tentative slot",
        Verdict.TAKEN_OVER: "a heartbeat of another by Marshal's rules",
        Verdict.LEARNT: "a late reader reads a sign with a higher epoch, or of a tentative slot",
        Verdict.PROPOSED: "the owner says what it is about to process",
    },
    (State.LIVE, State.RELEASED): {
        Verdict.RELEASED: "the owner lets go",
    },
    (State.STALE, State.LIVE): {
        Verdict.WON: "the first attempt after two silent intervals",
        Verdict.SIGN: "a heartbeat of the last owner's epoch",
        Verdict.TAKEN_OVER: "a heartbeat by Marshal's rules",
        Verdict.LEARNT: "a late reader reads a sign with a higher epoch, or of a tentative slot",
    },
    (State.STALE, State.RELEASED): {
        Verdict.RELEASED: "the last owner lets go",
    },
    (State.RELEASED, State.LIVE): {
        Verdict.WON: "the first attempt",
        Verdict.TAKEN_OVER: "a heartbeat by Marshal's rules",
        Verdict.LEARNT: "a late reader reads a sign with a higher epoch",
    },
    (State.RELEASED, State.RELEASED): {
        Verdict.RELEASED: "the last owner corrects its position, by Marshal's rules; or a late "
        "reader reads a release with a higher epoch",
    },
}


def state_of(slots: Slots, slot: Slot | None) -> State:
    """The state of a slot at this time of the log."""
    if slot is None or slot.epoch == NO_EPOCH:
        return State.UNCLAIMED
    if slot.is_released:
        return State.RELEASED
    return State.LIVE if slots.is_live(slot) else State.STALE


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

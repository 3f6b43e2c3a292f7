"""ReleaseGroup: a group is paused for some time, or goes on. Its claims are not touched."""

from typing import TYPE_CHECKING

from coordlib import limits
from coordlib.core.claims.judging import refused
from coordlib.core.claims.slot import Judgement, Refusal, Verdict
from coordlib.core.wire.marshal import ReleaseGroup

if TYPE_CHECKING:
    from coordlib.core.claims.slots import Slots


def judge(slots: "Slots", message: ReleaseGroup) -> Judgement:
    """The newest counts. Both times are of one clock, the sender's: its error falls out."""
    pause_ms = min((message.expire_s - message.time_s) * 1_000, limits.PAUSE_MAX_MS)
    if pause_ms <= 0:
        if slots.paused_by(message.group) is None:
            return Judgement(slots.offset, Verdict.IGNORED, message)
        del slots.pauses[message.group]
        return Judgement(slots.offset, Verdict.RESUMED, message)
    if not _has_room(slots, message.group):
        return refused(slots, message, None, None, Refusal.FULL)
    until_ms = slots.clock_ms + pause_ms
    slots.pauses[message.group] = (until_ms, message.client)
    return Judgement(slots.offset, Verdict.PAUSED, message, until_ms=until_ms)


def _has_room(slots: "Slots", group: str) -> bool:
    """Pauses that have ended make room, all at once, and only when it is needed."""
    if group in slots.pauses or len(slots.pauses) < limits.PAUSES_MAX:
        return True
    ended = [name for name, (until_ms, _) in slots.pauses.items() if until_ms <= slots.clock_ms]
    for name in ended:
        del slots.pauses[name]
    return bool(ended)

"""What history tells of a judgement: each change of owner, each refusal, and clocks that are wrong.

Heartbeats that change nothing but a position have no line, nor have attempts on a live slot.
"""

from typing import Any, Final

import msgspec

from coordlib import limits
from coordlib.core.claims.slots import (
    SENTENCES,
    Judgement,
    Key,
    Refusal,
    Slot,
    Slots,
    Verdict,
    is_other_topic,
)
from coordlib.core.engine import effects as fx
from coordlib.core.engine.effects import At
from coordlib.core.wire import claims, stored
from coordlib.core.wire.claims import AnyMessage

#: The space, and the only kind in it.
SPACE: Final = "claims"
HOW: Final = {
    Verdict.WON: "claimed",
    Verdict.RECLAIMED: "reclaimed",
    Verdict.TAKEN_OVER: "heartbeat",
    Verdict.LEARNT: "heartbeat",
    Verdict.SIGN: "resumed",
}
#: Lines that are thinned when there are many.
REFUSALS: Final = frozenset(
    {
        stored.EVENT_HEARTBEAT_REFUSED,
        stored.EVENT_RELEASE_REFUSED,
        stored.EVENT_CLAIM_REFUSED,
        stored.EVENT_MESSAGE_REJECTED,
    }
)
_REFUSED: Final = {
    claims.Heartbeat: stored.EVENT_HEARTBEAT_REFUSED,
    claims.ReleasingPartition: stored.EVENT_RELEASE_REFUSED,
}
#: The largest number that is written: most readers of JSON have 53 bits.
_NUMBER_MAX: Final = 2**53 - 1


def lines_of(
    judgement: Judgement, slots: Slots, was_live: bool, at: At, value: bytes | None
) -> list[fx.History]:
    """The lines of one judgement, in order; `was_live`: the slot, just before it."""
    match judgement.verdict:
        case Verdict.WON | Verdict.RECLAIMED | Verdict.TAKEN_OVER | Verdict.LEARNT:
            return _won(judgement, slots, was_live, at)
        case Verdict.SIGN | Verdict.RELEASED:
            return _signed(judgement, slots, was_live, at)
        case Verdict.PAUSED | Verdict.RESUMED:
            return [_paused(judgement, at)]
        case Verdict.REFUSED:
            return [_refused(judgement, at)]
        case Verdict.REJECTED:
            return [_rejected(judgement, at, value)]
        case _:
            return []


def expired(key: Key, slot: Slot, idle_ms: int, at: At) -> fx.History:
    """The log's time has gone on without a sign of the owner."""
    return _of_claim(stored.EVENT_CLAIM_EXPIRED, key, slot, at, idle_ms=idle_ms)


def log_gap(first: int, at: At) -> fx.History:
    """Records were removed before they were read: owners may differ until the next signs."""
    why = "records of the coordination topic were removed before this job read them"
    detail = {"partition": at.shard, "from_offset": first, "to_offset": at.offset}
    return _event(stored.EVENT_LOG_GAP, "", "", at, detail, why)


def sender_clock(message: AnyMessage, skew_ms: int, at: At) -> fx.History:
    """A client's clock is far from the broker's; nothing is decided by it."""
    why = "the sender's clock differs from the broker's"
    detail = {"skew_ms": skew_ms, "instance": message.instance}
    return _event(stored.EVENT_SENDER_CLOCK, message.group, message.client, at, detail, why)


def skew_ms(message: AnyMessage, at: At) -> int:
    """How far the sender's clock is ahead of the broker's stamp, to a second."""
    return max(-_NUMBER_MAX, min(message.time_s * 1_000 - at.time_ms, _NUMBER_MAX))


def _won(judgement: Judgement, slots: Slots, was_live: bool, at: At) -> list[fx.History]:
    assert judgement.key
    assert judgement.after
    assert judgement.message
    key, before, after = judgement.key, judgement.before, judgement.after
    lines = []
    is_other = was_live and before and judgement.verdict != Verdict.RECLAIMED
    if is_other and before:
        lines.append(_of_claim(stored.EVENT_CLAIM_LOST, key, before, at, to=after.client))
    extra = {
        "how": HOW[judgement.verdict],
        "former": before.client if before else None,
        "skew_ms": skew_ms(judgement.message, at),
    }
    lines.append(_of_claim(stored.EVENT_CLAIM_WON, key, after, at, **extra))
    return lines + _moved(judgement, slots, at)


def _signed(judgement: Judgement, slots: Slots, was_live: bool, at: At) -> list[fx.History]:
    assert judgement.key
    assert judgement.after
    key, before, after = judgement.key, judgement.before, judgement.after
    lines = []
    if judgement.verdict == Verdict.RELEASED:
        lines.append(_of_claim(stored.EVENT_CLAIM_RELEASED, key, after, at))
    elif not was_live and before:
        idle_ms = after.heard_ms - before.heard_ms
        lines.append(_of_claim(stored.EVENT_CLAIM_RESUMED, key, after, at, idle_ms=idle_ms))
    return lines + _moved(judgement, slots, at)


def _moved(judgement: Judgement, slots: Slots, at: At) -> list[fx.History]:
    """A position that went back, or that the client which paused the group has set."""
    assert judgement.key
    assert judgement.after
    before, after = judgement.before, judgement.after
    if before is None or before.position is None or after.position is None:
        return []
    by_admin = slots.paused_by(judgement.key[0]) == after.client
    is_anew = is_other_topic(before.topic_id, after.topic_id)
    is_moved_on = after.position > before.position and (by_admin or is_anew)
    if after.position >= before.position and not is_moved_on:
        return []
    line = _of_claim(
        stored.EVENT_POSITION_MOVED, judgement.key, after, at, **{"from": before.position}
    )
    reason = "by the client that paused the group" if by_admin else "back"
    if is_anew:
        reason = "topic made anew"
    return [msgspec.structs.replace(line, reason=reason)]


def _of_claim(what: str, key: Key, slot: Slot, at: At, **extra: Any) -> fx.History:
    """A line about a claim, with its owner: for an end, the one that it had."""
    detail = {
        "epoch": slot.epoch,
        "client": slot.client,
        "instance": slot.instance,
        "position": slot.position,
        **({"topic_id": slot.topic_id} if slot.topic_id else {}),
        **extra,
    }
    return _line(what, key, slot.client, at, detail)


def _paused(judgement: Judgement, at: At) -> fx.History:
    message = judgement.message
    assert isinstance(message, claims.ReleaseGroup)
    is_pause = judgement.until_ms is not None
    detail = {"skew_ms": skew_ms(message, at)}
    if judgement.until_ms is not None:
        detail["pause_ms"] = judgement.until_ms - at.clock_ms
    what = stored.EVENT_GROUP_PAUSED if is_pause else stored.EVENT_GROUP_RESUMED
    return _event(what, message.group, message.client, at, detail)


def _refused(judgement: Judgement, at: At) -> fx.History:
    message, slot = judgement.message, judgement.after
    assert message is not None
    detail = {
        "error": judgement.error,
        "message": type(message).__name__,
        "client": message.client,
        "instance": message.instance,
        "epoch": slot.epoch if slot else None,
        "owner": slot.client if slot else None,
        "skew_ms": skew_ms(message, at),
    }
    what = _REFUSED.get(type(message), stored.EVENT_CLAIM_REFUSED)
    key = judgement.key or (message.group, "", 0)
    return _line(what, key, message.client, at, detail, SENTENCES[Refusal(judgement.error)])


def _rejected(judgement: Judgement, at: At, value: bytes | None) -> fx.History:
    why = claims.SENTENCES[claims.Fault(judgement.error)]
    detail = {"error": judgement.error, "bytes": (value or b"")[: limits.REJECTED_BYTES_KEPT]}
    return _event(stored.EVENT_MESSAGE_REJECTED, "", "", at, detail, why)


def _line(
    what: str, key: Key, member: str, at: At, detail: dict[str, Any], reason: str = ""
) -> fx.History:
    group, topic, partition = key
    place = {"topic": topic, "partition": partition}
    return _event(what, group, member, at, place | detail, reason)


def _event(
    what: str, group: str, member: str, at: At, detail: dict[str, Any], reason: str = ""
) -> fx.History:
    return fx.History(
        type=what,
        space=SPACE,
        group=group,
        kind=SPACE,
        generation=0,
        member=member,
        cause=at.coordinate,
        reason=reason,
        detail=detail,
    )

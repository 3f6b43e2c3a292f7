"""The one pure fold of claims: every client and the engine run it, and come to the same conclusion.

    world = World("__marshal", partition=3, partitions=50)
    for record in log:
        judgement = world.judge(record)

Nothing goes in but the log's records: offset, the broker's stamp, bytes. No reader's clock and no
setting reaches a judgement, so two readers that began alike agree at every offset.  # INV-45

Keeps INV-47.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from coordlib import limits
from coordlib.core.claims.slots import (
    UNTRUSTED_TIME_MS,
    Judgement,
    Key,
    Refusal,
    Slot,
    Slots,
    Verdict,
)
from coordlib.core.claims.snapshots import read_into, written
from coordlib.core.wire import claims
from coordlib.core.wire.claims import (
    BARE,
    AnyMessage,
    ClaimingMessages,
    ClaimingPartition,
    Fault,
    Heartbeat,
    Rejected,
    ReleaseGroup,
    ReleasingPartition,
    Sender,
    sender_of,
)

__all__ = ["UNTRUSTED_TIME_MS", "Judgement", "Key", "Record", "Slot", "Verdict", "World"]


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


def judge_claiming_messages(
    slots: "Slots", message: ClaimingMessages, key: Key, slot: Slot | None, sender: Sender | None
) -> Judgement:
    """Marshal parses such a message and does nothing; of ours the owner's is kept.

    A bare one is none of an owner. Consumers that wait and may not claim write it into silence, so
    that time passes: no event for history.
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


def judge_claiming_partition(
    slots: "Slots", message: ClaimingPartition, key: Key, slot: Slot | None, sender: Sender | None
) -> Judgement:
    """A live slot keeps its owner, and is not renewed by an attempt.  # INV-46"""
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


#: To look up a member of an Enum takes longer than to make a slot.
_SIGN: Final = Verdict.SIGN


def judge_heartbeat(
    slots: "Slots", message: Heartbeat, key: Key, slot: Slot | None, sender: Sender | None
) -> Judgement:
    """By whose rules, then by those."""
    if sender is None:
        return _take_over(slots, message, key, slot)
    if sender.epoch == BARE:
        return _reclaim(slots, message, key, slot)
    # Also of a stale slot: no other consumer had it in between.
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


def judge_release_group(slots: "Slots", message: ReleaseGroup) -> Judgement:
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


def judge_releasing_partition(
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
    """The last owner of a slot, also of a stale or released one, may correct its position."""
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


class Record(Protocol):
    """As much of a record of the coordination partition as is judged."""

    @property
    def offset(self) -> int: ...

    @property
    def timestamp_ms(self) -> int:
        """The broker's append time; UNTRUSTED_TIME_MS when a client has set the time."""

    @property
    def value(self) -> bytes | None: ...


#: Of messages about a slot. A look-up tells them from the others, too: this runs for every record.
_RULES: Final[dict[type[Any], Callable[..., Judgement]]] = {
    claims.Heartbeat: judge_heartbeat,
    claims.ClaimingPartition: judge_claiming_partition,
    claims.ReleasingPartition: judge_releasing_partition,
    claims.ClaimingMessages: judge_claiming_messages,
}


class World(Slots):
    """One coordination partition, as all of its readers see it. Arguments: see `Slots`."""

    def judge(self, record: Record) -> Judgement:
        """Apply the next record; one that was judged before does nothing."""
        if record.offset <= self.offset:
            return Judgement(record.offset, Verdict.REPEATED)
        self.advance(record.offset, record.timestamp_ms)
        return self.decide(record.value)

    def decide(self, value: bytes | None) -> Judgement:
        """Judge the value of the record that `advance` has moved to."""
        message: Any = claims.read(value)
        rule = _RULES.get(type(message))
        if rule is None:
            return self._decide_other(message)
        key = (message.group, message.topic, message.partition)
        slot = self.slots.get(key)
        # A slot that is here belongs here: only for others the topic's hash is asked.
        if slot is None and not self.is_mine(message.topic):
            error = Fault.MISPLACED.value
            return Judgement(self.offset, Verdict.REJECTED, message, key, error=error)
        return rule(self, message, key, slot, sender_of(message, self.offset))

    def _decide_other(self, message: ReleaseGroup | Rejected) -> Judgement:
        """Judge a message that is about no slot."""
        if isinstance(message, Rejected):
            return Judgement(self.offset, Verdict.REJECTED, error=message.error.value)
        return judge_release_group(self, message)

    def snapshot(self) -> bytes:
        """All that the log so far has led to, in one form: equal worlds give equal bytes."""
        return written(self)

    @classmethod
    def restore(cls, snapshot: bytes, topic: str, partition: int, partitions: int) -> "World":
        """The world again; the next record to judge follows its `offset`.  # INV-65

        Raises UnreadableSnapshot: other code wrote it, or it belongs to another partition.
        """
        world = cls(topic, partition, partitions)
        read_into(world, snapshot)
        return world

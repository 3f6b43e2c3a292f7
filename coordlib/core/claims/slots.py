"""The slots of one coordination partition, and the log's own time.

A slot is one partition of one topic, as one group sees it. It is a value that never changes: a
reader keeps what a Judgement has, whatever comes after it.

The clock begins at 0 with the first record that is read. A record with the broker's stamp moves it
by the step since the stamped record before it, never back and by CAP at most: a reader that began
elsewhere sees the same differences, and a broker's clock that jumps ends few claims (rule 1 of
time-and-fencing.md).  # INV-06

When a coordination partition is full, the slot that is free the longest makes room.
A flood of attempts must not cost a look at every slot each time. So slots wait in a heap, each
under a time before which it was not free; what has moved on meanwhile is put back under its own.
The heap follows from the slots alone: a state that is read back makes the same choices.
"""

import heapq
from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Final

import msgspec

from coordlib import limits
from coordlib.core.wire.claims import BARE, AnyMessage, Sender, heartbeat_interval_ms, partition_of

#: Group, topic, partition.
Key = tuple[str, str, int]
#: Epoch of a slot of which only the position is known: nothing has ever won it in this log.
NO_EPOCH: Final = -1


class Slot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the log says of one partition: its owner, or the last one."""

    client: str
    #: Raw text of the owner's newest message: Marshal's readers compare it as text.
    instance: str
    #: Offset of the record that won the slot: the fencing token; NO_EPOCH: none has.
    epoch: int
    #: The clock at the newest sign, a release included.
    heard_ms: int
    #: The next offset to read; None: no message has named it. 0 is a position like any other.
    position: int | None = None
    is_released: bool = False
    #: The end of what the owner is about to process (ClaimingMessages), until its next sign.
    proposed: int | None = None
    #: Won before a late reader could know better: any sign with an epoch overrules it.
    is_tentative: bool = False
    #: Of the topic that `position` is of, as the message with it says; "": it named none.
    topic_id: str = ""


def is_other_topic(one: str, other: str) -> bool:
    """Whether two ids are known, and of topics that had one name after another."""
    return "" not in (one, other) and one != other


class Verdict(Enum):
    """What a record has done. All that have changed a slot come first."""

    #: An attempt has won a slot that was not live.
    WON = "won"
    #: The owner's sign, with its position.
    SIGN = "sign"
    #: A process that was started again has taken what its client id held.
    RECLAIMED = "reclaimed"
    #: A heartbeat of Marshal's has made its sender the owner.
    TAKEN_OVER = "taken over"
    #: A late reader has learnt the owner from its sign.
    LEARNT = "learnt"
    RELEASED = "released"
    PROPOSED = "proposed"
    PAUSED = "paused"
    RESUMED = "resumed"
    #: An attempt on a live slot, or what has no meaning by Marshal's rules: it changes nothing.
    IGNORED = "ignored"
    #: A message that its sender had no right to send, with a Refusal: it changes nothing.
    REFUSED = "refused"
    #: No message, with a Fault of core/wire/claims.py: it changes nothing.
    REJECTED = "rejected"
    #: Judged before: not even the time moves.  # INV-04
    REPEATED = "repeated"


class Refusal(StrEnum):
    """Why a message was refused."""

    #: The group is paused, and not by this client.
    GROUP_PAUSED = "GROUP_PAUSED"
    #: There is no room for another slot.
    FULL = "FULL"
    #: Nothing is known of the slot.
    NOT_CLAIMED = "NOT_CLAIMED"
    #: A reclaim or a proposal needs a live slot.
    NOT_LIVE = "NOT_LIVE"
    #: The slot was released: a late heartbeat undoes no release.
    RELEASED = "RELEASED"
    #: Another client or process has the slot.
    OTHER_OWNER = "OTHER_OWNER"
    #: The slot was won again since.
    OTHER_EPOCH = "OTHER_EPOCH"


SENTENCES: Final = {
    Refusal.GROUP_PAUSED: "The group is paused, and not by this client.",
    Refusal.FULL: "There is no room for more: all that is kept is in use.",
    Refusal.NOT_CLAIMED: "Nothing is known of this partition.",
    Refusal.NOT_LIVE: "The claim has expired: send an attempt.",
    Refusal.RELEASED: "The claim was released: send an attempt.",
    Refusal.OTHER_OWNER: "Another client or process has the claim.",
    Refusal.OTHER_EPOCH: "The partition was won again since: this claim has ended.",
}


class Judgement(msgspec.Struct, frozen=True, gc=False):
    """What became of one record."""

    offset: int
    verdict: Verdict
    #: None: it was none that can be read.
    message: AnyMessage | None = None
    #: None: the record is about no slot.
    key: Key | None = None
    #: The slot as it was, and as it is; None: nothing is known of it. What only changed the time
    #: has twice the same.
    before: Slot | None = None
    after: Slot | None = None
    #: Name of a Fault or a Refusal; "": the record was accepted or ignored.
    error: str = ""
    #: Which slot had to make room.
    dropped: Key | None = None
    #: On the clock: until when the group is paused; None: this is no pause.
    until_ms: int | None = None


class EvictionQueue:
    """Of one coordination partition. It is made when the partition is full for the first time."""

    def __init__(self, slots: "Slots") -> None:
        self._slots = slots
        #: (free since, key), for every slot one that is not later; None: never was full.
        self._waiting: list[tuple[int, Key]] | None = None

    def has_any(self) -> bool:
        """Whether any slot is free now."""
        return self._first() is not None

    def longest_free(self) -> Key:
        """Take the slot that is free the longest; of several the first by name."""
        key = self._first()
        assert key is not None, "nobody asked for room"
        heapq.heappop(self._waiting or [])
        return key

    @property
    def size(self) -> int:
        """How much waits: bounded, whatever happens to slots."""
        return len(self._waiting or ())

    def wait(self, key: Key, slot: Slot) -> None:
        """A slot is new, or became free before its time."""
        if self._waiting is None:
            return
        heapq.heappush(self._waiting, (self._slots.free_since_ms(slot), key))
        if len(self._waiting) > 4 * limits.SLOTS_MAX:
            self._waiting = None  # mostly what has moved on: made anew when it is needed

    def _first(self) -> Key | None:
        if self._waiting is None:
            self._waiting = [
                (self._slots.free_since_ms(slot), key) for key, slot in self._slots.slots.items()
            ]
            heapq.heapify(self._waiting)
        while self._waiting and self._waiting[0][0] <= self._slots.clock_ms:
            since_ms, key = self._waiting[0]
            slot = self._slots.slots.get(key)
            if slot is None:
                heapq.heappop(self._waiting)
                continue
            true_ms = self._slots.free_since_ms(slot)
            if true_ms == since_ms:
                return key
            heapq.heapreplace(self._waiting, (true_ms, key))
        return None


#: No broker has stamped the record.
UNTRUSTED_TIME_MS: Final = -1
#: A late reader has read of all owners after this many heartbeat intervals.
SETTLING_INTERVALS: Final = 4


class Slots:
    """State of a coordination partition. Only its own log changes it: no setting, no other time.

    Args:
        topic: the coordination topic; its name says how long a heartbeat interval is.
        partition: of the coordination topic.
        partitions: how many it has.
        is_late: reading will begin somewhere in the log, and not with its first record ever. A
            world whose first record is not offset 0 is late without this.
        positions: what a late reader was given elsewhere: a position, and its topic's id.

    Raises ValueError: the topic's name says an interval beyond the bounds.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        partitions: int,
        *,
        is_late: bool = False,
        positions: Mapping[Key, tuple[int, str]] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.partitions = partitions
        #: HI.
        self.interval_ms = heartbeat_interval_ms(topic)
        #: How long a slot lives without a sign; at this very age it does not.  # INV-48
        self.lifetime_ms = 2 * self.interval_ms
        #: The most by which one record moves the clock.
        self.cap_ms = self.lifetime_ms // 5
        self.is_late = is_late
        self.clock_ms = 0
        #: The newest stamp, also when time went back; UNTRUSTED_TIME_MS: no record had one.
        self.previous_ms = UNTRUSTED_TIME_MS
        #: The newest record that was judged; -1: none.
        self.offset = -1
        self.slots: dict[Key, Slot] = {
            key: Slot("", "", NO_EPOCH, 0, position, is_released=True, topic_id=topic_id)
            for key, (position, topic_id) in (positions or {}).items()
        }
        #: Group -> until when on the clock, and which client has paused it.
        self.pauses: dict[str, tuple[int, str]] = {}
        self.room = EvictionQueue(self)

    # -- time ------------------------------------------------------------------------------

    def advance(self, offset: int, timestamp_ms: int) -> None:
        """Move to a record: its time counts whether it is accepted or not."""
        if self.offset < 0 < offset:
            self.is_late = True
        self.offset = offset
        if timestamp_ms == UNTRUSTED_TIME_MS:
            return
        step_ms = timestamp_ms - self.previous_ms
        if step_ms > 0 and self.previous_ms != UNTRUSTED_TIME_MS:
            self.clock_ms += step_ms if step_ms < self.cap_ms else self.cap_ms
        self.previous_ms = timestamp_ms

    @property
    def is_settled(self) -> bool:
        """Whether all owners are known, so that a reader may act.  # INV-62"""
        return not self.is_late or self.clock_ms >= SETTLING_INTERVALS * self.interval_ms

    # -- questions -------------------------------------------------------------------------

    def is_live(self, slot: Slot | None) -> bool:
        """Whether the slot has an owner."""
        return (
            slot is not None
            and not slot.is_released
            and self.clock_ms - slot.heard_ms < self.lifetime_ms
        )

    def owner(self, key: Key) -> Slot | None:
        """The slot if it is live: at most one client owns it.  # INV-45"""
        slot = self.slots.get(key)
        return slot if self.is_live(slot) else None

    def free_since_ms(self, slot: Slot) -> int:
        """On the clock: since when it has no owner, or from when on unless there is a sign."""
        return slot.heard_ms if slot.is_released else slot.heard_ms + self.lifetime_ms

    def paused_by(self, group: str) -> str | None:
        """The client that has paused the group; None: it is not paused, or no longer."""
        until_ms, client = self.pauses.get(group, (0, ""))
        return client if self.clock_ms < until_ms else None

    def is_mine(self, topic: str) -> bool:
        """Whether claims of this topic stand in this coordination partition."""
        return partition_of(topic, self.partitions) == self.partition

    def is_of_owner(self, slot: Slot | None, client: str, sender: Sender) -> bool:
        """Whether a message with an epoch is of the owner that won the slot: the fence."""
        return (
            slot is not None
            and slot.epoch == sender.epoch
            and slot.client == client
            and slot.instance[:8] == sender.process
        )

    def learns_from(self, slot: Slot | None, sender: Sender) -> bool:
        """Whether a late reader must believe a message with an epoch that it cannot know."""
        if not self.is_late or sender.epoch == BARE:
            return False
        if slot is not None and slot.is_tentative:
            return True
        return not self.is_settled and (slot is None or sender.epoch > slot.epoch)

    def is_news(self, slot: Slot | None) -> bool:
        """Whether a late reader cannot tell yet if an attempt or a reclaim is right.

        Of an unknown slot it can tell after the lifetime of a claim: by then the signs of before
        have expired. Of a tentative one the newest attempt counts until the reader has settled: who
        owns the slot has won it by then, and when this attempt has expired nobody owns it.
        """
        if not self.is_late or self.is_settled:
            return False
        if slot is None or slot.epoch == NO_EPOCH:
            return self.clock_ms < self.lifetime_ms
        return slot.is_tentative and self.is_live(slot)

    # -- changes ---------------------------------------------------------------------------

    def has_room(self, key: Key) -> bool:
        """Whether the slot is here, or may be added (`put`)."""
        return key in self.slots or len(self.slots) < limits.SLOTS_MAX or self.room.has_any()

    def put(self, key: Key, slot: Slot) -> Key | None:
        """Keep a slot; which one had to make room for it."""
        is_new = key not in self.slots
        if not (is_new or slot.is_released):  # nearly always
            self.slots[key] = slot
            return None
        dropped = None
        if is_new and len(self.slots) >= limits.SLOTS_MAX:
            dropped = self.room.longest_free()
            del self.slots[dropped]
        self.slots[key] = slot
        self.room.wait(key, slot)
        return dropped

"""The slots of one coordination partition, and the log's own time.

The clock begins at 0 with the first record that is read. A record with the broker's stamp moves it
by the step since the stamped record before it, never back and by CAP at most: a reader that began
elsewhere sees the same differences, and a broker's clock that jumps ends few claims (rule 1 of
TIME-AND-FENCING.md).  # INV-06
"""

from collections.abc import Mapping
from typing import Final

from coordlib import limits
from coordlib.core.claims.room import Room
from coordlib.core.claims.slot import NO_EPOCH, Key, Slot
from coordlib.core.wire.marshal import BARE, Sender, heartbeat_interval_ms, partition_of

#: No broker has stamped the record.
UNTRUSTED_TIME_MS: Final = -1
#: A late reader knows all owners after this many heartbeat intervals.
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
        self.room = Room(self)

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

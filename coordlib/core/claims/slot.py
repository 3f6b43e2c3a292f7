"""A slot: one partition of one topic, as one group sees it; and what became of a message.

Both are values that never change: a reader keeps what a Judgement has, whatever comes after it.
"""

from enum import Enum, StrEnum
from typing import Final

import msgspec

from coordlib.core.wire.marshal import AnyMessage

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
    #: The next offset to read; None: no message has told it. 0 is a position like any other.
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
    #: No message, with a Fault of core/wire/marshal.py: it changes nothing.
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

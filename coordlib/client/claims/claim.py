"""One claim of one consumer, from its attempt to its end, and what is asked of the log for it."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from coordlib.client.claims.fence import Fence
from coordlib.client.claims.health import Health
from coordlib.client.claims.signals import Acknowledged, Judged
from coordlib.client.claims.tracking import CommitTracker
from coordlib.client.kit.signals import TopicPartition


@dataclass(slots=True)
class Asked:
    """A message whose judgement decides: acknowledged at an offset, and judged at that offset.

    The two come in any order. "Some message of mine was judged" is not enough: an older one, given
    up and written all the same, would be taken for it (bug B4).
    """

    id: int
    sent_ms: int
    #: Where the log has it, and the first produce() call for it; None: not acknowledged yet.
    offset: int | None = None
    produced_ms: int = 0
    verdicts: dict[int, Judged] = field(default_factory=dict)

    def acknowledged(self, event: Acknowledged) -> None:
        self.offset, self.produced_ms = event.offset, event.produced_ms

    @property
    def verdict(self) -> Judged | None:
        """The judgement of this very message; None: not both are here."""
        return None if self.offset is None else self.verdicts.get(self.offset)


@dataclass(slots=True)
class Attempt(Asked):
    """A ClaimingPartition, or a reclaim, that is not decided yet."""

    is_reclaim: bool = False


class Why(Enum):
    """Why a claim is released. The value stands in the program's log."""

    BEHIND = "it does not keep up with the partition"
    BEYOND_END = "its position is beyond the end of the partition's log"
    OUT_OF_RANGE = "its position is not in the partition's log any more"
    OF_TOPIC = "another partition of the topic was given up"
    MADE_ANEW = "the topic was deleted and made anew"
    GONE = "the topic has fewer partitions now"
    PAUSED = "the group is paused"
    CLOSED = "the consumer is closed"
    #: Not released, but given a last sign: a process of the same client id is to reclaim it.
    LEFT = "the consumer is closed without a release"
    UNWANTED = "it was won when it was not wanted any more"


#: After these the same consumer may claim the partition again at once.
WITHOUT_COOL_DOWN: Final = frozenset(
    {Why.PAUSED, Why.CLOSED, Why.LEFT, Why.UNWANTED, Why.MADE_ANEW}
)


class Phase(Enum):
    """Where a claim stands."""

    #: action: its start is looked up. transition: found -> HELD; not within the fence -> lost
    STARTING = "starting"
    #: action: signs of life and health looks. transition: a reason to release -> LETTING_GO
    HELD = "held"
    #: action: signs of life until the user has let go. transition: callback returned -> released
    LETTING_GO = "letting go"


class Batch(Enum):
    """At most once: how far the newest batch is (seed 003, steps 1 to 9)."""

    NONE = "none"
    #: action: ClaimingMessages written. transition: judged -> COMMITTING
    PROPOSED = "proposed"
    #: action: the end goes to Kafka's group. transition: committed -> SIGNED
    COMMITTING = "committing"
    #: action: Heartbeat with the end written. transition: judged a sign -> NONE, handed out
    SIGNED = "signed"


@dataclass(slots=True)
class Claim:
    """A partition that the log has given to this consumer."""

    place: TopicPartition
    #: Fencing token: offset of the record that won the slot.
    epoch: int
    fence: Fence
    #: As judged at the winning record; None: the log has none.
    judged_position: int | None
    #: Of an older snapshot, where the log has none.
    saved_position: int | None = None
    #: Of the topic that the position before is of, and of the one that is read; empty: not known.
    former_id: str = ""
    topic_id: str = ""
    #: Another id than that of before, which the next answer is to confirm.
    doubted_id: str = ""
    phase: Phase = Phase.STARTING
    health: Health = field(default_factory=Health)
    #: Messages handed out; empty with delivery at most once, whose position moves ahead of them.
    tracker: CommitTracker = field(default_factory=lambda: CommitTracker(0))
    #: The newest position that a sign of this claim carried, acknowledged or not.
    signed_position: int = -1
    #: When the next sign and health look are due; when the start is looked up again.
    beat_ms: int = 0
    looks_again_ms: int = 0
    #: When the newest message was handed out, or the claim began.
    active_ms: int = 0
    #: Whether its start is known: `tracker` counts.
    is_started: bool = False
    #: Whether the user's callback CLAIMED was run, or runs.
    is_told: bool = False
    #: Why it is to be released; a start that is not known yet is looked up first.
    why: Why | None = None
    let_go_ms: int = 0
    batch: Batch = Batch.NONE
    batch_end: int = 0
    asked: Asked | None = None
    #: At most once: when the commit to Kafka is tried again; None: it is under way, or not due.
    again_ms: int | None = None
    #: At most once: messages below it may be handed out; the next one that was not.
    allowed_end: int = 0
    next_offset: int = 0

    @property
    def position(self) -> int:
        """The next offset to read for whoever comes next."""
        return self.tracker.position

    def is_confirmed(self, other_id: str) -> bool:
        """Whether the answer before this one named that other id, too; empty: it names none.

        A broker that lags names the topic of before: two answers must agree.
        """
        before, self.doubted_id = self.doubted_id, other_id
        return bool(other_id) and before == other_id

    @property
    def is_doubted(self) -> bool:
        """Whether the topic that it reads may be gone, or is: its position is of no other."""
        return bool(self.doubted_id) or self.why is Why.MADE_ANEW

    @property
    def where(self) -> str:
        return f"{self.place.topic}-{self.place.partition}, epoch {self.epoch}"

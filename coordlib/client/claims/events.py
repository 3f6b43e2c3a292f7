"""The inputs, outputs and errors of a consumer's state machine: plain values, no IO.

Inputs are things that happened; `now_ms` is the moment, on the clock of the fence. Outputs are
things to do, in order; the shell does them and feeds back their outcome.

CoordError
├── ClaimLost               the claim was given up: another consumer may have the partition
├── UnseenOffset            a commit of a message that was never handed out under this claim
├── ForeignToken            a token of another claim, consumer or process
└── StartRefused
    └── CoordinationTopicChanged    another topic id or number of partitions, or its end is lost
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from coordlib.client.kit import events as members
from coordlib.client.kit.events import TopicPartition
from coordlib.errors import CoordError, StartRefused


class ClaimLost(CoordError):
    """This consumer does not hold the partition, or not any more. Source: design, section 6."""

    def __init__(self, where: str, why: str = "it is not claimed by this consumer") -> None:
        super().__init__(
            f"The partition may not be worked on: {why}.",
            where,
            "Drop unfinished messages; the next owner reads them again.",
        )


class UnseenOffset(CoordError):
    """A commit names an offset that this claim has not handed out."""

    def __init__(self, where: str, offset: int) -> None:
        super().__init__(
            f"Offset {offset} was not handed out under this claim.",
            where,
            "Commit messages that poll or consume has returned since the partition was claimed.",
        )


class ForeignToken(CoordError):
    """A commit token that was not made by this consumer, or under another claim."""

    def __init__(self, where: str) -> None:
        super().__init__(
            "The token is not one of this consumer's present claim.",
            where,
            "Commit with a token of the consumer that read the message, while it has its claim.",
        )


class CoordinationTopicChanged(StartRefused):
    """The coordination topic is not the one that this process began to read.

    Epochs compare within one topic id, and messages stand where its number of partitions says.
    Where the log has lost its end, epochs that were given out would be given out again.
    """

    def __init__(self, what: str, where: str, hint: str = "") -> None:
        usual = "Stop all of its consumers, then start them again on the topic as it is now."
        super().__init__(what, where, hint or usual)


def log_cut(topic: str, partition: int, known: int, now: str) -> CoordinationTopicChanged:
    """What is raised where the log has lost its end; `known`: the newest offset that was there."""
    return CoordinationTopicChanged(
        f"The coordination topic has lost its end: offset {known} was there, and {now}.",
        f"{topic}, partition {partition}",
        "Stop all of its consumers. Unless somebody has just made the topic anew, delete it and "
        "create it again. Then start them.",
    )


Places = tuple[TopicPartition, ...]


class Callback(Enum):
    """The user's callbacks, always run in the user's own thread, inside `poll` or `close`."""

    #: These are claimed now. Action: begin to read at the offsets of the call.
    CLAIMED = "claimed"
    #: These are to be released. Action: commit what is done, then let go.
    RELEASED = "released"
    #: These may have another owner already. Action: stop at once; commits would be refused.
    LOST = "lost"
    #: The set of topics that are claimed whole has changed.
    TOPICS = "topics"


class SlotSeen(NamedTuple):
    """A slot as the log has it: what a consumer needs of it."""

    client: str
    #: The first 8 characters of the owner's instance: its process.
    instance: str
    epoch: int
    position: int | None
    is_live: bool
    #: Whether its owner has released it; a stale slot is neither live nor released.
    is_released: bool = False
    #: Of the topic that the position is of; empty: its message named none.
    topic_id: str = ""


class View(Protocol):
    """One coordination partition, as far as it was read and judged. Nothing here reads a clock."""

    @property
    def read_ms(self) -> int | None:
        """When the end was asked for that the newest complete reading has reached."""

    @property
    def heard_ms(self) -> int:
        """When the newest record was read, or reading began; CLOCK_BOOTTIME."""

    @property
    def may_act(self) -> bool:
        """Whether it was read to its end, and not late less than 4 intervals ago (section 5)."""

    def slot(self, group: str, place: TopicPartition) -> SlotSeen | None:
        """The slot, live or not; None: the log names no owner of it."""

    def slots(self, group: str, topic: str) -> Mapping[int, SlotSeen]:
        """All slots of a topic, by partition."""

    def paused_by(self, group: str) -> str | None:
        """The client that pauses the group at this moment of the log; None: it is not paused."""


# ---- inputs -----------------------------------------------------------------------------------

#: The two inputs that members of groups have just so.
Elapsed: TypeAlias = members.Elapsed
Polled: TypeAlias = members.Polled


@dataclass(frozen=True, slots=True)
class Judged:
    """A record about one slot was read and judged; the view shows the slot after it."""

    now_ms: int
    place: TopicPartition
    offset: int
    #: Whether this process wrote it.
    is_own: bool
    #: Whether it did what its sender asked: the attempt won, the sign or the release counts.
    is_accepted: bool
    #: Whether the slot has no owner since this record.
    is_freed: bool = False
    #: The slot's position after it; None: unknown, or known by a snapshot alone.
    position: int | None = None
    #: The position in an older snapshot, where the log that was read says nothing of the slot:
    #: consumers may have gone on since, and Kafka's committed offset be newer.
    saved_position: int | None = None
    #: Whether it is an attempt or a reclaim: accepted, its offset is the slot's epoch.
    is_attempt: bool = False
    #: Whether it is a sign of somebody else, refused by a reader that began late and below 8
    #: intervals ago: that reader may be the one who is wrong (section 5).
    is_uncertain: bool = False
    #: Of the topic that the position is of; empty: its message named none.
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class ReadToEnd:
    """A coordination partition was read to its end once more, or its pauses have changed."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The log took a message, at `offset`; `produced_ms` is the first produce() call for it."""

    now_ms: int
    id: int
    offset: int
    produced_ms: int


@dataclass(frozen=True, slots=True)
class NotWritten:
    """The producer gave up on a message; it may nevertheless have been written."""

    now_ms: int
    id: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Counted:
    """The partition counts of those of the topics that exist."""

    now_ms: int
    counts: Mapping[str, int]
    #: Their topics' ids, as far as brokers tell them.
    ids: Mapping[str, str] = field(default_factory=dict)


class Found(NamedTuple):
    """Where a claim may begin: Kafka's committed offset, and the bounds of the partition's log."""

    place: TopicPartition
    epoch: int
    committed: int | None
    log_start: int
    log_end: int
    #: Of the topic, asked for before the bounds; empty: brokers tell none.
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class StartsFound:
    """The answer to `LookUpStarts`; partitions that did not answer are left out."""

    now_ms: int
    found: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class EndsFound:
    """The answer to `LookUpEnds`."""

    now_ms: int
    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The partition's log does not have the position that was to be read."""

    now_ms: int
    place: TopicPartition


@dataclass(frozen=True, slots=True)
class Buffered:
    """At most once: messages of a claim wait to be handed out, the last one below `end`."""

    now_ms: int
    place: TopicPartition
    epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of an awaited commit to Kafka's group."""

    now_ms: int
    place: TopicPartition
    epoch: int
    end: int
    is_done: bool


@dataclass(frozen=True, slots=True)
class CalledBack:
    """The callback of an earlier `Call` has returned."""

    now_ms: int
    call: "Call"


@dataclass(frozen=True, slots=True)
class Flush:
    """Write the positions that have moved; answered under `ticket`."""

    now_ms: int
    ticket: int


@dataclass(frozen=True, slots=True)
class Close:
    """The user ends the consumer: release its claims, or leave them for the next process."""

    now_ms: int
    releases: bool
    #: The callback in which the user does so, on the same thread: it counts as returned.
    inside: "Call | None" = None


@dataclass(frozen=True, slots=True)
class Left:
    """`close` has returned before all was written: the rest needs no user, and no callback runs."""

    now_ms: int


#: What delivery at most once waits for.
OfBatch = Buffered | Committed
Input = (
    Judged
    | ReadToEnd
    | Acknowledged
    | NotWritten
    | Elapsed
    | Counted
    | StartsFound
    | EndsFound
    | OutOfRange
    | Buffered
    | Committed
    | Polled
    | CalledBack
    | Flush
    | Close
    | Left
)


# ---- outputs ----------------------------------------------------------------------------------


class Kind(Enum):
    """The message that is to be written; the value is its type on the wire."""

    ATTEMPT = "ClaimingPartition"
    SIGN = "Heartbeat"
    RELEASE = "ReleasingPartition"
    PROPOSAL = "ClaimingMessages"


@dataclass(frozen=True, slots=True)
class Write:
    """Write this message to the topic's coordination partition, in order with all others."""

    id: int
    kind: Kind
    place: TopicPartition
    #: The claim's; None: the instance stands bare, as in attempts and reclaims.
    epoch: int | None = None
    position: int = 0
    #: Of the topic that the position is of.
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """Run this callback, then feed `CalledBack`. Comes only from `Polled` and `Close`."""

    callback: Callback
    places: Places = ()
    #: Of CLAIMED: where each begins.
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CountPartitions:
    """Ask for the topics' partition counts, then feed `Counted`; nothing if there is no answer."""


class Sought(NamedTuple):
    """A claim whose start is sought; its position as judged is known or not."""

    place: TopicPartition
    epoch: int
    needs_committed: bool


@dataclass(frozen=True, slots=True)
class LookUpStarts:
    """Ask for bounds and committed offsets, then feed `StartsFound`, whatever was found."""

    sought: tuple[Sought, ...]


@dataclass(frozen=True, slots=True)
class LookUpEnds:
    """Ask for the ends of these partitions' logs, then feed `EndsFound`."""

    places: Places


@dataclass(frozen=True, slots=True)
class CommitToKafka:
    """Commit this position to Kafka's group of the same name.

    Awaited: feed `Committed`. Else best effort, before the message behind it is written.
    """

    place: TopicPartition
    position: int
    epoch: int
    is_awaited: bool = False


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning for the program's log, one sentence."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a question with this ticket: done, or the error to raise."""

    ticket: int
    error: CoordError | None = None


@dataclass(frozen=True, slots=True)
class Closed:
    """The consumer has ended; nothing more will be written."""


Output = (
    Write
    | Call
    | CountPartitions
    | LookUpStarts
    | LookUpEnds
    | CommitToKafka
    | Warned
    | Answer
    | Closed
)

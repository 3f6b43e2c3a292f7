"""One claim of one consumer, from its attempt to its end, and what is asked of the log for it.

How long it may be worked on is by the consumer's own clock (design, section 6). Others count a slot
as live for two intervals of the log's clock; a consumer stops after one of its own. The interval
between is the margin: for steps of the broker's clock, each of them clipped, and for the rates of
both clocks.  # INV-51
There is no way back: a claim that has stopped is given up, and comes back by a new attempt only,
which the log judges.

Source of health: Marshal's claim.go; vectors V10 to V12.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from coordlib.client.claims.events import Acknowledged, Judged
from coordlib.client.kit.events import TopicPartition


class Stop(Enum):
    """Why a claim was given up: the end of the sentence "The partition may not be worked on"."""

    #: The first produce() of its newest acknowledged sign is an interval old.
    NO_SIGN = "no sign of life was acknowledged for one heartbeat interval"
    #: Its coordination partition was not read to its end, asked for within the interval.
    UNREAD = "the coordination topic was not read to its end for one heartbeat interval"
    #: The log names another owner, or another epoch.
    TAKEN = "another consumer has claimed it"
    #: The log has freed the slot.
    FREED = "it was released in the log"
    #: The user's thread did not take the release for an interval.
    UNHEARD = "it was to be released, and poll was not called for one heartbeat interval"


@dataclass(slots=True)
class Fence:
    """Of one claim. Times are of CLOCK_BOOTTIME, in ms."""

    interval_ms: int
    #: First produce() of the newest acknowledged sign; the winning attempt is the first one.
    sign_ms: int

    def acknowledged(self, produced_ms: int) -> None:
        """The log took a sign. The caller has looked whether the claim still stands before."""
        self.sign_ms = max(self.sign_ms, produced_ms)

    def closes_ms(self, read_ms: int | None) -> int:
        """The first moment at which the claim may not be worked on, if nothing else comes."""
        oldest = self.sign_ms if read_ms is None else min(self.sign_ms, read_ms)
        return oldest + self.interval_ms

    def broken(self, now_ms: int, read_ms: int | None) -> Stop | None:
        """The rule that closes it now; None: it is open.

        Args:
            read_ms: when the end was asked for that the newest complete reading has reached.
        """
        if now_ms - self.sign_ms >= self.interval_ms:
            return Stop.NO_SIGN
        if read_ms is None or now_ms - read_ms >= self.interval_ms:
            return Stop.UNREAD
        return None


#: Samples of which a velocity is made; cycles behind after which a claim is released.
SAMPLES_MAX: Final = 10
CYCLES_BEHIND_MAX: Final = 3


def velocity(samples: Sequence[int]) -> float:
    """Offsets per cycle: the spread of the positive samples over their number, less one.

    0 for fewer than two of them. The order of samples plays no part.
    """
    known = [each for each in samples if each > 0]
    if len(known) < 2:
        return 0.0
    return (max(known) - min(known)) / (len(known) - 1)


class Verdict(Enum):
    """The result of one health check of a claim."""

    #: action: none.
    HEALTHY = "healthy"
    #: action: log a warning. transition: after CYCLES_BEHIND_MAX of them in a row -> RELEASE
    BEHIND = "behind"
    #: action: release the claim, and do not claim it again for one interval.
    RELEASE = "release"


class Health:
    """The last looks at one claim.

    Args:
        releases_if_behind: the option; without it a claim is never released for its speed.
        is_part_of_topic: a whole topic is claimed: one partition alone is not given up.
    """

    def __init__(self, releases_if_behind: bool = True, is_part_of_topic: bool = False) -> None:
        self._releases = releases_if_behind
        self._is_part = is_part_of_topic
        self.currents: deque[int] = deque(maxlen=SAMPLES_MAX)
        self.latests: deque[int] = deque(maxlen=SAMPLES_MAX)
        self.cycles_behind = 0

    def look(self, current: int, latest: int, is_silent: bool) -> Verdict:
        """Take one sample of each, and judge.

        Args:
            current: the claim's position; latest: the end of the partition's log.
            is_silent: no message was handed out for more than an interval.
        """
        self.currents.append(current)
        self.latests.append(latest)
        return self.judge(current, latest, is_silent)

    def judge(self, current: int, latest: int, is_silent: bool) -> Verdict:
        """The order of tests is Marshal's: a change of it would release other claims."""
        consumed, produced = velocity(self.currents), velocity(self.latests)
        is_wedged = is_silent and consumed == 0 and (produced > 0 or latest > current)
        if is_wedged and self._releases:
            return Verdict.RELEASE
        if self._is_part or not self._releases:
            return Verdict.HEALTHY
        if current + int(2 * consumed) >= latest or produced < consumed:
            self.cycles_behind = 0
            return Verdict.HEALTHY
        self.cycles_behind += 1
        if self.cycles_behind >= CYCLES_BEHIND_MAX:
            return Verdict.RELEASE
        return Verdict.BEHIND


class CommitToken(NamedTuple):
    """Names one message without holding it; good for the claim under which it was handed out."""

    topic: str
    partition: int
    offset: int
    #: The claim's fencing token: the offset of the record that won it.
    epoch: int
    #: The process that holds the claim: 8 hexadecimal digits.
    instance: str

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True)
class _Handed:
    offset: int
    is_done: bool = False


class CommitTracker:
    """Messages that were handed out under one claim, in the order of the log.

    Offsets may have gaps (compaction, transactions' marks): what counts is the order of what was
    handed out. Source: Marshal's claim.go; vector V13.
    """

    def __init__(self, position: int) -> None:
        #: Next offset to read for whoever comes next: all before it is done.
        self.position = position
        self._open: deque[_Handed] = deque()
        self._by_offset: dict[int, _Handed] = {}

    @property
    def outstanding(self) -> int:
        """How many messages are handed out at or above the position."""
        return len(self._open)

    def handed_out(self, offset: int) -> None:
        """Note that a message is handed to the user. Offsets must rise."""
        assert not self._open or offset > self._open[-1].offset, "handed out of order"
        assert offset >= self.position, "handed out below the position"
        entry = _Handed(offset)
        self._open.append(entry)
        self._by_offset[offset] = entry

    def has(self, offset: int) -> bool:
        """Whether this message was handed out and is not below the position."""
        return offset in self._by_offset

    def commit(self, offset: int) -> bool:
        """Note that a message is done; False: it was never handed out.

        A message below the position was committed before: nothing changes.
        """
        entry = self._by_offset.get(offset)
        if entry is None:
            return False
        entry.is_done = True
        while self._open and self._open[0].is_done:
            done = self._open.popleft()
            del self._by_offset[done.offset]
            self.position = done.offset + 1
        return True


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
    MADE_ANEW = "the topic was deleted and created again"
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
    """The phase of a claim."""

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
    is_reported: bool = False
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


#: A claim by its place and epoch.
_Key = tuple[TopicPartition, int]


@dataclass(slots=True)
class _Flush:
    """One that is not answered yet."""

    signs: set[int]
    #: Claims whose sign was not written: the next one carries the same position, or a later one.
    unsigned: set[_Key] = field(default_factory=set)


class Flushes:
    """The flushes of one consumer, by their tickets."""

    def __init__(self) -> None:
        self._open: Final[dict[int, _Flush]] = {}

    def begin(self, ticket: int, signs: Iterable[int]) -> None:
        """Open a flush that waits for these claims; there is at least one."""
        self._open[ticket] = _Flush(set(signs))

    def signed(self, claim: Claim, sign: int) -> None:
        """Note that a sign of this claim was sent."""
        for each in self._open.values():
            if _key(claim) in each.unsigned:
                each.unsigned.discard(_key(claim))
                each.signs.add(sign)

    def not_written(self, claim: Claim, sign: int) -> None:
        """Note that the producer has given up a sign of this claim."""
        for each in self._open.values():
            if sign in each.signs:
                each.signs.discard(sign)
                each.unsigned.add(_key(claim))

    def acknowledged(self, sign: int) -> list[int]:
        """The log has a sign: the tickets of flushes that wait for nothing more."""
        for each in self._open.values():
            each.signs.discard(sign)
        done = [ticket for ticket, each in self._open.items() if not (each.signs or each.unsigned)]
        for ticket in done:
            del self._open[ticket]
        return done

    def forget(self, ticket: int) -> None:
        """Drop a flush."""
        self._open.pop(ticket, None)


def _key(claim: Claim) -> _Key:
    return claim.place, claim.epoch

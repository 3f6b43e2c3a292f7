"""What the parts of a consumer's state machine share: its names, its claims, and what it says.

And which partitions it attempts to claim next: pure planners over what the log shows. Source of
these: Marshal's consumer.go (claim loop, whole topics, greedy claims, fast reclaim, bug B8);
vectors V14 to V17.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from coordlib.client.claims import events as sg
from coordlib.client.claims.claim import Attempt, Claim, Phase, Why
from coordlib.client.claims.options import ConsumerOptions
from coordlib.client.kit.data import SeenIds
from coordlib.client.kit.events import TopicPartition

#: The pace of everything, as parts of the heartbeat interval HI (design, sections 2 and 8).
PASS_PARTS: Final = 20  # a claims pass every 0 to HI/20
BEAT_PARTS: Final = (4, 3)  # a sign every HI/4 to 3·HI/4
SILENCE_PARTS: Final = 5  # silence is filled after CAP/2 = HI/5
COUNT_PARTS: Final = 12  # partition counts are asked for every HI/12
RETRY_PARTS: Final = 30  # what failed is tried again after HI/30


@dataclass(frozen=True, slots=True)
class Identity:
    """Names that do not change while a consumer lives."""

    group: str
    client: str
    #: 8 hexadecimal digits, drawn once for each marshaler.
    instance: str
    topics: tuple[str, ...]
    interval_ms: int
    #: Where a partition without any position begins: at its log's end, or its start.
    begins_at_end: bool = False


@dataclass(slots=True)
class Standing:
    """The state of one consumer that all of its parts see."""

    identity: Identity
    options: ConsumerOptions
    #: The coordination partition of a topic, as far as it was read.
    view_of: Callable[[str], sg.View]
    rng: Random
    claims: dict[TopicPartition, Claim] = field(default_factory=dict)
    attempts: dict[TopicPartition, Attempt] = field(default_factory=dict)
    #: Until when this consumer leaves partitions alone that it has released itself.
    cooling_ms: dict[TopicPartition, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    #: Which topic of each name is there: taken by two answers that agree, or one and the log.
    ids: SeenIds = field(default_factory=SeenIds)
    #: Given up, and the user was told of them by CLAIMED: LOST is due for these.
    lost: dict[TopicPartition, Claim] = field(default_factory=dict)
    #: Ids of releases, and of last signs, that the log has not taken yet.
    last_words: set[int] = field(default_factory=set)
    #: Where starts were raised to the log's start: how often, for those who watch.
    fast_forwards: int = 0
    #: Why all claims end: the user closes the consumer. None: he has not.
    closing: Why | None = None
    #: Before it no sign, look or end of a claim is due: many claims are not walked for each record.
    due_ms: int = 0
    _ids: int = 0
    _outputs: list[sg.Output] = field(default_factory=list)

    @property
    def is_closing(self) -> bool:
        return self.closing is not None

    @property
    def interval_ms(self) -> int:
        return self.identity.interval_ms

    def hurry(self, due_ms: int) -> None:
        """Note that something of a claim is due at this time."""
        self.due_ms = min(self.due_ms, due_ms)

    def say(self, output: sg.Output) -> None:
        self._outputs.append(output)

    def outputs(self) -> list[sg.Output]:
        """The outputs since the last call."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def write(
        self,
        kind: sg.Kind,
        place: TopicPartition,
        epoch: int | None = None,
        position: int = 0,
        topic_id: str = "",
    ) -> int:
        """Queue a message to be written; returns its id."""
        self._ids += 1
        self.say(sg.Write(self._ids, kind, place, epoch, position, topic_id))
        return self._ids

    def view(self, place: TopicPartition) -> sg.View:
        return self.view_of(place.topic)

    def slot(self, place: TopicPartition) -> sg.SlotSeen | None:
        return self.view(place).slot(self.identity.group, place)

    def owns_slot(self, claim: Claim) -> bool:
        """Whether the log still gives the slot to this very claim, as far as it was read."""
        slot = self.slot(claim.place)
        if slot is None or slot.is_released:
            return False
        return slot.epoch == claim.epoch and self.is_self(slot)

    def is_self(self, slot: sg.SlotSeen) -> bool:
        """Whether the slot's owner is this process."""
        identity = self.identity
        return slot.client == identity.client and slot.instance == identity.instance

    def reads(self, topic: str, now_ms: int) -> bool:
        """Whether the topic's log was read to its end within the interval. One that cannot read
        must not write attempts: it would win what it cannot know to have won."""
        read_ms = self.view_of(topic).read_ms
        return read_ms is not None and now_ms - read_ms < self.interval_ms

    def is_paused(self) -> bool:
        """Whether another client pauses the group, by the log of any of the topics."""
        identity = self.identity
        by = (self.view_of(topic).paused_by(identity.group) for topic in identity.topics)
        return any(each is not None and each != identity.client for each in by)

    def cool_down(self, place: TopicPartition, now_ms: int) -> None:
        """Leave a partition to others for one interval."""
        self.cooling_ms[place] = now_ms + self.interval_ms

    def jitter(self, most_ms: int) -> int:
        return self.rng.randint(0, most_ms)

    def places(self, topic: str) -> tuple[TopicPartition, ...]:
        """All partitions of a topic, by number."""
        return tuple(TopicPartition(topic, each) for each in range(self.counts.get(topic, 0)))


Place = TopicPartition


def room(me: Standing) -> int:
    """How many more partitions, or topics, it may take; a large number without a limit."""
    most = me.options.maximum_claims
    if not most:
        return 1 << 30
    return most - (len(_topics_taken(me)) if me.options.claim_entire_topic else len(_taken(me)))


def to_attempt(me: Standing, now_ms: int) -> list[Place]:
    """The attempts of one pass: one partition or topic, or with `greedy_claims` all that is free.

    It begins at a random partition, so that consumers that wake together try different ones.
    """
    free = [each for each in _rotated(me, wanted(me)) if _is_free(me, each, now_ms)]
    if not me.options.claim_entire_topic:
        return free[: room(me) if me.options.greedy_claims else min(1, room(me))]
    keys = [each for each in free if each.partition == 0]
    rest = [each for each in free if each.partition > 0]
    return rest + (keys if me.options.greedy_claims else keys[:1])[: room(me)]


def wanted(me: Standing) -> list[Place]:
    """All partitions that it would take if they were free; none when it has enough.

    Of a topic that is claimed whole, partition 0 is the key: the others follow once it is held.
    """
    taken = _taken(me)
    if not me.options.claim_entire_topic:
        if room(me) <= 0:
            return []
        return [each for each in _all(me) if each not in taken]
    return [
        each
        for each in _all(me)
        if each not in taken
        and (_holds_key(me, each.topic) if each.partition else room(me) > 0)
        and not (each.partition == 0 and each.topic in _topics_taken(me))
    ]


def to_reclaim(me: Standing, topic: str) -> list[Place]:
    """What an earlier process of this client id still holds of a topic. `maximum_claims` does not
    count for partitions, as in Marshal; for topics it does, and 0 is no limit (bug B8)."""
    if not me.options.fast_reclaim:
        return []
    found = me.view_of(topic).slots(me.identity.group, topic)
    mine = [
        Place(topic, number)
        for number, slot in sorted(found.items())
        if slot.is_live and slot.client == me.identity.client
    ]
    places = [each for each in mine if each not in me.claims and each not in me.attempts]
    if me.options.claim_entire_topic and (Place(topic, 0) not in places or room(me) <= 0):
        return []
    return places


def is_wanted(me: Standing, place: Place) -> bool:
    """Whether a partition that was just won may be kept. Its attempt is not counted any more."""
    if me.is_closing or place.partition >= me.counts.get(place.topic, 0):
        return False
    if me.options.claim_entire_topic and place.partition:
        return _holds_key(me, place.topic)
    return room(me) > 0


def topics_claimed(me: Standing) -> tuple[str, ...]:
    """The topics whose key this consumer holds."""
    held = {
        each.topic for each, claim in me.claims.items() if not each.partition and claim.is_reported
    }
    return tuple(sorted(held)) if me.options.claim_entire_topic else ()


def _taken(me: Standing) -> set[Place]:
    """Partitions held, being released or being claimed: none of them may be claimed again."""
    return set(me.claims) | set(me.attempts)


def _topics_taken(me: Standing) -> set[str]:
    return {each.topic for each in _taken(me)}


def _holds_key(me: Standing, topic: str) -> bool:
    claim = me.claims.get(Place(topic, 0))
    return claim is not None and claim.phase is not Phase.LETTING_GO


def _all(me: Standing) -> Iterator[Place]:
    for topic in me.identity.topics:
        yield from me.places(topic)


def _rotated(me: Standing, places: list[Place]) -> Iterable[Place]:
    if not places:
        return places
    start = me.rng.randrange(len(places))
    return places[start:] + places[:start]


def _is_free(me: Standing, place: Place, now_ms: int) -> bool:
    """Whether an attempt may win now: the log shows no live owner, and it is not cooling down."""
    if now_ms < me.cooling_ms.get(place, now_ms):
        return False
    view = me.view(place)
    slot = view.slot(me.identity.group, place)
    return me.reads(place.topic, now_ms) and view.may_act and (slot is None or not slot.is_live)

"""What assignors get and return: members and partitions, their orders, and Java's order of maps."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from coordlib.core.wire import consumer_protocol as cp

Assignments = dict[str, dict[str, tuple[int, ...]]]
#: For every topic the racks of each partition's replicas, by partition number.
ReplicaRacks = Mapping[str, Sequence[Collection[str]]]

NO_GENERATION = -1


class Subscriber(Protocol):
    """What range and roundrobin need to know of a member."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it wants."""

    @property
    def instance(self) -> str | None:
        """Its static instance id (KIP-345), or None for a dynamic member."""

    @property
    def rack(self) -> str | None:
        """Where it runs (KIP-881); None or empty: unknown."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member's subscription: all that an assignor may look at."""

    topics: tuple[str, ...]
    #: What it says to own, in the subscription itself (ConsumerProtocol version 1 on).
    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: The generation in which it owned that (version 2 on).
    generation: int = NO_GENERATION
    instance: str | None = None
    rack: str | None = None
    #: What its own assignor says to the leader's: see `ownership.py`.
    user_data: bytes | None = None


def member_of(subscription: cp.Subscription, instance: str | None = None) -> Member:
    """A member as its JoinGroup metadata describes it."""
    return Member(
        topics=subscription.topics,
        owned=subscription.owned,
        generation=max(subscription.generation, NO_GENERATION),
        instance=instance,
        rack=subscription.rack,
        user_data=subscription.user_data,
    )


def java_order(text: str) -> bytes:
    """A sort key: Java compares UTF-16 code units, which differs from code points beyond U+FFFF."""
    return text.encode("utf-16-be", "surrogatepass")


def in_member_order(members: Mapping[str, Subscriber]) -> list[str]:
    """Static members by instance id, then dynamic ones by member id."""
    return sorted(members, key=lambda member: _rank(member, members[member].instance))


def _rank(member: str, instance: str | None) -> tuple[bool, bytes, bytes]:
    own = java_order(member)
    return instance is None, own if instance is None else java_order(instance), own


def topics_in_order(wanted: Iterable[Iterable[str]], partitions: Mapping[str, int]) -> list[str]:
    """The topics that a member wants and that have partitions, by name."""
    topics = dict.fromkeys(topic for some in wanted for topic in some)
    return sorted((t for t in topics if partitions.get(t, 0) > 0), key=java_order)


class Layout:
    """Where each partition stands."""

    def __init__(self, members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> None:
        wanted = (member.topics for member in members.values())
        self.topics = topics_in_order(wanted, partitions)
        #: Topic -> place of its partition 0.
        self.start: dict[str, int] = {}
        #: Place -> number of its topic in `topics`.
        self.topic_at: list[int] = []
        for number, topic in enumerate(self.topics):
            self.start[topic] = len(self.topic_at)
            self.topic_at += [number] * partitions[topic]
        self._ends = [self.start[topic] + partitions[topic] for topic in self.topics]

    @property
    def total(self) -> int:
        """How many partitions there are."""
        return len(self.topic_at)

    def count(self, topic: str) -> int:
        """How many partitions a topic has; 0 for one that is not in the layout."""
        return len(self.places(topic))

    def places(self, topic: str) -> range:
        """Where a topic's partitions stand."""
        start = self.start.get(topic)
        return range(0) if start is None else range(start, self._ends[self.topic_at[start]])

    def partition(self, place: int) -> int:
        """A place's partition number."""
        return place - self.start[self.topics[self.topic_at[place]]]

    def rows(self, places: Iterable[int]) -> dict[str, tuple[int, ...]]:
        """The same as partitions by topic, ascending."""
        ordered, at = sorted(places), 0
        rows: dict[str, tuple[int, ...]] = {}
        while at < len(ordered):
            number = self.topic_at[ordered[at]]
            topic = self.topics[number]
            start, after = self.start[topic], bisect_left(ordered, self._ends[number], at)
            rows[topic] = tuple([place - start for place in ordered[at:after]])
            at = after
        return rows


_CAPACITY: Final = 16  # of an empty HashMap
_WORD: Final = 0xFFFF_FFFF


def string_hash(text: str) -> int:
    """`String.hashCode`, as an unsigned number."""
    units = java_order(text)
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _WORD
    return value


def in_map_order(keys: Iterable[str]) -> list[str]:
    """The keys of a HashMap that was filled one by one."""
    names = sorted(keys, key=java_order)
    last = _capacity(len(names), _CAPACITY) - 1
    return sorted(names, key=lambda name: _spread(string_hash(name)) & last)


def _capacity(size: int, at_least: int) -> int:
    capacity = at_least
    while size * 4 > capacity * 3:
        capacity *= 2
    return capacity


def _spread(value: int) -> int:
    return value ^ (value >> 16)


class PartitionSet:
    """A HashSet of one topic's partitions: its table grows and never shrinks."""

    def __init__(self, topic_hash: int) -> None:
        self._topic_hash = topic_hash
        self._capacity = _CAPACITY
        #: partition -> its spread hash, in order of insertion.
        self._spread: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._spread)

    def add(self, partition: int) -> None:
        """Take one in; it is in no other set of the same topic."""
        value = (31 * (31 + partition) + self._topic_hash) & _WORD
        self._spread[partition] = _spread(value)
        self._capacity = _capacity(len(self._spread), self._capacity)

    def remove(self, partition: int) -> None:
        """Let one go."""
        del self._spread[partition]

    def first(self) -> int:
        """What Java's iterator names first."""
        spread, last = self._spread, self._capacity - 1
        return min(spread, key=lambda partition: spread[partition] & last)

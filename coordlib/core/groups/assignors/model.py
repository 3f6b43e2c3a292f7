"""What assignors are given and what they answer; Kafka's orders of members and names.

Members are a mapping of member id to `Member`; partitions a mapping of topic to count; racks, where
they are known, a mapping of topic to one collection of racks for each of its partitions. Answers
name every member, also one that gets nothing, with its partitions in ascending order.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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
    #: What its own assignor says to the leader's: see `sticky_data`.
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

"""Kafka's RangeAssignor and RoundRobinAssignor.

Range: every topic for itself, consecutive partitions per member.
With P partitions and M subscribed members, the first P mod M members get one partition more than
the others. Members stand in Kafka's order: static ones by instance id, then dynamic ones by
member id. A topic without known partitions is ignored, as clients do (server-side assignors
refuse it). Topics with equal partition counts and subscribers are co-partitioned: partition i of
each goes to the same member. Racks, where they matter (KIP-881), come first: near partitions, then
the usual ranges. Source: `RangeAssignor.java`, `AbstractPartitionAssignor.java`.

Round-robin: all partitions are dealt around one circle of members. Topics by name, partitions by
number; members in Kafka's order. Who does not want the topic is skipped, and the next topic is
dealt on from where the last one ended. Source: `RoundRobinAssignor.java`.
"""

from collections.abc import Callable, Mapping

from coordlib.core.groups.assignors import racks as rk
from coordlib.core.groups.assignors.model import (
    Assignments,
    ReplicaRacks,
    Subscriber,
    in_member_order,
    topics_in_order,
)


class _Topic:
    """A topic while it is divided."""

    def __init__(
        self, name: str, takers: list[str], racks: list[rk.Racks], rack_of: Mapping[str, str | None]
    ) -> None:
        self.name, self.takers, self.racks, self.rack_of = name, takers, racks, rack_of
        self.left = dict.fromkeys(range(len(racks)))
        self._each, self._extra = divmod(len(racks), len(takers))
        self._taken: dict[str, list[int]] = {member: [] for member in takers}

    def taker_racks(self) -> tuple[tuple[str, str | None], ...]:
        """Who takes part, and from where: equal for topics that are divided alike."""
        return tuple((member, self.rack_of[member]) for member in self.takers)

    def needs_racks(self, always: bool) -> bool:
        """Whether racks make a difference for this topic alone."""
        homes = frozenset(rack for _, rack in self.taker_racks() if rack is not None)
        return rk.matter(homes, self.racks, always)

    def is_near(self, member: str, partition: int) -> bool:
        """Whether a member has no rack, or one with a replica."""
        rack = self.rack_of[member]
        return rack is None or rack in self.racks[partition]

    def room(self, member: str) -> int:
        """How many more a member may get."""
        return max(0, self._each + (self._extra > 0) - len(self._taken[member]))

    def give(self, member: str, partitions: list[int]) -> None:
        """Hand over some that are left."""
        taken = self._taken[member]
        taken += partitions
        if len(taken) > self._each:
            self._extra -= 1
        for partition in partitions:
            del self.left[partition]

    def give_ranges(self, may: Callable[[str, int], bool]) -> None:
        """To each member in turn as many as it may get, of those that it may have."""
        for member in self.takers:
            some = [partition for partition in self.left if may(member, partition)]
            if some := some[: self.room(member)]:
                self.give(member, some)

    def tell(self, given: Assignments) -> None:
        """Write down who got what."""
        for member, partitions in self._taken.items():
            if partitions:
                given[member][self.name] = tuple(sorted(partitions))


def divide_near(
    takers: Mapping[str, list[str]],
    partitions: Mapping[str, int],
    racks: ReplicaRacks,
    rack_of: Mapping[str, str | None],
    always: bool,
) -> Assignments | None:
    """Divide all topics, or answer None if racks matter for none of them."""
    topics = [
        _Topic(topic, some, rk.of_topic(topic, partitions[topic], racks), rack_of)
        for topic, some in takers.items()
    ]
    needing = {topic.name for topic in topics if topic.needs_racks(always)}
    if not needing:
        return None
    for alike in _alike(topics):
        if len(alike) > 1:
            _give_together(alike)
        elif alike[0].name in needing:
            alike[0].give_ranges(alike[0].is_near)
    given: Assignments = {member: {} for member in rack_of}
    for topic in topics:
        topic.give_ranges(lambda _member, _partition: True)
        topic.tell(given)
    return given


def _alike(topics: list[_Topic]) -> list[list[_Topic]]:
    """Topics by their members and number of partitions; those in no member's rack stay alone."""
    groups: dict[tuple[object, ...], list[_Topic]] = {}
    for topic in topics:
        takers = topic.taker_racks()
        if any(rack is not None for _, rack in takers):
            groups.setdefault((takers, len(topic.racks)), []).append(topic)
    return list(groups.values())


def _give_together(topics: list[_Topic]) -> None:
    """Partition i of all topics to the first member that is near to each and may have one more."""
    members = list(topics[0].takers)
    for partition in range(len(topics[0].racks)):
        for member in members:
            if all(topic.is_near(member, partition) and topic.room(member) for topic in topics):
                for topic in topics:
                    topic.give(member, [partition])
                if not any(topic.room(member) for topic in topics):
                    members.remove(member)
                break


NAME = "range"


def assign(
    members: Mapping[str, Subscriber],
    partitions: Mapping[str, int],
    racks: ReplicaRacks | None = None,
    *,
    always_racks: bool = False,
) -> Assignments:
    """Divide the partitions of all topics.

    Args:
        members: member id -> its subscription.
        partitions: topic -> number of partitions; topics that are not in it do not exist.
        racks: topic -> the racks of each partition's replicas, where they are known.
        always_racks: look at racks also if every partition is in every rack.

    Returns:
        For every member, also one that gets nothing: topic -> its partitions, ascending.
    """
    takers = takers_of(members, partitions)
    if racks and any(member.rack for member in members.values()):
        rack_of = {name: member.rack or None for name, member in members.items()}
        near = divide_near(takers, partitions, racks, rack_of, always_racks)
        if near is not None:
            return {member: near[member] for member in members}
    given: Assignments = {member: {} for member in members}
    for topic, some in takers.items():
        divide(topic, partitions[topic], some, given)
    return given


def takers_of(
    members: Mapping[str, Subscriber], partitions: Mapping[str, int]
) -> dict[str, list[str]]:
    """For every topic that exists and is wanted: who wants it, in Kafka's order.

    Topics that the same members want have one list, which must not be changed: a thousand members
    may want the same ten thousand topics.
    """
    ordered = in_member_order(members)
    #: By what they want: where the members stand that want just that.
    places: dict[tuple[str, ...], list[int]] = {}
    for place, member in enumerate(ordered):
        places.setdefault(members[member].topics, []).append(place)
    wanted_in: dict[str, list[int]] = {}
    for number, topics in enumerate(places):
        for topic in dict.fromkeys(topics):
            wanted_in.setdefault(topic, []).append(number)
    of_subscription = list(places.values())
    alike: dict[tuple[int, ...], list[str]] = {}
    takers: dict[str, list[str]] = {}
    for topic in topics_in_order(places, partitions):
        subscriptions = tuple(wanted_in[topic])
        if subscriptions not in alike:
            together = sorted(
                place for number in subscriptions for place in of_subscription[number]
            )
            alike[subscriptions] = [ordered[place] for place in together]
        takers[topic] = alike[subscriptions]
    return takers


def divide(topic: str, count: int, takers: list[str], given: Assignments) -> None:
    """Give a topic's partitions, in ranges, to those who want it."""
    each, extra = divmod(count, len(takers))
    first = 0
    for place, member in enumerate(takers):
        following = first + each + (place < extra)
        if following == first:
            return  # nor is there anything for those behind
        given[member][topic] = tuple(range(first, following))
        first = following


ROUNDROBIN = "roundrobin"


def assign_roundrobin(
    members: Mapping[str, Subscriber], partitions: Mapping[str, int]
) -> Assignments:
    """Divide the partitions of all topics.

    Args:
        members: member id -> its subscription.
        partitions: topic -> number of partitions; topics that are not in it do not exist.
    """
    given: Assignments = {member: {} for member in members}
    circle = in_member_order(members)
    wanted = {member: frozenset(members[member].topics) for member in circle}
    turn = 0  # whose it is: a place in the circle
    for topic in topics_in_order(wanted.values(), partitions):
        turns = _turns(circle, wanted, topic, turn)
        count = partitions[topic]
        for place, at in enumerate(turns[:count]):
            given[circle[at]][topic] = tuple(range(place, count, len(turns)))
        turn = turns[(count - 1) % len(turns)] + 1
    return given


def _turns(
    circle: list[str], wanted: Mapping[str, frozenset[str]], topic: str, turn: int
) -> list[int]:
    """The places of those who want the topic, from `turn` on once around the circle."""
    places = [(turn + step) % len(circle) for step in range(len(circle))]
    return [at for at in places if topic in wanted[circle[at]]]

"""The range assignor where racks matter (KIP-881): near partitions first, then the usual ranges.

Balance comes before co-partitioning, and co-partitioning before racks: no member gets more than
without racks, and topics with the same members and the same number of partitions are still divided
alike where a member is near to all of them. Source: `assignWithRackMatching` in
`RangeAssignor.java`.
"""

from collections.abc import Callable, Mapping

from coordlib.core.groups.assignors import racks as rk
from coordlib.core.groups.assignors.model import Assignments, ReplicaRacks


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


def divide(
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

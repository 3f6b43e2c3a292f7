"""Racks: whether they matter at all, and who stands beside which replica (KIP-881).

They matter only if some member's rack has replicas and not every partition has replicas in all the
racks: otherwise nothing is gained by looking at them. Source: `useRackAwareAssignment` in
`AbstractPartitionAssignor.java`, `RackInfo` in `AbstractStickyAssignor.java`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordlib.core.groups.assignors.layout import Layout
from coordlib.core.groups.assignors.model import ReplicaRacks, Subscriber

Racks = frozenset[str]
NOWHERE: Racks = frozenset()


def matter(members: Racks, partitions: Sequence[Racks], always: bool) -> bool:
    """Whether racks are looked at.

    Args:
        members: the racks in which members are.
        partitions: the racks of each partition's replicas.
        always: also if every partition is in every rack, as some of Kafka's tests want it.
    """
    everywhere = NOWHERE.union(*partitions)
    if members.isdisjoint(everywhere):
        return False
    return always or any(racks != everywhere for racks in partitions)


def of_topic(topic: str, count: int, racks: ReplicaRacks) -> list[Racks]:
    """The racks of a topic's partitions; nowhere for those of which nothing is known."""
    known = [frozenset(some) for some in racks.get(topic, ())[:count]]
    return known + [NOWHERE] * (count - len(known))


@dataclass(frozen=True, slots=True)
class RackInfo:
    """Racks that matter, for members and for partitions by their place in the layout."""

    #: Members whose rack is known.
    rack_of: Mapping[str, str]
    racks: Sequence[Racks]
    #: How many members are in one of a partition's racks.
    members_near: Sequence[int]

    def mismatch(self, member: str, place: int) -> bool:
        """Whether a member has a rack, and the partition no replica in it."""
        rack = self.rack_of.get(member)
        return rack is not None and rack not in self.racks[place]


def rack_info(
    members: Mapping[str, Subscriber], layout: Layout, racks: ReplicaRacks, always: bool
) -> RackInfo | None:
    """What is known of racks, or None if they do not matter."""
    rack_of = {name: member.rack for name, member in members.items() if member.rack}
    if not rack_of:
        return None
    places = [
        each for topic in layout.topics for each in of_topic(topic, layout.count(topic), racks)
    ]
    if not matter(frozenset(rack_of.values()), places, always):
        return None
    inhabitants = Counter(rack_of.values())
    return RackInfo(rack_of, places, [sum(inhabitants[rack] for rack in some) for some in places])

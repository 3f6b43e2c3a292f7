"""Kafka's CooperativeStickyAssignor (KIP-429): sticky, for members who keep working meanwhile.

Members keep what they own while they join. So a partition that changes hands is given to no member
yet: its member sees that it is gone, revokes it and joins again, and only then does it go to the
next one. Source: `CooperativeStickyAssignor.java`.
"""

from collections.abc import Mapping

from coordlib.core.groups.assignors.layout import Layout
from coordlib.core.groups.assignors.model import Assignments, Member, ReplicaRacks
from coordlib.core.groups.assignors.sticky import divide
from coordlib.core.groups.assignors.sticky_data import said_to_cooperative

NAME = "cooperative-sticky"


def assign(
    members: Mapping[str, Member],
    partitions: Mapping[str, int],
    racks: ReplicaRacks | None = None,
    *,
    always_racks: bool = False,
) -> Assignments:
    """Divide the partitions of all topics, and withhold those that others must revoke first.

    Args:
        members: member id -> its subscription with what it owns.
        partitions: topic -> number of partitions; topics that are not in it do not exist.
        racks: topic -> the racks of each partition's replicas, where they are known.
        always_racks: look at racks also if every partition is in every rack.

    Returns:
        For every member, also one that gets nothing: topic -> its partitions, ascending.
    """
    if not members:
        return {}
    layout = Layout(members, partitions)
    given, transferring = divide(members, layout, racks or {}, always_racks, said_to_cooperative)
    if transferring is None:
        transferring = _transferring(members, layout, given)
    return {
        member: layout.rows(at for at in given[member] if transferring.get(at) != member)
        for member in members
    }


def _transferring(
    members: Mapping[str, Member], layout: Layout, given: Mapping[str, list[int]]
) -> dict[int, str]:
    """Places that go to a member that is not their owner, and that their owner must revoke."""
    gained: dict[int, str] = {}
    revoked: set[int] = set()
    for member, places in given.items():
        owned = {
            layout.start[topic] + partition
            for topic, partitions in members[member].owned.items()
            for partition in partitions
            if 0 <= partition < layout.count(topic)
        }
        gained.update((place, member) for place in places if place not in owned)
        revoked |= owned.difference(places)
    return {place: member for place, member in gained.items() if place in revoked}

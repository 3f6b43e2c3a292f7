"""Kafka's StickyAssignor: as balanced as can be, and then as few partitions moved as can be.

Members let go of everything before they join, and tell the leader in their user data what they had.
Source: `StickyAssignor.java`, `AbstractStickyAssignor.java`; the parts are `ownership`,
`constrained` (equal subscriptions) and `general` (different ones).
"""

from collections.abc import Callable, Mapping

from coordlib.core.groups.assignors.constrained import Constrained
from coordlib.core.groups.assignors.general import General
from coordlib.core.groups.assignors.layout import Layout
from coordlib.core.groups.assignors.model import Assignments, Member, ReplicaRacks
from coordlib.core.groups.assignors.ownership import ownership, subscriptions_are_equal
from coordlib.core.groups.assignors.racks import rack_info
from coordlib.core.groups.assignors.sticky_data import Said, said_to_sticky

NAME = "sticky"


def assign(
    members: Mapping[str, Member],
    partitions: Mapping[str, int],
    racks: ReplicaRacks | None = None,
    *,
    always_racks: bool = False,
) -> Assignments:
    """Divide the partitions of all topics.

    Args:
        members: member id -> its subscription; what it owned is in its user data.
        partitions: topic -> number of partitions; topics that are not in it do not exist.
        racks: topic -> the racks of each partition's replicas, where they are known.
        always_racks: look at racks also if every partition is in every rack.

    Returns:
        For every member, also one that gets nothing: topic -> its partitions, ascending.
    """
    if not members:
        return {}
    layout = Layout(members, partitions)
    given, _ = divide(members, layout, racks or {}, always_racks, said_to_sticky)
    return {member: layout.rows(given[member]) for member in members}


def divide(
    members: Mapping[str, Member],
    layout: Layout,
    racks: ReplicaRacks,
    always_racks: bool,
    say: Callable[[Member], Said],
) -> tuple[dict[str, list[int]], dict[int, str] | None]:
    """What both sticky assignors do: member -> its places, and which places change hands.

    The latter is None if subscriptions differ: then it has to be found by comparison.
    """
    before = ownership(members, say, layout)
    near = rack_info(members, layout, racks, always_racks)
    if subscriptions_are_equal(members):
        equal = Constrained(layout, before, near)
        equal.run()
        return equal.given, equal.transferring
    different = General(members, layout, before, near)
    different.run()
    return different.given(), None

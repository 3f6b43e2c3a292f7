"""Kafka's RangeAssignor: every topic for itself, consecutive partitions per member.

With P partitions and M subscribed members, the first P mod M members get one partition more than
the others. Members stand in Kafka's order: static ones by instance id, then dynamic ones by
member id. A topic without known partitions is ignored, as clients do (server-side assignors
refuse it). Topics with equal partition counts and subscribers are co-partitioned: partition i of
each goes to the same member. Racks, where they matter, come first: see `range_racks`. Source:
`RangeAssignor.java`, `AbstractPartitionAssignor.java`.
"""

from collections.abc import Mapping

from coordlib.core.groups.assignors import range_racks
from coordlib.core.groups.assignors.model import (
    Assignments,
    ReplicaRacks,
    Subscriber,
    in_member_order,
    topics_in_order,
)

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
        near = range_racks.divide(takers, partitions, racks, rack_of, always_racks)
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
    of_wish = list(places.values())
    alike: dict[tuple[int, ...], list[str]] = {}
    takers: dict[str, list[str]] = {}
    for topic in topics_in_order(places, partitions):
        wishes = tuple(wanted_in[topic])
        if wishes not in alike:
            together = sorted(place for number in wishes for place in of_wish[number])
            alike[wishes] = [ordered[place] for place in together]
        takers[topic] = alike[wishes]
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

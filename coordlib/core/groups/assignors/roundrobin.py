"""Kafka's RoundRobinAssignor: all partitions are dealt around one circle of members.

Topics by name, partitions by number; members in Kafka's order. Who does not want the topic is
skipped, and the next topic is dealt on from where the last one ended. Source:
`RoundRobinAssignor.java`.
"""

from collections.abc import Mapping

from coordlib.core.groups.assignors.model import (
    Assignments,
    Subscriber,
    in_member_order,
    topics_in_order,
)

NAME = "roundrobin"


def assign(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Assignments:
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

"""The broker's range assignor (KIP-848): as the client's, without racks.

It refuses topics that do not exist, since the broker is the one who knows them. Source:
`RangeAssignor.java` of the group coordinator.
"""

from collections.abc import Mapping

from coordlib.core.groups.assignors.model import Assignments, Subscriber
from coordlib.core.groups.assignors.range_roundrobin import divide, takers_of


class NotAssignable(ValueError):
    """An assignor of the server refuses: somebody subscribes to a topic that does not exist."""


def assign(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Assignments:
    """Divide the partitions of all topics.

    Raises:
        NotAssignable: a member wants a topic that is not in `partitions`.
    """
    refuse_unknown(members, partitions)
    given: Assignments = {member: {} for member in members}
    for topic, takers in takers_of(members, partitions).items():
        divide(topic, partitions[topic], takers, given)
    return given


def refuse_unknown(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> None:
    """Raise NotAssignable for the first topic that does not exist."""
    for member in sorted(members):
        for topic in members[member].topics:
            if topic not in partitions:
                raise NotAssignable(f"Member {member} wants topic {topic}, which does not exist")

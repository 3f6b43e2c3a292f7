"""Every topic for itself, consecutive partitions per member, as Kafka's range assignor.

Members stand by id. Weights: a topic's partitions are divided among those who want it by largest
remainder of their ideal shares, ties by id; then each gets so many consecutive ones. With equal
capacities this is Kafka's division: the first P mod M members have one more. Topics with equal
partition counts and the same members are co-partitioned: partition i of each goes to one member.
Nothing is kept on purpose: what members had does not matter. Source: `RangeAssignor.java`.
"""

from collections.abc import Mapping

from coordlib.core.groups.assignors.quotas import quotas
from coordlib.core.groups.assignors.range import takers_of
from coordlib.core.groups.assignors.server_model import Shares, Subscriber
from coordlib.core.groups.assignors.terms import in_assignors_terms

NAME = "range"


def assign(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Shares:
    """Divide the partitions of all topics; `model` says what goes in and comes out."""
    given: Shares = {member: {} for member in members}
    # Most topics are like the one before: as many partitions, and the same members.
    due: list[int] = []
    before: tuple[int, list[str]] = (0, [])
    for topic, takers in takers_of(in_assignors_terms(members), partitions).items():
        if (case := (count := partitions[topic], takers)) != before:
            due = quotas(count, [members[member].capacity for member in takers])
            before = case
        first = 0
        for member, size in zip(takers, due, strict=True):
            if first == count:
                break
            if size:
                given[member][topic] = tuple(range(first, first + size))
            first += size
    return given

"""Kafka's RangeAssignor without racks: every topic for itself, consecutive partitions per member.

With P partitions and M subscribed members, the first P mod M members get one partition more than
the others. Members stand in Kafka's order: static ones by instance id, then dynamic ones by
member id. A topic without known partitions is ignored, as clients do (server-side assignors
refuse it). Topics with equal partition counts and subscribers are co-partitioned: partition i of
each goes to the same member. Source: `RangeAssignor.java`, `AbstractPartitionAssignor.java`.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

NAME = "range"

Assignments = dict[str, dict[str, tuple[int, ...]]]


class Subscriber(Protocol):
    """What this assignor needs to know of a member."""

    @property
    def topics(self) -> Iterable[str]:
        """The topics that it wants."""

    @property
    def instance(self) -> str | None:
        """Its static instance id (KIP-345), or None for a dynamic member."""


def assign(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Assignments:
    """Divide the partitions of all topics.

    Args:
        members: member id -> its subscription.
        partitions: topic -> number of partitions; topics that are not in it do not exist.

    Returns:
        For every member, also one that gets nothing: topic -> its partitions, ascending.
    """
    given: Assignments = {member: {} for member in members}
    ordered = sorted(members, key=lambda member: _rank(member, members[member]))
    wanted = {member: frozenset(members[member].topics) for member in ordered}
    for topic in sorted(frozenset().union(*wanted.values())):
        takers = [member for member in ordered if topic in wanted[member]]
        _divide(topic, partitions.get(topic, 0), takers, given)
    return given


def _rank(member: str, subscriber: Subscriber) -> tuple[bool, str]:
    is_dynamic = subscriber.instance is None
    return is_dynamic, member if subscriber.instance is None else subscriber.instance


def _divide(topic: str, count: int, takers: list[str], given: Assignments) -> None:
    each, extra = divmod(count, len(takers))
    first = 0
    for place, member in enumerate(takers):
        following = first + each + (place < extra)
        if following > first:
            given[member][topic] = tuple(range(first, following))
        first = following
